//! A small process beside each mount process that outlives it for a moment: when the mount process ends in any way, it
//! unmounts what is no longer served. Otherwise every access would fail with "Transport endpoint is not connected"
//! until it is unmounted by hand.

use std::io::{self, BufRead, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};

use crate::mountinfo;

/// Hidden subcommand, to be handled by [`run`].
pub const SUBCOMMAND: &str = "mount-watch";

/// Handle of the watchdog in the mount process. The end of its pipe is the end of the mount process.
#[derive(Debug)]
pub struct UnmountWatchdog {
    pipe: Option<ChildStdin>,
    child: Child,
}

impl UnmountWatchdog {
    /// Starts the watchdog; called before mounting, so that the mount is never without one.
    pub fn start(program: &Path, mount_point: &Path) -> io::Result<UnmountWatchdog> {
        let mut command = Command::new(program);
        command.arg(SUBCOMMAND).arg(mount_point).env_clear().current_dir("/");
        command.envs(std::env::var_os("PATH").map(|path| ("PATH", path)));
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        let pipe = child.stdin.take();
        Ok(UnmountWatchdog { pipe, child })
    }

    /// Passes on the device number of the mount.
    pub fn set_device(&mut self, device: &str) -> io::Result<()> {
        match &mut self.pipe {
            Some(pipe) => writeln!(pipe, "{device}"),
            None => Ok(()),
        }
    }

    /// Closes the pipe and waits until the watchdog has unmounted.
    pub fn finish(mut self) {
        drop(self.pipe.take());
        let _ = self.child.wait();
    }
}

/// Main function of the watchdog.
pub fn run(mount_point: &Path) {
    // Detached from the terminal: Ctrl-C is for the mount process.
    let _ = rustix::process::setsid();
    let mut device = None;
    for line in io::stdin().lock().lines().map_while(Result::ok) {
        device = Some(line);
    }
    let found = mountinfo::find(mount_point).ok().flatten();
    // A mount made there since by another process is left alone. Without a device number the mount process was killed
    // just after mounting.
    let is_left = found.is_some_and(|mount| match &device {
        Some(device) => mount.device == *device,
        None => is_disconnected(mount_point),
    });
    if is_left {
        let _ = mountinfo::unmount(mount_point, true);
    }
}

/// Whether no process serves the mount.
fn is_disconnected(mount_point: &Path) -> bool {
    std::fs::metadata(mount_point).is_err_and(|error| error.raw_os_error() == Some(libc::ENOTCONN))
}
