//! The relay's own terminal while the process inside the container has another: raw mode and window size.

use std::io::{self, IsTerminal};
use std::os::fd::OwnedFd;

use bollard::Docker;
use bollard::query_parameters::ResizeExecOptions;
use rustix::termios::{OptionalActions, tcgetattr, tcgetwinsize, tcsetattr};

/// Whether standard input is a terminal.
pub fn is_terminal() -> bool {
    io::stdin().is_terminal()
}

/// Puts the terminal into raw mode, so that every key including Ctrl-C goes to the inner terminal. Not restored:
/// nothing uses it afterwards.
pub fn make_raw(terminal: &OwnedFd) -> io::Result<()> {
    let mut raw = tcgetattr(terminal)?;
    raw.make_raw();
    tcsetattr(terminal, OptionalActions::Now, &raw)?;
    Ok(rustix::io::ioctl_fionbio(terminal, true)?)
}

/// Copies the window size to the inner terminal. Fails harmlessly if the process has ended.
pub async fn resize(docker: &Docker, exec: &str) {
    if let Ok(size) = tcgetwinsize(io::stdin())
        && size.ws_col > 0
        && size.ws_row > 0
    {
        let size = ResizeExecOptions { h: size.ws_row.into(), w: size.ws_col.into() };
        let _ = docker.resize_exec(exec, size).await;
    }
}
