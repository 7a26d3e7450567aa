//! The mount process: mounts one share, reports the result and serves the mount until it is unmounted. Started with a
//! hidden subcommand; settings and credentials come over its standard input, the result over its standard output.

use std::io::{self, BufRead, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use corro_base::error_chain;
use fuser::{Config, MountOption, Session, SessionACL};
use thiserror::Error;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Notify;

use crate::fuse_fs::{FuseFs, OwnerAndModes};
use crate::mountinfo;
use crate::retry::RetryPolicy;
use crate::service::{RenewableClient, Share};
use crate::settings::{Login, Settings};
use crate::unmount_watchdog::UnmountWatchdog;
use crate::volume::Volume;

/// Hidden subcommand, to be handled by [`serve`].
pub const SUBCOMMAND: &str = "mount-serve";

/// Number of kernel requests handled concurrently.
const N_THREADS: usize = 8;
/// How long programs that use the mount may delay its end.
const UNMOUNT_GRACE: Duration = Duration::from_secs(10);
const READY_LINE: &str = "mounted";
/// The kernel's read-ahead for sequential reads, in KiB; its default is 128.
const READ_AHEAD_KIB: &str = "4096";

/// Why a share could not be mounted.
#[derive(Debug, Error)]
pub enum MountError {
    #[error("{} does not exist", .0.display())]
    Missing(PathBuf),
    #[error("{} is not a directory", .0.display())]
    NotADirectory(PathBuf),
    #[error("a share is mounted at {} already", .0.display())]
    Busy(PathBuf),
    #[error("this machine has no /dev/fuse: its kernel needs FUSE, and a container must be given the device")]
    NoFuse,
    #[error("permission denied for /dev/fuse: run 'chmod 666 /dev/fuse' as root, as udev does, or mount as root")]
    FuseDenied,
    #[error("fusermount3 not found, which users other than root need for mounting: install the package fuse3")]
    NoFusermount,
    #[error("{0}")]
    Share(String),
    #[error("cannot mount at {}: {why}", mount_point.display())]
    Mount { mount_point: PathBuf, why: String },
    #[error("the mount process cannot be started")]
    Start(#[source] io::Error),
    #[error("{0}")]
    Reported(String),
}

/// Checks everything that needs no server, and returns the directory's canonical path.
pub fn check_mount_point(directory: &Path) -> Result<PathBuf, MountError> {
    let mount_point = match directory.canonicalize() {
        Ok(mount_point) => mount_point,
        Err(error) if error.raw_os_error() == Some(libc::ENOTCONN) => {
            return Err(MountError::Busy(directory.to_owned()));
        }
        Err(_) => return Err(MountError::Missing(directory.to_owned())),
    };
    if !mount_point.is_dir() {
        return Err(MountError::NotADirectory(mount_point));
    }
    if mountinfo::find(&mount_point).ok().flatten().is_some() {
        return Err(MountError::Busy(mount_point));
    }
    if !Path::new("/dev/fuse").exists() {
        return Err(MountError::NoFuse);
    }
    let is_root = rustix::process::geteuid().is_root();
    let fusermount = || Command::new("fusermount3").arg("-V").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if !is_root && fusermount().is_err() {
        return Err(MountError::NoFusermount);
    }
    let opened = std::fs::File::options().read(true).write(true).open("/dev/fuse");
    if opened.is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied) {
        return Err(MountError::FuseDenied);
    }
    Ok(mount_point)
}

/// A running mount process.
#[derive(Debug)]
pub struct MountProcess {
    pub child: Child,
    /// Pipe whose end unmounts, if the settings ask for one.
    pub lifeline: Option<ChildStdin>,
}

impl MountProcess {
    /// Passes on a new credential before the old one expires.
    pub fn renew(&mut self, login: &Login) -> io::Result<()> {
        let line = serde_json::to_string(login)?;
        let lifeline = self.lifeline.as_mut().ok_or(io::ErrorKind::NotConnected)?;
        writeln!(lifeline, "{line}")
    }
}

/// Starts the mount process and waits until the share is mounted. Blocks.
pub fn start(program: &Path, settings: &Settings, stderr: Stdio) -> Result<MountProcess, MountError> {
    let mut command = Command::new(program);
    command.arg(SUBCOMMAND).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(stderr).current_dir("/");
    // Other variables may contain secrets and are not passed on.
    let inherited = ["PATH", "CORRO_LOG"].into_iter().filter_map(|name| Some((name, std::env::var_os(name)?)));
    command.env_clear().envs(inherited);
    let mut child = command.spawn().map_err(MountError::Start)?;
    let mut input = child.stdin.take().expect("piped");
    let line = serde_json::to_string(settings).map_err(|error| MountError::Start(error.into()))?;
    // If the process ended before reading, its output below says why.
    let _ = writeln!(input, "{line}");
    let mut output = String::new();
    let _ = io::BufReader::new(child.stdout.take().expect("piped")).read_to_string(&mut output);
    if output.trim() == READY_LINE {
        return Ok(MountProcess { child, lifeline: settings.lifeline.then_some(input) });
    }
    let status = child.wait();
    Err(MountError::Reported(match output.trim() {
        "" => format!(
            "the mount process ended without a message ({})",
            status.map_or_else(|e| e.to_string(), |s| s.to_string())
        ),
        output => output.to_owned(),
    }))
}

/// Main function of the mount process; returns the exit code.
pub fn serve(program: &Path) -> u8 {
    // Detached from the terminal: Ctrl-C is for the caller.
    let _ = rustix::process::setsid();
    let mut line = String::new();
    if io::stdin().lock().read_line(&mut line).is_err() {
        return 1;
    }
    let settings: Settings = match serde_json::from_str(&line) {
        Ok(settings) => settings,
        Err(error) => {
            let _ = writeln!(io::stdout(), "invalid settings for the mount process: {error}");
            return 2;
        }
    };
    let ready = || {
        let mut stdout = io::stdout();
        let _ = writeln!(stdout, "{READY_LINE}").and_then(|()| stdout.flush());
        // Closes stdout, so that the caller can stop reading.
        if let Ok(null) = std::fs::File::options().write(true).open("/dev/null") {
            let _ = rustix::stdio::dup2_stdout(&null);
        }
    };
    match run(program, &settings, ready) {
        Ok(()) => 0,
        Err(error) => {
            let _ = writeln!(io::stdout(), "{}", error_chain::join(&error));
            1
        }
    }
}

/// Mounts, calls `ready`, and serves until unmounted, stopped by a signal, or the lifeline is closed. Creates its own
/// runtime.
pub fn run(program: &Path, settings: &Settings, ready: impl FnOnce()) -> Result<(), MountError> {
    let mount_point = check_mount_point(&settings.directory)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_all().build();
    let runtime = runtime.map_err(MountError::Start)?;
    let service = settings.service().map_err(|error| MountError::Share(error_chain::join(&error)))?;
    let stat = runtime.block_on(service.target_state(&settings.share, settings.inside.trim_matches('/')));
    stat.map_err(|error| {
        MountError::Share(format!("cannot use {}: {}", settings.description(), error_chain::join(&error)))
    })?;
    let retry = RetryPolicy::new(settings.deadline(), settings.description());
    let client = Arc::new(RenewableClient::new(service, settings.lifeline));
    let share = Share::new(client.clone(), &settings.share, &settings.inside);
    let volume = Volume::new(share, retry, runtime.handle().clone());
    let volume = Arc::new(if settings.write_cache { volume.with_write_cache() } else { volume });
    let owner_and_modes = OwnerAndModes {
        file_mode: settings.file_mode & 0o777,
        directory_mode: settings.directory_mode & 0o777,
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
    };
    let notifier = Arc::new(OnceLock::new());
    let fuse_fs = FuseFs::new(volume.clone(), runtime.handle().clone(), owner_and_modes, notifier.clone());
    let mut watchdog = UnmountWatchdog::start(program, &mount_point).map_err(MountError::Start)?;
    let failed =
        |error: io::Error| MountError::Mount { mount_point: mount_point.clone(), why: error_chain::join(&error) };
    let session = Session::new(fuse_fs, &mount_point, &config(settings)).map_err(failed)?;
    let _ = notifier.set(session.notifier());
    if let Ok(Some(mount)) = mountinfo::find(&mount_point) {
        let _ = watchdog.set_device(&mount.device);
        // Only root may; for others the default stays.
        let _ = std::fs::write(format!("/sys/class/bdi/{}/read_ahead_kb", mount.device), READ_AHEAD_KIB);
    }
    let session = session.spawn().map_err(failed)?;
    ready();
    let lifeline_closed = Arc::new(Notify::new());
    if settings.lifeline {
        let lifeline_closed = lifeline_closed.clone();
        std::thread::spawn(move || {
            for line in io::stdin().lock().lines().map_while(Result::ok) {
                let renewed = serde_json::from_str(&line).map(|login| client.renew(login));
                if !matches!(renewed, Ok(Ok(()))) {
                    tracing::error!("the new credential of the mount is invalid; the old one stays in use");
                }
            }
            lifeline_closed.notify_one();
        });
    }
    let must_unmount = runtime.block_on(async {
        let mut terminate = signal(SignalKind::terminate()).map_err(MountError::Start)?;
        let mut interrupt = signal(SignalKind::interrupt()).map_err(MountError::Start)?;
        let mut ticks = tokio::time::interval(Duration::from_millis(100));
        loop {
            tokio::select! {
                _ = terminate.recv() => return Ok(true),
                _ = interrupt.recv() => return Ok(true),
                () = lifeline_closed.notified() => return Ok(true),
                _ = ticks.tick() => if session.guard.is_finished() { return Ok(false) },
            }
        }
    })?;
    if must_unmount {
        let _ = mountinfo::unmount(&mount_point, true);
        // Programs with open files may close them within the grace.
        runtime.block_on(async {
            let ended = async {
                while !session.guard.is_finished() {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            };
            let _ = tokio::time::timeout(UNMOUNT_GRACE, ended).await;
            let _ = tokio::time::timeout(UNMOUNT_GRACE, volume.upload_all()).await;
        });
    }
    if session.guard.is_finished() {
        let _ = session.join();
    } else {
        // Dropping the session would wait for programs with open files.
        std::mem::forget(session);
    }
    watchdog.finish();
    runtime.shutdown_timeout(Duration::from_secs(1));
    Ok(())
}

fn config(settings: &Settings) -> Config {
    let mut config = Config::default();
    config.mount_options = vec![
        MountOption::FSName(settings.source_name()),
        MountOption::DefaultPermissions,
        MountOption::NoAtime,
        if settings.read_only { MountOption::RO } else { MountOption::RW },
    ];
    // In writeback mode the meaning of an `open` depends on whether the file is still open. The kernel sends the
    // release after the program has gone on, so the next `open` must not overtake it: requests are handled one by one.
    config.n_threads = Some(if settings.write_cache { 1 } else { N_THREADS });
    // Jobs may run as other users than the agent; only root may allow other users.
    let is_root = rustix::process::geteuid().is_root();
    config.acl = if is_root { SessionACL::All } else { SessionACL::Owner };
    config
}
