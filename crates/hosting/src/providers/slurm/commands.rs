//! Runs `sbatch`, `squeue` and `scancel` as the user of the server. Each run has a deadline, because they block for long when the
//! Slurm controller does not answer.

use std::io::{self, Write};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use thiserror::Error;

use super::queue::{self, SQUEUE_FORMAT};

const COMMAND_TIMEOUT: Duration = Duration::from_secs(30);

/// Variables that an allocation inherits from the server, beside Slurm's own. By default Slurm would pass the whole environment, or
/// start a login shell to get another, which takes seconds.
const INHERITED_VARIABLES: [&str; 9] =
    ["PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "CORRO_LOG", "CORRO_MPIRUN", "DOCKER_HOST"];

#[derive(Debug, Error)]
pub enum CommandError {
    #[error("cannot run {program}")]
    Start { program: &'static str, source: io::Error },
    #[error("{program} did not end within {} s", COMMAND_TIMEOUT.as_secs())]
    TimedOut { program: &'static str },
    #[error("{program} failed: {stderr}")]
    Failed { program: &'static str, stderr: String },
}

/// Submits a batch script and returns the job id.
pub fn sbatch(options: &[String], script: &str) -> Result<u64, CommandError> {
    let stdout = run("sbatch", options, script)?;
    let no_job_id =
        || CommandError::Failed { program: "sbatch", stderr: format!("it printed {stdout:?}, not a job id") };
    queue::parse_job_id(&stdout).ok_or_else(no_job_id)
}

/// Lists all jobs of this user, including those that ended recently, in [`SQUEUE_FORMAT`].
pub fn squeue() -> Result<String, CommandError> {
    let user = format!("--user={}", rustix::process::getuid().as_raw());
    let words = ["--noheader", "--states=all", "--array", &user, "--format", SQUEUE_FORMAT];
    run("squeue", &words.map(str::to_owned), "")
}

/// Cancels all jobs of this user with this name.
pub fn scancel_by_name(name: &str) -> Result<(), CommandError> {
    let user = format!("--user={}", rustix::process::getuid().as_raw());
    run("scancel", &["--quiet".to_owned(), user, format!("--name={name}")], "").map(drop)
}

pub fn scancel(jobs: &[u64]) -> Result<(), CommandError> {
    let words: Vec<String> = ["--quiet".to_owned()].into_iter().chain(jobs.iter().map(u64::to_string)).collect();
    run("scancel", &words, "").map(drop)
}

/// Runs a program with `input` on its standard input and returns its standard output.
fn run(program: &'static str, words: &[String], input: &str) -> Result<String, CommandError> {
    let failed = |source| CommandError::Start { program, source };
    let inherited = std::env::vars_os().filter(|(name, _)| {
        let name = name.to_string_lossy();
        INHERITED_VARIABLES.contains(&name.as_ref()) || name.starts_with("SLURM_") || name.starts_with("SBATCH_")
    });
    let mut child = Command::new(program)
        .args(words)
        .env_clear()
        .envs(inherited)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    let process = Pid::from_raw(child.id() as i32).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
    let (done, ended) = mpsc::channel();
    let (input, mut stdin) = (input.to_owned(), child.stdin.take());
    std::thread::spawn(move || {
        if let Some(stdin) = &mut stdin {
            // A program that does not read its input explains itself on standard error.
            let _ = stdin.write_all(input.as_bytes());
        }
        drop(stdin);
        let _ = done.send(child.wait_with_output());
    });
    let output = match ended.recv_timeout(COMMAND_TIMEOUT) {
        Ok(output) => output.map_err(failed)?,
        Err(_) => {
            if let Some(process) = process {
                let _ = pidfd_send_signal(process, Signal::KILL);
            }
            return Err(CommandError::TimedOut { program });
        }
    };
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if !output.status.success() {
        let stderr = text(&output.stderr);
        let lines: Vec<&str> =
            stderr.lines().map(|line| line.trim_start_matches(&format!("{program}: error: "))).collect();
        return Err(CommandError::Failed { program, stderr: lines.join("; ") });
    }
    Ok(text(&output.stdout))
}
