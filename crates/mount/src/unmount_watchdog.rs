//! A small process beside each mount process, that outlives it by a moment: when that is gone, however it went, a mount that nobody serves is
//! taken away. Without it every access would say "Transport endpoint is not connected" until somebody unmounts by hand.

use std::io::{self, BufRead, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};

use crate::mountinfo;

/// The hidden word that the program must hand over to [`run`].
pub const SUBCOMMAND: &str = "mount-watch";

/// Held by the mount process: the end of this pipe is its end.
#[derive(Debug)]
pub struct UnmountWatchdog {
    pipe: Option<ChildStdin>,
    child: Child,
}

impl UnmountWatchdog {
    /// Before the mount is made, so that there is no moment without a watcher.
    pub fn start(program: &Path, mount_point: &Path) -> io::Result<UnmountWatchdog> {
        let mut command = Command::new(program);
        command.arg(SUBCOMMAND).arg(mount_point).env_clear().current_dir("/");
        command.envs(std::env::var_os("PATH").map(|path| ("PATH", path)));
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        let pipe = child.stdin.take();
        Ok(UnmountWatchdog { pipe, child })
    }

    /// Which mount it is about.
    pub fn set_device(&mut self, device: &str) -> io::Result<()> {
        match &mut self.pipe {
            Some(pipe) => writeln!(pipe, "{device}"),
            None => Ok(()),
        }
    }

    /// Waits until it has seen to the rest.
    pub fn finish(mut self) {
        drop(self.pipe.take());
        let _ = self.child.wait();
    }
}

/// The life of the watcher. `place` is where the mount is.
pub fn run(mount_point: &Path) {
    // A Ctrl-C for the mount process, or the end of its terminal, is not for us.
    let _ = rustix::process::setsid();
    let mut device = None;
    for line in io::stdin().lock().lines().map_while(Result::ok) {
        device = Some(line);
    }
    let found = mountinfo::find(mount_point).ok().flatten();
    // One that somebody made there since is not ours to take away. Killed before it could tell, the mount process had just made it.
    let is_left = found.is_some_and(|mount| match &device {
        Some(device) => mount.device == *device,
        None => is_disconnected(mount_point),
    });
    if is_left {
        let _ = mountinfo::unmount(mount_point, true);
    }
}

/// Nobody serves it.
fn is_disconnected(mount_point: &Path) -> bool {
    std::fs::metadata(mount_point).is_err_and(|error| error.raw_os_error() == Some(libc::ENOTCONN))
}
