//! A submission as far as it is decided without a server: project, program, kind, names and environment. Combines the command line with `corro.toml` and
//! the defaults. Reads files of the project; sends nothing.

use std::path::{Path, PathBuf};

use corro_model::batchai::{JobCreateParameters, JobSpec};
use corro_model::names::{NameKind, check_name};
use corro_model::validate;
use serde_json::Value;

use super::job_spec::{JobPlan, Program, PythonEnvironment};
use super::kind::{self, Kind};
use super::names;
use super::options::{JobOptions, JobRequest, PlaceOptions, PythonSource};
use super::project::Project;
use super::python_source;
use super::resources::ResourceNames;
use crate::defaults::resource_name::{experiment_name, resource_name};
use crate::defaults::{DefaultName, Defaults};
use crate::error::CliError;
use crate::output::units::format_bytes;
use crate::progress::Spinner;
use crate::project_upload::files::{self, ProjectFiles};
use crate::project_upload::job_directory::{JobDirectory, experiment_directory};
use crate::resource::resource_ref::ResourceRef;
use crate::session::env;
use crate::stdio::{note, print};
use crate::webhook_options;

/// Larger projects get a warning.
const LARGE_PROJECT_BYTES: u64 = 200 * 1024 * 1024;

/// What is submitted.
pub struct Submission {
    pub project: Project,
    pub request: JobRequest,
    pub program: Program,
    kind: Kind,
    pub names: ResourceNames,
    python: Option<PythonEnvironment>,
    /// Requirements that were made here, and are sent with the project.
    pub requirements: Option<String>,
}

impl Submission {
    /// Combines command line, project file and defaults.
    pub fn plan(
        script: Option<&str>,
        arguments: &[String],
        options: &JobOptions,
        place: &PlaceOptions,
    ) -> Result<Submission, CliError> {
        let defaults = Defaults::load()?;
        let current =
            std::env::current_dir().map_err(|error| CliError::new("cannot find the current directory").cause(error))?;
        let home = env("HOME").map(PathBuf::from);
        let project = Project::locate(&current, options.dir.as_deref(), defaults.project(), home.as_deref())?;
        let of_project = defaults.project().map(|file| file.submit.clone()).unwrap_or_default();
        let request = options.resolve(&of_project, env)?;
        let program = project.program(&current, script, arguments)?;
        let kind = choose_kind(&request, &program, &project)?;
        let names = resource_names(&defaults, place, &project);
        check_names(&names)?;
        let (python, requirements) = python_environment(&request, &project, &current)?;
        Ok(Submission { project, request, program, kind, names, python, requirements })
    }

    pub fn check_job_name(&self, name: Option<&str>) -> Result<(), CliError> {
        name.map_or(Ok(()), |name| check_name(NameKind::Job, name)).map_err(CliError::from)
    }

    /// Names of jobs begin with the name of the script, or of the program.
    pub fn stem(&self) -> String {
        let word = match &self.program {
            Program::Script { path, .. } => path.as_str(),
            Program::Command(words) => {
                // `python train.py` is named after the script.
                let script = words.iter().find(|word| word.ends_with(".py") || word.ends_with(".sh"));
                script.or(words.first()).map_or("job", String::as_str)
            }
        };
        let file = Path::new(word).file_stem().and_then(|stem| stem.to_str()).unwrap_or("job");
        resource_name(file, "job")
    }

    pub fn job_ref(&self, name: &str) -> Result<ResourceRef, CliError> {
        ResourceRef::from_names(&[
            ("group", "--resource-group/-g", Some(&self.names.group)),
            ("workspace", "--workspace/-w", Some(&self.names.workspace)),
            ("experiment", "--experiment/-e", Some(&self.names.experiment)),
            ("job", "--name/-n", Some(name)),
        ])
    }

    /// The directory on the share below which the directories of this experiment's jobs are.
    pub fn experiment_directory(&self) -> String {
        experiment_directory(&self.names.workspace, &self.names.experiment)
    }

    /// The plan of a job whose directory is `path` on the share.
    pub fn job_plan(&self, account: &str, path: &str) -> JobPlan {
        let request = self.request.clone();
        JobPlan {
            kind: self.kind,
            program: self.program.clone(),
            nodes: request.nodes,
            processes: request.processes,
            directory: JobDirectory {
                account: account.to_owned(),
                share: self.names.share.clone(),
                path: path.to_owned(),
            },
            subdirectory: self.project.subdirectory.clone(),
            mounts: request.mounts,
            image: request.image,
            environment: request.environment,
            secrets: request.secrets,
            python: self.python.clone(),
            priority: request.priority,
            time_limit: request.time,
            retries: request.retries,
            after: request.after,
            webhook: request.webhook,
        }
    }

    /// `--dry-run`: the job file with the names that an empty server would give. Values of secrets and the URL of a webhook are
    /// not printed.
    pub fn print_job_file(&self, name: Option<&str>) -> Result<(), CliError> {
        self.check_job_name(name)?;
        let job = name.map_or_else(|| names::numbered(&self.stem(), 1), str::to_owned);
        let account = self.names.account.clone().unwrap_or_else(|| names::account_name(&self.names.group));
        let mut plan = self.job_plan(&account, &format!("{}/{job}", self.experiment_directory()));
        plan.secrets.iter_mut().for_each(|secret| secret.value = "<SECRET>".to_owned());
        check_job(&plan.job_file())?;
        plan.webhook = plan.webhook.as_ref().map(webhook_options::redacted);
        let file = plan.job_file();
        let ResourceNames { group, workspace, experiment, .. } = &self.names;
        let cluster = self.names.cluster.as_deref().unwrap_or("one that fits, or a new one");
        note(format_args!(
            "Job {job} in experiment {experiment}, workspace {workspace}, resource group {group}; cluster: {cluster}"
        ));
        print(serde_json::to_string_pretty(&file).map_err(|error| CliError::from_error(&error))?);
        Ok(())
    }

