//! Probes which kinds of namespaces this user can create, by creating one of each in a short-lived process.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    User,
    Mount,
    Pid,
    Ipc,
}

impl Kind {
    pub const ALL: [Kind; 4] = [Kind::User, Kind::Mount, Kind::Pid, Kind::Ipc];

    fn flag(self) -> libc::c_int {
        match self {
            Kind::User => 0,
            Kind::Mount => libc::CLONE_NEWNS,
            Kind::Pid => libc::CLONE_NEWPID,
            Kind::Ipc => libc::CLONE_NEWIPC,
        }
    }
}

/// Creates a namespace of this kind within a user namespace, as for jobs. It ends at once. Blocks for milliseconds.
pub fn probe_kind(kind: Kind) -> io::Result<()> {
    let flags = libc::CLONE_NEWUSER | kind.flag();
    let mut command = Command::new("/proc/self/exe");
    command.arg("--version").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    // SAFETY: the closure runs between fork and exec and makes one system call, which is async-signal-safe.
    unsafe {
        command.pre_exec(move || match libc::unshare(flags) {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        });
    }
    command.status().map(drop)
}
