//! A terminal for someone who logs in: our side of it as streams, the other side for the programs. Entered by `session`.

use std::io;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::task::{Context, Poll};

use rustix::fs::{Mode, OFlags, open};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use tokio::io::{AsyncRead, ReadBuf};
use tokio::net::unix::pipe;

/// Characters and pixels, as a client tells them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Size {
    pub columns: u32,
    pub rows: u32,
    pub width: u32,
    pub height: u32,
}

#[derive(Debug)]
pub struct Terminal {
    /// What is typed.
    pub keyboard: pipe::Sender,
    pub screen: Screen,
    /// Changes its size.
    pub frame: Frame,
    /// For the programs.
    pub programs: OwnedFd,
}

#[derive(Debug)]
pub struct Frame(OwnedFd);

/// What the programs show; ends when the last of them has closed its side.
#[derive(Debug)]
pub struct Screen(pipe::Receiver);

impl Terminal {
    pub fn open(size: Size) -> io::Result<Terminal> {
        let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
        grantpt(&ours)?;
        unlockpt(&ours)?;
        let name = ptsname(&ours, Vec::new())?;
        let programs = open(name.as_c_str(), OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC, Mode::empty())?;
        rustix::io::ioctl_fionbio(&ours, true)?;
        let frame = Frame(ours.try_clone()?);
        frame.resize(size);
        let keyboard = pipe::Sender::from_owned_fd_unchecked(ours.try_clone()?)?;
        let screen = Screen(pipe::Receiver::from_owned_fd_unchecked(ours)?);
        Ok(Terminal { keyboard, screen, frame, programs })
    }
}

impl Frame {
    pub fn resize(&self, size: Size) {
        let cut = |n: u32| u16::try_from(n).unwrap_or(u16::MAX);
        let size = Winsize {
            ws_row: cut(size.rows),
            ws_col: cut(size.columns),
            ws_xpixel: cut(size.width),
            ws_ypixel: cut(size.height),
        };
        // A terminal of the wrong size still works.
        let _ = tcsetwinsize(&self.0, size);
    }
}

impl AsyncRead for Screen {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match Pin::new(&mut self.get_mut().0).poll_read(cx, buf) {
            // The kernel's way to say that no program holds the terminal any more.
            Poll::Ready(Err(error)) if error.raw_os_error() == Some(rustix::io::Errno::IO.raw_os_error()) => {
                Poll::Ready(Ok(()))
            }
            other => other,
        }
    }
}
