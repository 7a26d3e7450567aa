//! A pseudo-terminal of an SSH session: the master side as async streams, the slave side for the programs.

use std::io;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::task::{Context, Poll};

use rustix::fs::{Mode, OFlags, open};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use tokio::io::{AsyncRead, ReadBuf};
use tokio::net::unix::pipe;

/// Size in characters and pixels, as sent by the client.
/// An open pseudo-terminal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TerminalSize {
    pub columns: u32,
    pub rows: u32,
    pub width: u32,
    pub height: u32,
}

#[derive(Debug)]
pub struct Terminal {
    /// Writes to the programs' input.
    pub input: pipe::Sender,
    pub output: PtyOutput,
    /// Changes the window size.
    pub resizer: PtyResizer,
    /// The slave side.
    pub child_side: OwnedFd,
}

/// Sets the window size of the terminal.
#[derive(Debug)]
pub struct PtyResizer(OwnedFd);

/// The programs' output; ends when the last of them has closed the slave side.
#[derive(Debug)]
pub struct PtyOutput(pipe::Receiver);

impl Terminal {
    pub fn open(size: TerminalSize) -> io::Result<Terminal> {
        let pty = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
        grantpt(&pty)?;
        unlockpt(&pty)?;
        let name = ptsname(&pty, Vec::new())?;
        let child_side = open(name.as_c_str(), OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC, Mode::empty())?;
        rustix::io::ioctl_fionbio(&pty, true)?;
        let resizer = PtyResizer(pty.try_clone()?);
        resizer.resize(size);
        let input = pipe::Sender::from_owned_fd_unchecked(pty.try_clone()?)?;
        let output = PtyOutput(pipe::Receiver::from_owned_fd_unchecked(pty)?);
        Ok(Terminal { input, output, resizer, child_side })
    }
}

impl PtyResizer {
    pub fn resize(&self, size: TerminalSize) {
        let clamp = |n: u32| u16::try_from(n).unwrap_or(u16::MAX);
        let size = Winsize {
            ws_row: clamp(size.rows),
            ws_col: clamp(size.columns),
            ws_xpixel: clamp(size.width),
            ws_ypixel: clamp(size.height),
        };
        // A wrong size is harmless.
        let _ = tcsetwinsize(&self.0, size);
    }
}

impl AsyncRead for PtyOutput {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match Pin::new(&mut self.get_mut().0).poll_read(cx, buf) {
            // EIO means that no program has the slave side open.
            Poll::Ready(Err(error)) if error.raw_os_error() == Some(rustix::io::Errno::IO.raw_os_error()) => {
                Poll::Ready(Ok(()))
            }
            other => other,
        }
    }
}
