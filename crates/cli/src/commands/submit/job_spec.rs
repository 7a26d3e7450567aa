//! The job file that `corro submit` makes: toolkit settings, volumes, directories and constraints. Pure; `--dry-run` prints the result.

use corro_model::batchai::Webhook;
use corro_model::time::Span;
use serde_json::{Map, Value, json};
use std::time::Duration;

use super::kind::Kind;
use super::values::{ShareMount, Variable, shell_line};
use crate::project_upload::job_directory::JobDirectory;

/// What a job runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Program {
    /// A Python script, by its path below the job's directory.
    Script { path: String, arguments: Vec<String> },
    /// A command with its arguments.
    Command(Vec<String>),
}

/// The Python environment that nodes make for a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PythonEnvironment {
    /// Path of a requirements file below the job's directory.
    Requirements(String),
    /// Path of a conda environment file below the job's directory.
    Conda(String),
}

/// Everything that the job file depends on.
#[derive(Clone, Debug)]
pub struct JobPlan {
    pub kind: Kind,
    pub program: Program,
    pub nodes: u32,
    /// Ranks in total. `None`: one for each node.
    pub processes: Option<u32>,
    pub directory: JobDirectory,
    /// Directory below the job's directory in which its processes start; empty for the directory itself.
    pub subdirectory: String,
    pub mounts: Vec<ShareMount>,
    pub image: Option<String>,
    pub environment: Vec<Variable>,
    pub secrets: Vec<Variable>,
    pub python: Option<PythonEnvironment>,
    pub priority: Option<String>,
    pub time_limit: Option<Duration>,
    pub retries: u32,
    /// Jobs that must succeed first, as `EXPERIMENT/JOB` or `JOB`.
    pub after: Vec<String>,
    pub webhook: Option<Webhook>,
}

/// Value of `CORRO_MPIRUN` with which nodes start the ranks themselves.
const NO_MPIRUN: &str = "none";

impl JobPlan {
    /// The job file, as `corro batchai job create` reads it.
    pub fn job_file(&self) -> Value {
        let mut properties = Map::new();
        let mut set = |name: &str, value: Value| properties.insert(name.to_owned(), value);
        set("nodeCount", json!(self.nodes));
        let (settings, value) = self.toolkit();
        set(settings, value);
        set("mountVolumes", json!({ "azureFileShares": self.shares() }));
        set("stdOutErrPathPrefix", json!(self.directory.logs_node_path()));
        set("workingDirectory", json!(self.directory.node_path(&self.subdirectory)));
        if self.rank_count() > 1 {
            set("prefixOutputWithRank", json!(true));
        }
        match &self.python {
            Some(PythonEnvironment::Requirements(path)) => {
                set("pythonEnvironment", json!({ "requirementsFile": self.directory.node_path(path) }));
            }
            Some(PythonEnvironment::Conda(path)) => {
                set("pythonEnvironment", json!({ "condaFile": self.directory.node_path(path) }));
            }
            None => (),
        }
        if let Some(image) = &self.image {
            set("containerSettings", json!({ "imageSourceRegistry": { "image": image } }));
        }
        let environment = self.environment();
        if !environment.is_empty() {
            set("environmentVariables", variables(&environment));
        }
        if !self.secrets.is_empty() {
            set("secrets", variables(&self.secrets));
        }
        if let Some(priority) = &self.priority {
            set("schedulingPriority", json!(priority));
        }
        if !self.after.is_empty() {
            set("dependsOn", json!(self.after));
        }
        if let Some(webhook) = &self.webhook {
            set("notifications", json!({ "webhook": webhook }));
        }
        let mut constraints = Map::new();
        if let Some(limit) = self.time_limit {
            constraints.insert("maxWallClockTime".to_owned(), json!(Span(limit).to_string()));
        }
        if self.retries > 0 {
            constraints.insert("maxRetryCount".to_owned(), json!(self.retries));
        }
        if !constraints.is_empty() {
            set("constraints", constraints.into());
        }
        json!({ "properties": properties })
    }

    /// Number of processes of the job.
    pub fn rank_count(&self) -> u32 {
        self.processes.unwrap_or(self.nodes)
    }

