//! A Python virtual environment for each job with a preparation command or Python packages of its own: what the
//! preparation installs with `pip` is visible to the job's ranks only. If the node has no Python, or one that cannot
//! create environments, the job uses the machine's packages.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use corro_base::error_chain;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::time::timeout;

use corro_launch::confinement::Confinement;
use corro_launch::process_spec::ProcessSpec;

use crate::task::Task;
use crate::task::control::{TaskAbort, wait_for_stop};
use crate::task::job_env::JobEnv;

/// Ten times what a loaded machine needs.
const SCRIPT_TIMEOUT: Duration = Duration::from_secs(30);

/// Creates the environment and puts it first in the job's `PATH`. Returns its directory, unless it cannot be made.
pub async fn create(task: &mut Task, job_env: &mut JobEnv) -> Result<Option<PathBuf>, TaskAbort> {
    let directory = job_env.directories.layout.job_temp.join(VENV_DIR);
    let path = job_env.environment.variables.get("PATH").map_or("", String::as_str);
    let Some(python) = find_python(path) else {
        task.log.line("No Python on this node");
        return Ok(None);
    };
    let made = make_venv(task, job_env, &python, &directory).await?;
    let python = python.display();
    match made {
        Ok(()) => {
            task.log.line(format_args!("Created a Python virtual environment for this job with {python}"));
            activate(&mut job_env.environment.variables, &directory);
            Ok(Some(directory))
        }
        Err(reason) => {
            task.log.line(format_args!(
                "Could not create a Python virtual environment for this job with {python}: {reason}"
            ));
            Ok(None)
        }
    }
}

/// Below the job's directory.
const VENV_DIR: &str = ".venv";
const MAKE_VENV_SCRIPT: &str = include_str!("make_venv.py");

/// Makes a virtual environment with this Python. The inner error says why that was not possible.
pub async fn make_venv(
    task: &Task,
    job_env: &JobEnv,
    python: &Path,
    directory: &Path,
) -> Result<Result<(), String>, TaskAbort> {
    let made = run_script(task, job_env, python, &[MAKE_VENV_SCRIPT, &directory.to_string_lossy()]).await?;
    Ok(made.map(drop))
}

/// Runs a script of the agent, with its arguments, in an interpreter of the job, and returns what it prints. The inner
/// error is the last line of its stderr.
pub async fn run_script(
    task: &Task,
    job_env: &JobEnv,
    interpreter: &Path,
    script: &[&str],
) -> Result<Result<String, String>, TaskAbort> {
    let mut control = task.control.clone();
    let ended = tokio::select! {
        ended = timeout(SCRIPT_TIMEOUT, run_to_end(task, job_env, interpreter, script)) => ended,
        _ = wait_for_stop(&mut control, None) => return Err(TaskAbort::Stopped),
    };
    Ok(ended.unwrap_or_else(|_| Err("it took too long".to_owned())))
}

async fn run_to_end(task: &Task, job_env: &JobEnv, interpreter: &Path, script: &[&str]) -> Result<String, String> {
    let interpreter = interpreter.to_string_lossy();
    let argv = [&*interpreter, "-c"].into_iter().chain(script.iter().copied());
    let spec = ProcessSpec {
        argv: argv.map(str::to_owned).collect(),
        env: job_env.environment.variables.clone(),
        cwd: job_env.directories.layout.job_temp.clone(),
        tag: task.tag("environment"),
        confinement: Confinement::default(),
    };
    let process = task.context.config.guard.spawn(job_env.wrap(spec)).await;
    let mut process = process.map_err(|error| error_chain::join(&error))?;
    let (stdout, stderr) = (process.stdout.take(), process.stderr.take());
    let (exit, printed, words) = tokio::join!(process.wait(), read(stdout), read(stderr));
    match exit {
        Ok(exit) if exit.success() => Ok(printed),
        // The last line of a Python traceback has the error.
        Ok(exit) => Err(words.trim_end().lines().last().map_or_else(|| exit.to_string(), str::to_owned)),
        Err(error) => Err(error_chain::join(&error)),
    }
}

async fn read(from: Option<impl AsyncRead + Unpin>) -> String {
    let mut bytes = Vec::new();
    if let Some(from) = from {
        // Unread output is only missing from a message.
        let _ = from.take(MAX_OUTPUT_BYTES).read_to_end(&mut bytes).await;
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

const MAX_OUTPUT_BYTES: u64 = 64 * 1024;

/// Sets the variables that `activate` would set.
pub fn activate(variables: &mut BTreeMap<String, String>, directory: &Path) {
    let programs = directory.join("bin").to_string_lossy().into_owned();
    let path = match variables.get("PATH").filter(|path| !path.is_empty()) {
        Some(path) => format!("{programs}:{path}"),
        None => format!("{programs}:/usr/bin:/bin"),
    };
    variables.insert("PATH".to_owned(), path);
    variables.insert("VIRTUAL_ENV".to_owned(), directory.to_string_lossy().into_owned());
    // It would bypass the environment.
    variables.remove("PYTHONHOME");
}

/// The interpreter that `python` means for the job; many machines have only `python3`.
pub fn find_python(path: &str) -> Option<PathBuf> {
    find_program(path, &["python", "python3"])
}

/// The first program of the first of these names that a directory of `path` has.
pub fn find_program(path: &str, names: &[&str]) -> Option<PathBuf> {
    let is_program = |path: &PathBuf| {
        std::fs::metadata(path).is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
    };
    let directories = || path.split(':').filter(|directory| directory.starts_with('/')).map(Path::new);
    names.iter().find_map(|name| directories().map(|directory| directory.join(name)).find(is_program))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn python_is_found_in_the_jobs_path() {
        let base = tempfile::tempdir().expect("a temporary directory");
        let program = |name: &str, mode: u32| {
            let path = base.path().join(name);
            std::fs::create_dir_all(path.parent().expect("a directory")).expect("made");
            std::fs::write(&path, "").expect("written");
            std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).expect("set");
            path
        };
        let small = program("a/python3", 0o755);
        program("a/python", 0o644);
        let path = format!("relative:{0}/none:{0}/a::{0}/b", base.path().display());
        assert_eq!(find_python(&path), Some(small));
        let python = program("b/python", 0o755);
        assert_eq!(find_python(&path), Some(python));
        assert_eq!(find_python(""), None);
    }

    #[test]
    fn activation_puts_the_environment_first() {
        let mut variables = BTreeMap::from([("PATH", "/usr/bin"), ("PYTHONHOME", "/elsewhere"), ("VIRTUAL_ENV", "/x")])
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect();
        activate(&mut variables, Path::new("/job/.venv"));
        let seen: Vec<String> = variables.iter().map(|(name, value)| format!("{name}={value}")).collect();
        assert_eq!(seen, ["PATH=/job/.venv/bin:/usr/bin", "VIRTUAL_ENV=/job/.venv"]);
    }
}
