//! Python packages of a job: makes the environment of its requirements or conda file, once for each content, in the
//! cache of Python environments, or takes the one that is there. pip and conda run as processes of the job, with its
//! rights and variables; other jobs see a complete environment read-only. In a container, and for packages that lie in
//! the job's own directory, the packages are installed for this job alone.
//!
//! Reading order: `requirements` and `sources` (the files), `key`, `commands`, `maker`.

mod commands;
mod key;
mod maker;
mod requirements;
mod sources;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use corro_base::error_chain;
use corro_model::container::size_words;
use corro_model::node::TaskFailure;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep, timeout};

use crate::isolation;
use crate::output::output_dir::OutputRoots;
use crate::storage::python_cache::{CachedEnvironment, EnvironmentKey, Lookup, PythonCache};
use crate::task::Task;
use crate::task::control::{TaskAbort, wait_for_stop};
use crate::task::env_vars::expand_path;
use crate::task::job_env::JobEnv;
use crate::task::prepare::python_env;
use crate::task::prepare::wheels::OfferedWheels;
use crate::task_errors;

use key::{KeyInput, environment_key, url_credentials};
use maker::Maker;
use sources::Sources;

/// Interval of checks whether another job has made the environment: locks of the kernel cannot be awaited with a limit.
const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// Time after which the execution log says what is waited for.
const WAIT_NOTE_DELAY: Duration = Duration::from_secs(1);
/// How long a job that has failed or was stopped waits for the removal of what it has left.
const DISCARD_TIMEOUT: Duration = Duration::from_secs(5);
/// Longer than two makers may take.
const MAX_WAIT: Duration = Duration::from_secs(65 * 60);

/// The file from which a job's packages are installed.
#[derive(Clone, Debug)]
struct PackageFile {
    /// Field of the job: `requirementsFile`.
    field: &'static str,
    path: PathBuf,
    /// Directory in which pip or conda runs, to which local packages are relative.
    directory: PathBuf,
    is_conda: bool,
}

/// Packages to be installed for this job alone.
#[derive(Debug)]
pub struct UnsharedPackages {
    file: PackageFile,
    wheel: Option<PathBuf>,
    /// To be masked in the output.
    credentials: Vec<String>,
}

/// Gives the job the environment that it asks for. Returns the packages that are to be installed into the job's own
/// environment instead.
pub async fn provide(
    task: &mut Task,
    job_env: &mut JobEnv,
    wheels: &OfferedWheels,
) -> Result<Option<UnsharedPackages>, TaskAbort> {
    let Some(file) = PackageFile::of_job(task, job_env) else { return Ok(None) };
    let wheel = wheels.horovod();
    let variables = &job_env.environment.variables;
    if job_env.container.is_some() {
        if file.is_conda {
            let why =
                "A conda environment cannot be made in a container: use an image that has it, or requirementsFile";
            return Err(file.failure(task, why).into());
        }
        let credentials = url_credentials(variables, &[]).map(str::to_owned).collect();
        return Ok(Some(UnsharedPackages { file, wheel, credentials }));
    }
    let sources = read_sources(task, job_env, &file).await?;
    let credentials: Vec<String> = url_credentials(variables, &sources.texts).map(str::to_owned).collect();
    if let Some(why) = &sources.unshared_because {
        if file.is_conda {
            let why = format!(
                "The file names a package that no other job could use ({why}): leave it out, and install it in jobPreparation"
            );
            return Err(file.failure(task, &why).into());
        }
        task.log.line(format_args!("The packages of {} are installed for this job alone: {why}", file.path.display()));
        return Ok(Some(UnsharedPackages { file, wheel, credentials }));
    }
    let maker = Maker::find(task, job_env, file.clone(), wheel, credentials).await?;
    let input = KeyInput {
        workspace: task.order.segment.split("/experiments/").next().unwrap_or_default(),
        maker: maker.description(),
        wheels: &wheels.wheels,
        variables: &key_variables(variables, wheels),
        files: &sources.files,
    };
    let key = environment_key(&input);
    let cached = find_or_make(task, job_env, &maker, &key).await?;
    use_environment(task, job_env, cached, maker.file().is_conda)?;
    Ok(None)
}