    /// Toolkit settings: their field and value.
    fn toolkit(&self) -> (&'static str, Value) {
        let mut settings = Map::new();
        if let Some(processes) = self.processes {
            settings.insert("processCount".to_owned(), json!(processes));
        }
        match (&self.program, self.kind) {
            (Program::Script { path, arguments }, Kind::Horovod | Kind::Pytorch) => {
                settings.insert("pythonScriptFilePath".to_owned(), json!(self.directory.node_path(path)));
                if !arguments.is_empty() {
                    settings.insert("commandLineArgs".to_owned(), json!(shell_line(arguments)));
                }
                let field = if self.kind == Kind::Horovod { "horovodSettings" } else { "pyTorchSettings" };
                (field, settings.into())
            }
            _ => {
                // One process is a rank too: a script finds RANK and WORLD_SIZE on any number of nodes.
                settings.insert("commandLine".to_owned(), json!(self.command_line()));
                ("customMpiSettings", settings.into())
            }
        }
    }

    /// The program as a shell command line.
    fn command_line(&self) -> String {
        match &self.program {
            Program::Command(words) => shell_line(words),
            Program::Script { path, arguments } => {
                let words = [vec!["python3".to_owned()], vec![self.relative(path)], arguments.clone()].concat();
                shell_line(&words)
            }
        }
    }

    /// The path of a script as seen from the directory in which the processes start.
    fn relative(&self, path: &str) -> String {
        if self.subdirectory.is_empty() {
            return path.to_owned();
        }
        match path.strip_prefix(&format!("{}/", self.subdirectory)) {
            Some(below) => below.to_owned(),
            None => "../".repeat(self.subdirectory.split('/').count()) + path,
        }
    }

    fn environment(&self) -> Vec<Variable> {
        let mut environment = self.environment.clone();
        // Ranks of other kinds than MPI need no launcher of MPI, whose presence on a node must not change how they start.
        let is_started_by_nodes = self.toolkit().0 == "customMpiSettings" && self.kind != Kind::Mpi;
        if is_started_by_nodes && !environment.iter().any(|variable| variable.name == "CORRO_MPIRUN") {
            environment.push(Variable { name: "CORRO_MPIRUN".to_owned(), value: NO_MPIRUN.to_owned() });
        }
        environment
    }

    fn shares(&self) -> Vec<Value> {
        let own = ShareMount { account: None, share: self.directory.share.clone(), path: self.directory.share.clone() };
        let reference = |mount: &ShareMount| {
            let account = mount.account.as_deref().unwrap_or(&self.directory.account);
            json!({
                "accountName": account,
                "azureFileUrl": format!("https://{account}.file.core.windows.net/{}", mount.share),
                "relativeMountPath": mount.path,
            })
        };
        [&own].into_iter().chain(&self.mounts).map(reference).collect()
    }
}