    /// The files of the project, with notes about what is left out or large.
    pub fn collect_files(&self) -> Result<ProjectFiles, CliError> {
        let spinner = Spinner::start("Reading the project");
        let collected = files::collect(&self.project.dir);
        drop(spinner);
        let collected = collected?;
        for skipped in &collected.skipped {
            note(format_args!("warning: not sent: {skipped}"));
        }
        let total = collected.total_bytes();
        if total > LARGE_PROJECT_BYTES {
            let largest = collected.largest(3);
            let largest: Vec<String> =
                largest.iter().map(|file| format!("{} ({})", file.path, format_bytes(file.size))).collect();
            note(format_args!(
                "warning: the project has {}; the largest files are {}. Name data in .gitignore or .corroignore, put it on a share and \
                 mount that with --mount.",
                format_bytes(total),
                largest.join(", ")
            ));
        }
        if let Program::Script { path, .. } = &self.program
            && !collected.files.iter().any(|file| file.path == *path)
        {
            return Err(CliError::new(format!("{path} is not sent, because .gitignore or .corroignore excludes it"))
                .hint("add a line '!NAME' for it to .corroignore"));
        }
        Ok(collected)
    }
}

/// The specification in a job file, checked as the server does.
pub fn check_job(file: &Value) -> Result<JobSpec, CliError> {
    let job: JobCreateParameters =
        serde_json::from_value(file.clone()).map_err(|error| CliError::from_error(&error))?;
    validate::check_job(&job.properties)?;
    Ok(job.properties)
}

/// Names that are given or have a default; the others are found or made later.
fn resource_names(defaults: &Defaults, place: &PlaceOptions, project: &Project) -> ResourceNames {
    let name = |given: &Option<String>, default| defaults.or_given(given.as_deref(), default).map(str::to_owned);
    let or_default = |name: Option<String>| name.unwrap_or_else(|| names::DEFAULT_NAME.to_owned());
    ResourceNames {
        group: or_default(name(&place.group, DefaultName::Group)),
        workspace: or_default(name(&place.workspace, DefaultName::Workspace)),
        experiment: name(&place.experiment, DefaultName::Experiment).unwrap_or_else(|| experiment_name(&project.name)),
        cluster: name(&place.cluster, DefaultName::Cluster),
        account: name(&place.account, DefaultName::Account),
        share: name(&place.share, DefaultName::Share).unwrap_or_else(|| names::SHARE.to_owned()),
    }
}

fn check_names(names: &ResourceNames) -> Result<(), CliError> {
    check_name(NameKind::Group, &names.group)?;
    check_name(NameKind::Workspace, &names.workspace)?;
    check_name(NameKind::Experiment, &names.experiment)?;
    check_name(NameKind::Share, &names.share)?;
    if let Some(cluster) = &names.cluster {
        check_name(NameKind::Cluster, cluster)?;
    }
    if let Some(account) = &names.account {
        check_name(NameKind::StorageAccount, account)?;
    }
    Ok(())
}

/// The kind of the job: `--kind`, or by the imports of the script, which is said aloud.
fn choose_kind(request: &JobRequest, program: &Program, project: &Project) -> Result<Kind, CliError> {
    if let Some(kind) = request.kind {
        return Ok(kind);
    }
    let script = match program {
        Program::Script { path, .. } => Some(path.as_str()),
        // `python train.py`: the script is looked at, if it is one of the project.
        Program::Command(words) => match &words[..] {
            [python, script, ..] if is_python(python) && project.dir.join(script).is_file() => Some(script.as_str()),
            _ => None,
        },
    };
    let Some(path) = script else { return Ok(Kind::Custom) };
    let text = std::fs::read(project.dir.join(path));
    let text = text.map_err(|error| CliError::new(format!("cannot read {path}")).cause(error))?;
    let detected = kind::detect(&String::from_utf8_lossy(&text));
    match detected.module {
        Some(module) => note(format_args!("{path} imports {module}: a {} job (--kind says otherwise)", detected.kind)),
        None if request.nodes > 1 || request.processes.is_some() => note(format_args!(
            "{path} imports no distributed library: each rank runs it, with RANK and WORLD_SIZE set (--kind says otherwise)"
        )),
        None => (),
    }
    Ok(detected.kind)
}

fn is_python(program: &str) -> bool {
    let name = Path::new(program).file_name().and_then(|name| name.to_str()).unwrap_or_default();
    name.strip_prefix("python").is_some_and(|version| version.chars().all(|c| c.is_ascii_digit() || c == '.'))
}

/// The environment of the job, and the requirements file that has to be sent for it.
fn python_environment(
    request: &JobRequest,
    project: &Project,
    current: &Path,
) -> Result<(Option<PythonEnvironment>, Option<String>), CliError> {
    let requirements = match &request.python {
        None => return Ok((None, None)),
        Some(PythonSource::CondaFile(file)) => {
            return Ok((Some(PythonEnvironment::Conda(project.path_of(current, file)?)), None));
        }
        Some(PythonSource::Pip(entries)) => python_source::from_pip(project, current, entries)?,
        Some(PythonSource::Venv(dir)) => python_source::from_venv(&current.join(dir))?,
    };
    Ok((Some(PythonEnvironment::Requirements(requirements.path)), requirements.text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interpreters_are_recognized() {
        assert!(["python", "python3", "python3.12", "/usr/bin/python3"].iter().all(|name| is_python(name)));
        assert!(["pythonic", "bash", "torchrun"].iter().all(|name| !is_python(name)));
    }
}
