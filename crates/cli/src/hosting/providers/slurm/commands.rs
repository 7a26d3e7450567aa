//! Runs Slurm's own commands, as the user who runs the server. Each has a deadline: they wait for long when the controller
//! does not answer.

use std::io::{self, Write};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use thiserror::Error;

use super::queue::{self, FORMAT};

const DEADLINE: Duration = Duration::from_secs(30);

/// What an allocation takes of the server's environment, beside Slurm's own variables. Slurm would otherwise hand on all
/// of it, or start a login shell for another, which takes seconds.
const VARIABLES: [&str; 9] =
    ["PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "CORRO_LOG", "CORRO_MPIRUN", "DOCKER_HOST"];

#[derive(Debug, Error)]
pub enum CommandError {
    #[error("cannot run {program}")]
    Start { program: &'static str, source: io::Error },
    #[error("{program} did not end within {} s", DEADLINE.as_secs())]
    Deadline { program: &'static str },
    #[error("{program} refused: {said}")]
    Refused { program: &'static str, said: String },
}

/// Hands over an allocation's script; gives its number.
pub fn sbatch(options: &[String], script: &str) -> Result<u64, CommandError> {
    let said = run("sbatch", options, script)?;
    let nonsense = || CommandError::Refused { program: "sbatch", said: format!("it printed {said:?}, not a number") };
    queue::submitted(&said).ok_or_else(nonsense)
}

/// All jobs of this user, those that ended lately among them.
pub fn squeue() -> Result<String, CommandError> {
    let user = format!("--user={}", rustix::process::getuid().as_raw());
    let words = ["--noheader", "--states=all", "--array", &user, "--format", FORMAT];
    run("squeue", &words.map(str::to_owned), "")
}

pub fn scancel_named(name: &str) -> Result<(), CommandError> {
    let user = format!("--user={}", rustix::process::getuid().as_raw());
    run("scancel", &["--quiet".to_owned(), user, format!("--name={name}")], "").map(drop)
}

pub fn scancel(jobs: &[u64]) -> Result<(), CommandError> {
    let words: Vec<String> = ["--quiet".to_owned()].into_iter().chain(jobs.iter().map(u64::to_string)).collect();
    run("scancel", &words, "").map(drop)
}

fn run(program: &'static str, words: &[String], input: &str) -> Result<String, CommandError> {
    let failed = |source| CommandError::Start { program, source };
    let kept = std::env::vars_os().filter(|(name, _)| {
        let name = name.to_string_lossy();
        VARIABLES.contains(&name.as_ref()) || name.starts_with("SLURM_") || name.starts_with("SBATCH_")
    });
    let mut child = Command::new(program)
        .args(words)
        .env_clear()
        .envs(kept)
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
            // One that does not listen says why on its standard error.
            let _ = stdin.write_all(input.as_bytes());
        }
        drop(stdin);
        let _ = done.send(child.wait_with_output());
    });
    let output = match ended.recv_timeout(DEADLINE) {
        Ok(output) => output.map_err(failed)?,
        Err(_) => {
            if let Some(process) = process {
                let _ = pidfd_send_signal(process, Signal::KILL);
            }
            return Err(CommandError::Deadline { program });
        }
    };
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if !output.status.success() {
        let said = text(&output.stderr);
        let said: Vec<&str> =
            said.lines().map(|line| line.trim_start_matches(&format!("{program}: error: "))).collect();
        return Err(CommandError::Refused { program, said: said.join("; ") });
    }
    Ok(text(&output.stdout))
}