fn variables(variables: &[Variable]) -> Value {
    variables.iter().map(|variable| json!({ "name": variable.name, "value": variable.value })).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use corro_model::Secret;
    use corro_model::batchai::JobCreateParameters;
    use corro_model::validate;

    fn plan(kind: Kind, program: Program, nodes: u32) -> JobPlan {
        JobPlan {
            kind,
            program,
            nodes,
            processes: None,
            directory: JobDirectory {
                account: "acc".to_owned(),
                share: "projects".to_owned(),
                path: "default/cifar/train-1".to_owned(),
            },
            subdirectory: String::new(),
            mounts: Vec::new(),
            image: None,
            environment: Vec::new(),
            secrets: Vec::new(),
            python: None,
            priority: None,
            time_limit: None,
            retries: 0,
            after: Vec::new(),
            webhook: None,
        }
    }

    fn script(path: &str) -> Program {
        Program::Script { path: path.to_owned(), arguments: vec!["--epochs".to_owned(), "3".to_owned()] }
    }

    fn command(words: &[&str]) -> Program {
        Program::Command(words.iter().map(|word| (*word).to_owned()).collect())
    }

    /// The properties of a job file that the server would accept.
    fn properties(plan: &JobPlan) -> Value {
        let file = plan.job_file();
        let job: JobCreateParameters = serde_json::from_value(file.clone()).expect("a job file");
        validate::check_job(&job.properties).expect("valid");
        file["properties"].clone()
    }

    const DIR: &str = "$AZ_BATCHAI_JOB_MOUNT_ROOT/projects/default/cifar/train-1";

    #[test]
    fn a_horovod_script_on_four_nodes() {
        let made = properties(&plan(Kind::Horovod, script("train.py"), 4));
        let expected = json!({
            "nodeCount": 4,
            "horovodSettings": { "pythonScriptFilePath": format!("{DIR}/train.py"), "commandLineArgs": "--epochs 3" },
            "mountVolumes": { "azureFileShares": [{
                "accountName": "acc", "azureFileUrl": "https://acc.file.core.windows.net/projects",
                "relativeMountPath": "projects" }] },
            "stdOutErrPathPrefix": format!("{DIR}/.corro/logs"),
            "workingDirectory": DIR,
            "prefixOutputWithRank": true,
        });
        assert_eq!(made, expected);
    }

    #[test]
    fn the_toolkit_follows_kind_and_program() {
        let check = |kind, program: Program, nodes, field: &str, key: &str, value: &str| {
            let made = properties(&plan(kind, program, nodes));
            assert_eq!(made[field][key], json!(value), "{made}");
        };
        let line = "commandLine";
        let run = || command(&["python", "train.py"]);
        check(Kind::Pytorch, script("a.py"), 2, "pyTorchSettings", "commandLineArgs", "--epochs 3");
        check(Kind::Custom, script("a.py"), 1, "customMpiSettings", line, "python3 a.py --epochs 3");
        check(Kind::Custom, script("a.py"), 2, "customMpiSettings", line, "python3 a.py --epochs 3");
        check(Kind::Custom, run(), 1, "customMpiSettings", line, "python train.py");
        check(Kind::Horovod, run(), 2, "customMpiSettings", line, "python train.py");
        check(Kind::Mpi, script("a.py"), 2, "customMpiSettings", line, "python3 a.py --epochs 3");
        check(Kind::Custom, command(&["sh", "-c", "a && b"]), 1, "customMpiSettings", line, "sh -c 'a && b'");
    }

    #[test]
    fn only_mpi_programs_get_a_launcher() {
        let launcher = |kind, nodes| properties(&plan(kind, script("a.py"), nodes))["environmentVariables"].clone();
        let none = json!([{ "name": "CORRO_MPIRUN", "value": "none" }]);
        assert_eq!([launcher(Kind::Custom, 2), launcher(Kind::Custom, 1)], [none.clone(), none]);
        assert_eq!([launcher(Kind::Mpi, 2), launcher(Kind::Horovod, 2)], [Value::Null, Value::Null]);
    }

    #[test]
    fn all_options() {
        let variable = |name: &str| Variable { name: name.to_owned(), value: "v".to_owned() };
        let made = properties(&JobPlan {
            processes: Some(8),
            subdirectory: "src".to_owned(),
            mounts: vec![ShareMount {
                account: Some("other".to_owned()),
                share: "data".to_owned(),
                path: "d/e".to_owned(),
            }],
            image: Some("python:3.12".to_owned()),
            environment: vec![variable("A")],
            secrets: vec![variable("TOKEN")],
            priority: Some("high".to_owned()),
            time_limit: Some(Duration::from_secs(7200)),
            retries: 2,
            webhook: Some(Webhook { url: Secret::new("https://h/x"), events: None, secret: None }),
            ..plan(Kind::Custom, script("src/a.py"), 4)
        });
        assert_eq!(made["workingDirectory"], json!(format!("{DIR}/src")));
        assert_eq!(made["customMpiSettings"], json!({ "commandLine": "python3 a.py --epochs 3", "processCount": 8 }));
        assert_eq!(
            made["mountVolumes"]["azureFileShares"][1]["azureFileUrl"],
            "https://other.file.core.windows.net/data"
        );
        assert_eq!(made["mountVolumes"]["azureFileShares"][1]["relativeMountPath"], "d/e");
        assert_eq!(made["containerSettings"]["imageSourceRegistry"]["image"], "python:3.12");
        assert_eq!(made["constraints"], json!({ "maxWallClockTime": "PT2H", "maxRetryCount": 2 }));
        assert_eq!(made["schedulingPriority"], "high");
        assert_eq!(made["secrets"][0]["name"], "TOKEN");
        assert_eq!(made["notifications"], json!({ "webhook": { "url": "https://h/x" } }));
    }

    #[test]
    fn a_script_outside_of_the_directory_of_the_processes() {
        let made =
            properties(&JobPlan { subdirectory: "a/b".to_owned(), ..plan(Kind::Custom, script("tools/x.py"), 1) });
        assert_eq!(made["customMpiSettings"]["commandLine"], "python3 ../../tools/x.py --epochs 3");
    }
}
