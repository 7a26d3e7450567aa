//! Other engines that do what Corro does, set up for one run of a benchmark: installed when they are not there, started on
//! this machine only, ended by the ids of their processes. Entered by `jobs`. A peer that cannot be set up says why; its
//! figures are never guessed.

pub mod hyperqueue;
pub mod slurm;

use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process, set_parent_process_death_signal};

/// For a daemon to end in order.
const END_WITHIN: Duration = Duration::from_secs(5);

/// A daemon of a peer, in the foreground; ended when it is dropped, and when the benchmark dies.
pub struct Daemon(Child);

impl Daemon {
    pub fn start(command: &mut Command) -> Result<Self> {
        let name = command.get_program().to_string_lossy().into_owned();
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        // SAFETY: runs between fork and exec and makes one system call.
        unsafe {
            command.pre_exec(|| Ok(set_parent_process_death_signal(Some(Signal::TERM))?));
        }
        Ok(Self(command.spawn().with_context(|| format!("cannot start {name}"))?))
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let pid = i32::try_from(self.0.id()).ok().and_then(Pid::from_raw).expect("a started process has an id");
        let _ = kill_process(pid, Signal::TERM);
        let deadline = Instant::now() + END_WITHIN;
        while matches!(self.0.try_wait(), Ok(None)) {
            if Instant::now() > deadline {
                let _ = self.0.kill();
                let _ = self.0.wait();
                return;
            }
            std::thread::park_timeout(Duration::from_millis(5));
        }
    }
}

/// Runs a command to its end and gives what it printed.
pub fn output_of(command: &mut Command) -> Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("cannot start {name}"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("{name} ended with {}: {}", output.status, said.lines().last().unwrap_or_default());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// How many files are in a directory.
pub fn count_files(directory: &std::path::Path) -> Result<usize> {
    Ok(std::fs::read_dir(directory)?.count())
}
