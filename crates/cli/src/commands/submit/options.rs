//! Options of `corro submit`: the command line over the table `[submit]` of the project file. Pure, but for variables of the caller's environment.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use corro_model::batchai::{Priority, Webhook};

use super::kind::Kind;
use super::names::NodeResources;
use super::values::{ShareMount, Variable, parse_duration, parse_memory, parse_mount, parse_variable};
use crate::defaults::SubmitOptions;
use crate::error::CliError;
use crate::webhook_options::WebhookOptions;

/// What a job runs and what it needs. Shared by all commands that make jobs from a directory.
#[derive(Args, Clone, Debug, Default)]
pub struct JobOptions {
    /// Number of nodes [default: 1]
    #[arg(long, short = 'N', value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000), help_heading = "Resources")]
    pub nodes: Option<u32>,
    /// Number of ranks on all nodes together [default: one on each node]
    #[arg(long, alias = "np", value_name = "N", value_parser = clap::value_parser!(u32).range(1..), help_heading = "Resources")]
    pub processes: Option<u32>,
    /// GPUs of each node
    #[arg(long, value_name = "N", help_heading = "Resources")]
    pub gpus: Option<u32>,
    /// Cores of each node
    #[arg(long, value_name = "N", help_heading = "Resources")]
    pub cores: Option<u32>,
    /// Memory of each node in GiB, such as 16G
    #[arg(long, value_name = "SIZE", value_parser = parse_memory, help_heading = "Resources")]
    pub memory: Option<u32>,
    /// Longest run time, such as 30m, 2h or 1d12h. The job is stopped then [default: 7 days]
    #[arg(long, value_name = "TIME", value_parser = parse_duration, help_heading = "Resources")]
    pub time: Option<Duration>,
    /// Kind of the job: horovod, pytorch, mpi or custom [default: by the imports of the script]
    #[arg(long, value_enum, value_name = "KIND", hide_possible_values = true, help_heading = "Program")]
    pub kind: Option<Kind>,
    /// Directory to send, with all files that .gitignore and .corroignore do not exclude [default: the one with corro.toml, else the current one]
    #[arg(long, value_name = "DIR", help_heading = "Program")]
    pub dir: Option<PathBuf>,
    /// Container image to run in
    #[arg(long, value_name = "IMAGE", help_heading = "Program")]
    pub image: Option<String>,
    /// Environment variable of the job: NAME=VALUE, or NAME for its value here. Can be repeated
    #[arg(long, short = 'E', value_name = "NAME[=VALUE]", help_heading = "Program")]
    pub env: Vec<String>,
    /// The same for a secret, which is stored encrypted and never shown. Can be repeated
    #[arg(long, value_name = "NAME[=VALUE]", help_heading = "Program")]
    pub secret: Vec<String>,
    /// Install Python packages: a requirements file, or a requirement such as torch==2.9. Can be repeated
    #[arg(long, value_name = "FILE|PACKAGE", help_heading = "Program")]
    pub pip: Vec<String>,
    /// Install the packages of this virtual environment, in the same versions
    #[arg(long, value_name = "DIR", conflicts_with_all = ["pip", "conda_file"], help_heading = "Program")]
    pub venv: Option<PathBuf>,
    /// Make the conda environment of this file
    #[arg(long, value_name = "FILE", conflicts_with = "pip", help_heading = "Program")]
    pub conda_file: Option<PathBuf>,
    /// Mount a share below $AZ_BATCHAI_JOB_MOUNT_ROOT: SHARE, SHARE:PATH or ACCOUNT/SHARE:PATH. Can be repeated
    #[arg(long, value_name = "SHARE[:PATH]", help_heading = "Program")]
    pub mount: Vec<String>,
    /// Priority in the queue: low, normal or high [default: normal]
    #[arg(long, value_name = "PRIORITY", value_parser = ["low", "normal", "high"], help_heading = "Scheduling")]
    pub priority: Option<String>,
    /// Run the job again if it fails, up to N times
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=100), help_heading = "Scheduling")]
    pub retry: Option<u32>,
    /// Wait until this job has succeeded: JOB or EXPERIMENT/JOB. Can be repeated
    #[arg(long, value_name = "JOB", help_heading = "Scheduling")]
    pub after: Vec<String>,
    #[command(flatten)]
    pub webhook: WebhookOptions,
}