impl PackageFile {
    fn of_job(task: &Task, job_env: &JobEnv) -> Option<PackageFile> {
        let given = task.order.python_environment.as_ref()?;
        let (field, path, is_conda) = match (&given.requirements_file, &given.conda_file) {
            (Some(path), _) => ("requirementsFile", path, false),
            (None, Some(path)) => ("condaFile", path, true),
            (None, None) => return None,
        };
        // The path appears in messages, so secrets have no place in it.
        let is_secret = |name: &String| task.order.secrets.iter().any(|secret| secret.name == *name);
        let variables = &job_env.environment.variables;
        let plain = variables.iter().filter(|(name, _)| !is_secret(name));
        let plain: BTreeMap<String, String> = plain.map(|(name, value)| (name.clone(), value.clone())).collect();
        let working_directory = &job_env.environment.working_directory;
        let path = expand_path(path, &plain, working_directory);
        let parent = path.parent().unwrap_or(working_directory);
        let directory = match (is_conda, &task.order.working_directory) {
            (false, Some(_)) => working_directory.clone(),
            _ => parent.to_owned(),
        };
        Some(PackageFile { field, path, directory, is_conda })
    }

    fn failure(&self, task: &Task, info: &str) -> TaskFailure {
        task_errors::python_environment(&task.context.node, self.field, &self.path, info)
    }
}

/// Reads the requirements on another thread; a volume of another machine may be slow.
async fn read_sources(task: &Task, job_env: &JobEnv, file: &PackageFile) -> Result<Sources, TaskAbort> {
    let (directories, order) = (&task.context.directories, &task.order);
    let roots = OutputRoots::of_job(directories, &job_env.directories, order, &task.cluster_volumes);
    let roots = roots.map_err(|error| task_errors::node_storage(&task.context.node, directories.root(), &error))?;
    let (path, base) = (file.path.clone(), file.directory.clone());
    let variables = job_env.environment.variables.clone();
    let reading = spawn_blocking(move || sources::read_sources(&roots, &path, &base, &variables));
    let mut control = task.control.clone();
    let read = tokio::select! {
        read = reading => read.map_err(|_| task_errors::agent_panicked(&task.context.node))?,
        _ = wait_for_stop(&mut control, None) => return Err(TaskAbort::Stopped),
    };
    read.map_err(|error| file.failure(task, &error_chain::join(&error)).into())
}

/// The variables without the directory of the server's wheels, which differs between nodes.
fn key_variables(variables: &BTreeMap<String, String>, wheels: &OfferedWheels) -> BTreeMap<String, String> {
    let mut variables = variables.clone();
    if !wheels.wheels.is_empty()
        && let Some(links) = variables.get_mut("PIP_FIND_LINKS")
    {
        // It was added as the last entry.
        *links = links.rsplit_once(' ').map(|(own, _)| own.to_owned()).unwrap_or_default();
    }
    variables.retain(|name, value| name != "PIP_FIND_LINKS" || !value.is_empty());
    variables
}

/// The environment of this key, made here unless it is in the cache or another job makes it.
async fn find_or_make(
    task: &mut Task,
    job_env: &mut JobEnv,
    maker: &Maker,
    key: &EnvironmentKey,
) -> Result<CachedEnvironment, TaskAbort> {
    let began = Instant::now();
    let mut is_noted = false;
    loop {
        match on_cache(task, key, PythonCache::look_up).await? {
            Lookup::Complete(cached) => {
                let path = cached.environment();
                task.log.line(format_args!("Using the Python environment {}", path.display()));
                return Ok(cached);
            }
            Lookup::Missing(unfinished) => {
                let made = maker.make(task, job_env, &unfinished).await;
                if let Err(abort) = made {
                    let cache = Arc::clone(&task.context.python_cache);
                    let key = key.clone();
                    let discarding = spawn_blocking(move || cache.discard(&key, unfinished));
                    // What is not removed in time, or cannot be, is removed when an agent starts.
                    let _ = timeout(DISCARD_TIMEOUT, discarding).await;
                    return Err(abort);
                }
                let finished = on_cache(task, key, |cache, key| cache.finish(key, unfinished)).await?;
                let seconds = began.elapsed().as_secs_f64();
                match finished {
                    Some((cached, bytes)) => {
                        let (path, size) = (cached.environment(), size_words(bytes));
                        let path = path.display();
                        task.log.line(format_args!("Made the Python environment {path} ({size}) in {seconds:.1} s"));
                        return Ok(cached);
                    }
                    None => task.log.line("The Python environment was removed from the full cache; it is made again"),
                }
            }
            Lookup::Busy => {
                if began.elapsed() > MAX_WAIT {
                    let why = "Another job has been making the same environment for an hour: look at the processes of this machine";
                    return Err(maker.file().failure(task, why).into());
                }
                if began.elapsed() > WAIT_NOTE_DELAY && !is_noted {
                    is_noted = true;
                    task.log.line(
                        "Waiting for another job or node of this machine, which makes the same Python environment",
                    );
                }
                let mut control = task.control.clone();
                tokio::select! {
                    () = sleep(POLL_INTERVAL) => {}
                    _ = wait_for_stop(&mut control, None) => return Err(TaskAbort::Stopped),
                }
            }
        }
    }
}

