//! Makes a Python environment by running pip or conda as processes of the job, which may write only to the directory
//! of the new environment. Their output goes to the logs of the job preparation, with credentials of indexes masked.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use corro_launch::redact::Secrets;
use tokio::time::Instant;

use crate::storage::python_cache::UnfinishedEnvironment;
use crate::task::Task;
use crate::task::control::TaskAbort;
use crate::task::job_env::{JobEnv, secret_values};
use crate::task::prepare::preparation::{PreparationCommand, exceeded_limits, run_logged};
use crate::task::prepare::python_env;
use crate::task_errors;

use super::commands::{CONDA_PROGRAMS, CONDA_VARIABLES, advice, conda_command, install_command};
use super::{PackageFile, UnsharedPackages, show_directory};

/// Time limit for one environment.
const MAKE_TIMEOUT: Duration = Duration::from_secs(30 * 60);

const DESCRIBE_SCRIPT: &str = include_str!("describe_interpreter.py");

/// Makes environments of one file.
#[derive(Debug)]
pub struct Maker {
    file: PackageFile,
    /// The node's Python, or the conda program.
    program: PathBuf,
    /// What the result depends on.
    description: String,
    wheel: Option<PathBuf>,
    credentials: Vec<String>,
}

impl Maker {
    /// Looks for the program that makes the environment, in the job's `PATH`.
    pub async fn find(
        task: &Task,
        job_env: &JobEnv,
        file: PackageFile,
        wheel: Option<PathBuf>,
        credentials: Vec<String>,
    ) -> Result<Maker, TaskAbort> {
        let path = job_env.environment.variables.get("PATH").map_or("", String::as_str);
        if file.is_conda {
            let Some(program) = python_env::find_program(path, &CONDA_PROGRAMS) else {
                let why = "There is no mamba, micromamba or conda in the job's PATH on this node: install one there and add it \
                           to the PATH of the agent or of the job (environmentVariables), or use requirementsFile";
                return Err(file.failure(task, why).into());
            };
            let real = program.canonicalize().unwrap_or_else(|_| program.clone());
            let description = format!("conda {}", real.display());
            return Ok(Maker { file, program, description, wheel, credentials });
        }
        let Some(program) = python_env::find_python(path) else {
            let why = "There is no python or python3 in the job's PATH on this node: install it there, or add its directory to \
                       PATH in environmentVariables";
            return Err(file.failure(task, why).into());
        };
        match python_env::run_script(task, job_env, &program, &[DESCRIBE_SCRIPT]).await? {
            Ok(printed) => Ok(Maker { file, program, description: format!("pip {printed}"), wheel, credentials }),
            Err(error) => {
                Err(file.failure(task, &format!("The Python {} does not run: {error}", program.display())).into())
            }
        }
    }

    pub fn description(&self) -> &str {
        &self.description
    }

    pub fn file(&self) -> &PackageFile {
        &self.file
    }

    /// Makes the environment. On failure something may be left of it.
    pub async fn make(
        &self,
        task: &mut Task,
        job_env: &mut JobEnv,
        unfinished: &UnfinishedEnvironment,
    ) -> Result<(), TaskAbort> {
        let file = self.file.path.display();
        task.log.line(format_args!("Making the Python environment of {file} with {}", self.program.display()));
        let confinement = job_env.confinement.clone();
        show_directory(task, job_env, unfinished.directory(), false)?;
        mask(task, job_env, &self.credentials);
        let made = self.run_steps(task, job_env, &unfinished.environment()).await;
        job_env.confinement = confinement;
        made
    }