/// Where a job's resources are. Defaults come from the environment, `corro.toml` and the configuration.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Names")]
pub struct PlaceOptions {
    /// Resource group [default: default]
    #[arg(long = "resource-group", short = 'g', value_name = "GROUP")]
    pub group: Option<String>,
    /// Workspace [default: default]
    #[arg(long, short = 'w', value_name = "WORKSPACE")]
    pub workspace: Option<String>,
    /// Experiment [default: the name of the project]
    #[arg(long, short = 'e', value_name = "EXPERIMENT")]
    pub experiment: Option<String>,
    /// Cluster [default: one that fits, else a new one that grows and shrinks with its jobs]
    #[arg(long, short = 'c', value_name = "CLUSTER")]
    pub cluster: Option<String>,
    /// Storage account for the job's directory [default: the group's]
    #[arg(long = "account-name", value_name = "ACCOUNT")]
    pub account: Option<String>,
    /// Share for the job's directory [default: projects]
    #[arg(long, value_name = "SHARE")]
    pub share: Option<String>,
}

/// Parsed options of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobRequest {
    pub nodes: u32,
    pub processes: Option<u32>,
    pub resources: NodeResources,
    pub time: Option<Duration>,
    pub kind: Option<Kind>,
    pub image: Option<String>,
    pub environment: Vec<Variable>,
    pub secrets: Vec<Variable>,
    pub python: Option<PythonSource>,
    pub mounts: Vec<ShareMount>,
    pub priority: Option<String>,
    pub retries: u32,
    pub after: Vec<String>,
    pub webhook: Option<Webhook>,
}

/// What a job's Python environment is made from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PythonSource {
    /// Requirements files and requirements, in order.
    Pip(Vec<String>),
    Venv(PathBuf),
    CondaFile(PathBuf),
}

impl JobOptions {
    /// Combines the command line with the project file. `environment` looks up variables of the caller.
    pub fn resolve(
        &self,
        project: &SubmitOptions,
        environment: impl Fn(&str) -> Option<String>,
    ) -> Result<JobRequest, CliError> {
        let of_file = |key: &str, problem: String| CliError::new(format!("corro.toml: [submit] {key}: {problem}"));
        let kind = match (self.kind, &project.kind) {
            (None, Some(text)) => Some(clap::ValueEnum::from_str(text, true).map_err(|_| {
                of_file("kind", format!("'{text}' is not a kind: write horovod, pytorch, mpi or custom"))
            })?),
            (given, _) => given,
        };
        let memory_gib = match (self.memory, &project.memory) {
            (None, Some(text)) => Some(parse_memory(text).map_err(|problem| of_file("memory", problem))?),
            (given, _) => given,
        };
        let time = match (self.time, &project.time) {
            (None, Some(text)) => Some(parse_duration(text).map_err(|problem| of_file("time", problem))?),
            (given, _) => given,
        };
        let mut mounts = Vec::new();
        for text in &project.mount {
            mounts.push(parse_mount(text).map_err(|problem| of_file("mount", problem))?);
        }
        for text in &self.mount {
            mounts.push(parse_mount(text).map_err(|problem| CliError::usage(format!("argument --mount: {problem}")))?);
        }
        let given = |option: &str, texts: &[String]| {
            let parse = |text: &String| parse_variable(text, &environment);
            let variables: Result<Vec<Variable>, String> = texts.iter().map(parse).collect();
            variables.map_err(|problem| CliError::usage(format!("argument {option}: {problem}")))
        };
        let of_project = project.env.iter().map(|(name, value)| Variable { name: name.clone(), value: value.clone() });
        let mut variables: Vec<Variable> = of_project.collect();
        for variable in given("--env", &self.env)? {
            variables.retain(|earlier| earlier.name != variable.name);
            variables.push(variable);
        }
        let of_project = project.priority.map(|priority| priority_name(priority).to_owned());
        Ok(JobRequest {
            nodes: self.nodes.or(project.nodes).unwrap_or(1),
            processes: self.processes.or(project.processes),
            resources: NodeResources {
                gpus: self.gpus.or(project.gpus),
                cores: self.cores.or(project.cores),
                memory_gib,
            },
            time,
            kind,
            image: self.image.clone().or_else(|| project.image.clone()),
            environment: variables,
            secrets: given("--secret", &self.secret)?,
            python: self.python().or_else(|| python_of(project)),
            mounts,
            priority: self.priority.clone().or(of_project),
            retries: self.retry.or(project.retry).unwrap_or(0),
            after: self.after.clone(),
            webhook: self.webhook.resolve(project, &environment)?,
        })
    }