/// Runs an operation of the cache on a thread that may block.
async fn on_cache<T: Send + 'static>(
    task: &Task,
    key: &EnvironmentKey,
    operation: impl FnOnce(&PythonCache, &EnvironmentKey) -> io::Result<T> + Send + 'static,
) -> Result<T, TaskAbort> {
    let (cache, key) = (Arc::clone(&task.context.python_cache), key.clone());
    let working = spawn_blocking(move || operation(&cache, &key));
    let mut control = task.control.clone();
    let done = tokio::select! {
        done = working => done.map_err(io::Error::other),
        // The disk may be slow. The operation goes on, and what it returns is dropped.
        _ = wait_for_stop(&mut control, None) => return Err(TaskAbort::Stopped),
    };
    let (node, root) = (&task.context.node, task.context.python_cache.root());
    done.and_then(|done| done).map_err(|error| task_errors::node_storage(node, root, &error).into())
}

/// Shows the environment to the job's processes, read-only, and puts it first in their `PATH`.
fn use_environment(
    task: &Task,
    job_env: &mut JobEnv,
    cached: CachedEnvironment,
    is_conda: bool,
) -> Result<(), TaskFailure> {
    show_directory(task, job_env, cached.directory(), true)?;
    let environment = cached.environment();
    let variables = &mut job_env.environment.variables;
    python_env::activate(variables, &environment);
    if is_conda {
        variables.insert("CONDA_PREFIX".to_owned(), environment.to_string_lossy().into_owned());
    }
    job_env.python = Some(cached);
    Ok(())
}

/// Makes a directory of the cache visible to the processes that the job starts from now on.
fn show_directory(task: &Task, job_env: &mut JobEnv, directory: &Path, is_read_only: bool) -> Result<(), TaskFailure> {
    let Some(namespaces) = &job_env.confinement.namespaces else { return Ok(()) };
    let paths = (task.context.python_cache.root(), directory);
    match isolation::show_directory(namespaces, &job_env.mount_view, paths, is_read_only) {
        Ok(namespaces) => {
            job_env.confinement.namespaces = Some(namespaces);
            Ok(())
        }
        Err(error) => Err(task_errors::isolation(&task.context.node, &error_chain::join(&error))),
    }
}

impl UnsharedPackages {
    /// Installs the packages into the job's virtual environment, or into its container.
    pub async fn install(self, task: &mut Task, job_env: &mut JobEnv, venv: Option<PathBuf>) -> Result<(), TaskAbort> {
        if venv.is_none() && job_env.container.is_none() {
            let why = "No virtual environment can be made with the Python of the node; the execution log says why";
            return Err(self.file.failure(task, why).into());
        }
        maker::install_unshared(task, job_env, &self, venv.as_deref()).await
    }
}

#[cfg(test)]
mod tests {
    use corro_model::node::Wheel;

    use super::*;

    #[test]
    fn the_directory_of_the_wheels_does_not_count() {
        let offered = OfferedWheels {
            wheels: vec![Wheel { name: "a.whl".into(), bytes: 1, modified: 1 }],
            directory: "/n1/wheels".into(),
        };
        let check = |given: Option<&str>, wheels: &OfferedWheels, expected: Option<&str>| {
            let given = given.map(|links| ("PIP_FIND_LINKS".to_owned(), links.to_owned()));
            let variables = key_variables(&given.into_iter().collect(), wheels);
            assert_eq!(variables.get("PIP_FIND_LINKS").map(String::as_str), expected);
        };
        check(Some("file:///n1/wheels"), &offered, None);
        check(Some("/mine file:///n1/wheels"), &offered, Some("/mine"));
        check(Some("/mine"), &OfferedWheels::default(), Some("/mine"));
        check(None, &offered, None);
    }
}
