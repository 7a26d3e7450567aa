//! Our terminal while a process inside a container has one of its own: every key goes there as it is typed, and the size with it.
//! Entered by `relay`, for whoever stands beside a job.

use std::io::{self, IsTerminal};
use std::os::fd::OwnedFd;

use bollard::Docker;
use bollard::query_parameters::ResizeExecOptions;
use rustix::termios::{OptionalActions, tcgetattr, tcgetwinsize, tcsetattr};

pub fn is_terminal() -> bool {
    io::stdin().is_terminal()
}

/// Passes on every key, Ctrl-C too; it is the inner terminal that knows what they mean. Nobody uses ours afterwards.
pub fn make_raw(terminal: &OwnedFd) -> io::Result<()> {
    let mut raw = tcgetattr(terminal)?;
    raw.make_raw();
    tcsetattr(terminal, OptionalActions::Now, &raw)?;
    Ok(rustix::io::ioctl_fionbio(terminal, true)?)
}

/// Makes the inner one as large as ours. One that has ended has no size.
pub async fn resize(docker: &Docker, exec: &str) {
    if let Ok(size) = tcgetwinsize(io::stdin())
        && size.ws_col > 0
        && size.ws_row > 0
    {
        let size = ResizeExecOptions { h: size.ws_row.into(), w: size.ws_col.into() };
        let _ = docker.resize_exec(exec, size).await;
    }
}