    fn python(&self) -> Option<PythonSource> {
        let pip = (!self.pip.is_empty()).then(|| PythonSource::Pip(self.pip.clone()));
        let venv = self.venv.clone().map(PythonSource::Venv);
        pip.or(venv).or_else(|| self.conda_file.clone().map(PythonSource::CondaFile))
    }
}

fn python_of(project: &SubmitOptions) -> Option<PythonSource> {
    let pip = (!project.pip.is_empty()).then(|| PythonSource::Pip(project.pip.clone()));
    let venv = project.venv.as_ref().map(|dir| PythonSource::Venv(dir.into()));
    pip.or(venv).or_else(|| project.conda_file.as_ref().map(|file| PythonSource::CondaFile(file.into())))
}

fn priority_name(priority: Priority) -> &'static str {
    match priority {
        Priority::Low => "low",
        Priority::Normal => "normal",
        Priority::High => "high",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn project() -> SubmitOptions {
        SubmitOptions {
            nodes: Some(4),
            kind: Some("horovod".to_owned()),
            memory: Some("16G".to_owned()),
            env: [("A".to_owned(), "1".to_owned()), ("B".to_owned(), "2".to_owned())].into(),
            pip: vec!["requirements.txt".to_owned()],
            priority: Some(Priority::High),
            retry: Some(3),
            time: Some("2h".to_owned()),
            mount: vec!["data".to_owned()],
            ..SubmitOptions::default()
        }
    }

    #[test]
    fn without_options_a_job_is_one_process_on_one_node() {
        let made = JobOptions::default().resolve(&SubmitOptions::default(), |_| None).expect("resolved");
        assert_eq!((made.nodes, made.processes, made.kind, made.retries), (1, None, None, 0));
        assert!(made.resources.is_empty() && made.environment.is_empty() && made.python.is_none());
    }

    #[test]
    fn the_command_line_comes_before_the_project_file() {
        let made = JobOptions::default().resolve(&project(), |_| None).expect("resolved");
        assert_eq!((made.nodes, made.kind, made.retries), (4, Some(Kind::Horovod), 3));
        assert_eq!((made.resources.memory_gib, made.priority.as_deref()), (Some(16), Some("high")));
        assert_eq!(made.time, Some(Duration::from_secs(7200)));
        assert_eq!(made.python, Some(PythonSource::Pip(vec!["requirements.txt".to_owned()])));
        let given = JobOptions {
            nodes: Some(2),
            kind: Some(Kind::Custom),
            env: vec!["B=3".to_owned(), "C".to_owned()],
            venv: Some("env".into()),
            mount: vec!["more:m".to_owned()],
            retry: Some(0),
            ..JobOptions::default()
        };
        let made = given.resolve(&project(), |name| (name == "C").then(|| "c".to_owned())).expect("resolved");
        assert_eq!((made.nodes, made.kind, made.retries), (2, Some(Kind::Custom), 0));
        let variables: Vec<String> = made.environment.iter().map(|v| format!("{}={}", v.name, v.value)).collect();
        assert_eq!(variables, ["A=1", "B=3", "C=c"]);
        assert_eq!(made.python, Some(PythonSource::Venv("env".into())));
        assert_eq!(made.mounts.iter().map(|m| m.path.as_str()).collect::<Vec<_>>(), ["data", "m"]);
    }

    #[test]
    fn mistakes_name_their_source() {
        let check = |options: JobOptions, project: SubmitOptions, expected: &str| {
            assert_eq!(options.resolve(&project, |_| None).expect_err("a mistake").message, expected);
        };
        let kind = SubmitOptions { kind: Some("x".to_owned()), ..SubmitOptions::default() };
        let text = "corro.toml: [submit] kind: 'x' is not a kind: write horovod, pytorch, mpi or custom";
        check(JobOptions::default(), kind, text);
        let env = JobOptions { env: vec!["X".to_owned()], ..JobOptions::default() };
        check(env, SubmitOptions::default(), "argument --env: the variable X is not set: write X=VALUE");
    }
}