    async fn run_steps(&self, task: &mut Task, job_env: &JobEnv, environment: &Path) -> Result<(), TaskAbort> {
        let deadline = Instant::now() + MAKE_TIMEOUT;
        let python = environment.join("bin/python");
        let mut env = job_env.environment.variables.clone();
        if self.file.is_conda {
            let mut env = env.clone();
            env.extend(CONDA_VARIABLES.map(|(name, value)| (name.to_owned(), value.to_owned())));
            let argv = conda_command(&self.program, environment, &self.file.path);
            run_step(task, job_env, &self.file, (argv, env), deadline).await?;
            if !python.exists() {
                let why = "The conda environment has no Python: add 'python' to the dependencies in the file";
                return Err(self.file.failure(task, why).into());
            }
        } else if let Err(error) = python_env::make_venv(task, job_env, &self.program, environment).await? {
            let why = format!(
                "The Python {} cannot make a virtual environment: {error}. On Debian and Ubuntu the operator installs python3-venv",
                self.program.display()
            );
            return Err(self.file.failure(task, &why).into());
        }
        python_env::activate(&mut env, environment);
        let requirements = (!self.file.is_conda).then_some(&*self.file.path);
        let argv = install_command(Some(&python), requirements, self.wheel.as_deref());
        run_step(task, job_env, &self.file, (argv, env), deadline).await
    }
}

/// Installs packages for this job alone: into its virtual environment, or into the Python of its container.
pub async fn install_unshared(
    task: &mut Task,
    job_env: &mut JobEnv,
    packages: &UnsharedPackages,
    venv: Option<&Path>,
) -> Result<(), TaskAbort> {
    let secrets = job_env.confinement.secrets.clone();
    mask(task, job_env, &packages.credentials);
    let mut env = job_env.environment.variables.clone();
    if venv.is_none() {
        // The container ends with the job, so its system packages may be changed.
        let settings = [("PIP_BREAK_SYSTEM_PACKAGES", "1"), ("PIP_ROOT_USER_ACTION", "ignore")];
        env.extend(settings.map(|(name, value)| (name.to_owned(), value.to_owned())));
    }
    let python = venv.map(|venv| venv.join("bin/python"));
    let argv = install_command(python.as_deref(), Some(&packages.file.path), packages.wheel.as_deref());
    task.log.line(format_args!("Installing the packages of {}", packages.file.path.display()));
    let installed = run_step(task, job_env, &packages.file, (argv, env), Instant::now() + MAKE_TIMEOUT).await;
    job_env.confinement.secrets = secrets;
    installed
}

/// Masks credentials of package indexes, besides the job's secrets. They are part of plain variables.
fn mask(task: &Task, job_env: &mut JobEnv, credentials: &[String]) {
    let shows_secrets = task.order.shows_secrets;
    let own = secret_values(&task.order, Some(&job_env.environment)).filter(|_| !shows_secrets);
    let masked = Secrets::new(own.chain(credentials.iter().map(String::as_str)));
    job_env.confinement.secrets = masked;
}

async fn run_step(
    task: &mut Task,
    job_env: &JobEnv,
    file: &PackageFile,
    (argv, env): (Vec<String>, BTreeMap<String, String>),
    deadline: Instant,
) -> Result<(), TaskAbort> {
    let command = PreparationCommand {
        name: "installation of the Python packages",
        argv,
        env,
        cwd: file.directory.clone(),
        tag: "packages",
        time_limit: Some(deadline.saturating_duration_since(Instant::now())),
    };
    let ended = run_logged(task, job_env, command).await?;
    if ended.is_timed_out {
        task.log.tool_output(&ended.stderr);
        let minutes = MAKE_TIMEOUT.as_secs() / 60;
        let why =
            format!("It was not complete after {minutes} minutes: use wheels, fewer packages, or a container image");
        return Err(file.failure(task, &why).into());
    }
    if ended.exit.success() {
        return Ok(());
    }
    task.log.tool_output(&ended.stderr);
    let met = exceeded_limits(task).await;
    let at = (&task.context.node, file.field, &*file.path);
    Err(task_errors::python_packages(at, ended.exit, met, &ended.stderr, advice(&ended.stderr)).into())
}
