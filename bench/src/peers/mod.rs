//! Peer engines set up for one benchmark run: installed when missing, started on this machine only, ended by process id. A peer
//! that cannot be set up reports the reason; its numbers are never guessed.

pub mod docker;
pub mod hyperqueue;
pub mod mpi;
pub mod nginx;
pub mod slurm;
pub mod sshfs;
pub mod tensorflow;
pub mod torch;
pub mod upstream;

use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process, set_parent_process_death_signal};

/// Timeout for the orderly shutdown of a daemon.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);

/// A daemon of a peer, in the foreground; stopped on drop, and when the benchmark dies.
pub struct Daemon(Child);

impl Daemon {
    pub fn start(command: &mut Command) -> Result<Self> {
        let name = command.get_program().to_string_lossy().into_owned();
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        // SAFETY: runs between fork and exec and makes one async-signal-safe system call.
        unsafe {
            command.pre_exec(|| Ok(set_parent_process_death_signal(Some(Signal::TERM))?));
        }
        Ok(Self(command.spawn().with_context(|| format!("cannot start {name}"))?))
    }

    pub fn id(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let pid = i32::try_from(self.0.id()).ok().and_then(Pid::from_raw).expect("a started process has a valid id");
        let _ = kill_process(pid, Signal::TERM);
        let deadline = Instant::now() + STOP_TIMEOUT;
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

/// Runs a command to its end and returns its output.
pub fn output_of(command: &mut Command) -> Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("cannot start {name}"))?;
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        bail!("{name} exited with {}: {}", output.status, stderr.lines().last().unwrap_or_default());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Output of a command, and whether it finished within its time limit.
#[derive(Debug)]
pub struct CommandOutput {
    pub text: String,
    /// False after a timeout.
    pub complete: bool,
}

/// Like `output_of`, but the command is killed on timeout, and when the benchmark dies.
pub fn output_within(command: &mut Command, limit: Duration) -> Result<CommandOutput> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = tempfile::tempdir()?;
    let (out, err) = (output.path().join("out"), output.path().join("err"));
    command.stdin(Stdio::null()).stdout(File::create(&out)?).stderr(File::create(&err)?);
    // SAFETY: runs between fork and exec and makes one async-signal-safe system call.
    unsafe {
        command.pre_exec(|| Ok(set_parent_process_death_signal(Some(Signal::TERM))?));
    }
    let mut daemon = Daemon(command.spawn().with_context(|| format!("cannot start {name}"))?);
    let deadline = Instant::now() + limit;
    let status = loop {
        if let Some(status) = daemon.0.try_wait()? {
            break status;
        }
        if Instant::now() > deadline {
            drop(daemon);
            return Ok(CommandOutput { text: fs::read_to_string(&out)?, complete: false });
        }
        std::thread::park_timeout(Duration::from_millis(2));
    };
    if !status.success() {
        let printed = fs::read_to_string(&err)? + &fs::read_to_string(&out)?;
        bail!("{name} exited with {status}: {}", last_lines(&printed));
    }
    Ok(CommandOutput { text: fs::read_to_string(&out)?, complete: true })
}

/// The end of the output before a failure, on one line.
pub fn last_lines(output: &str) -> String {
    let mut lines: Vec<&str> =
        output.lines().map(str::trim).filter(|line| line.chars().any(char::is_alphanumeric)).collect();
    lines.split_off(lines.len().saturating_sub(3)).join(" / ")
}

/// Installs Debian's packages, which needs root.
pub fn install(packages: &str) -> Result<()> {
    let apt = "apt-get install -y -qq --no-install-recommends -o DPkg::Lock::Timeout=120";
    let install_hint = || format!("cannot install the packages; install them with: apt-get install {packages}");
    ensure!(rustix::process::geteuid().is_root(), install_hint());
    println!("installing {packages}");
    let mut command = Command::new("sh");
    command.arg("-c").arg(format!("apt-get update -qq && {apt} {packages}"));
    output_of(command.env("DEBIAN_FRONTEND", "noninteractive")).with_context(install_hint).map(|_| ())
}

/// Path of an executable, searched in `PATH` and the system's administration directories.
pub fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let directories = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]);
    directories.map(|directory| directory.join(program)).find(|file| file.is_file())
}

/// Number of files in a directory.
pub fn count_files(directory: &std::path::Path) -> Result<usize> {
    Ok(std::fs::read_dir(directory)?.count())
}

/// This user's cache directory.
pub fn cache_dir() -> Result<PathBuf> {
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let cache_dir = variable("XDG_CACHE_HOME").or_else(|| Some(variable("HOME")?.join(".cache")));
    Ok(cache_dir.context("HOME is not set")?.join("corro-bench"))
}
