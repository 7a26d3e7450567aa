//! A connection to another process, over TCP or a Unix socket, whose every read and write ends at a deadline. Entered by the
//! rooms of [`super`]. Never trusts a single time limit per call: a peer that sends a byte now and then would stretch it.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use crate::close_on_fork::CloseOnFork;
use crate::peer_process;

#[derive(Debug)]
pub enum Stream {
    Tcp(CloseOnFork<TcpStream>),
    Unix(CloseOnFork<UnixStream>),
}

impl From<TcpStream> for Stream {
    fn from(stream: TcpStream) -> Stream {
        Stream::Tcp(CloseOnFork::new(stream))
    }
}

impl From<UnixStream> for Stream {
    fn from(stream: UnixStream) -> Stream {
        Stream::Unix(CloseOnFork::new(stream))
    }
}

impl Stream {
    pub fn until(&self, deadline: Instant) -> TimedStream<'_> {
        TimedStream { stream: self, deadline }
    }

    pub fn try_clone(&self) -> io::Result<Stream> {
        Ok(match self {
            Stream::Tcp(stream) => stream.try_clone()?.into(),
            Stream::Unix(stream) => stream.try_clone()?.into(),
        })
    }

    /// Ends whatever waits on it, also in other threads.
    pub fn shut_down(&self) {
        // It fails when the peer was faster.
        let _ = match self {
            Stream::Tcp(stream) => stream.shutdown(Shutdown::Both),
            Stream::Unix(stream) => stream.shutdown(Shutdown::Both),
        };
    }

    /// Whether the peer has closed its end and left nothing to read.
    pub fn is_closed_by_peer(&self) -> bool {
        use rustix::net::{RecvFlags, recv};
        match recv(self.as_fd(), &mut [0u8; 1], RecvFlags::PEEK | RecvFlags::DONTWAIT) {
            Ok((_, n_bytes)) => n_bytes == 0,
            Err(error) => error != rustix::io::Errno::AGAIN,
        }
    }

    /// Whether the other end is a process of the same user, as far as the kernel can tell; root may be anyone.
    pub fn is_same_user(&self) -> bool {
        let Stream::Unix(stream) = self else { return true };
        let own = rustix::process::geteuid().as_raw();
        peer_process::credentials(stream).is_some_and(|peer| peer.uid == own || peer.uid == 0)
    }

    fn set_timeouts(&self, timeout: Duration) -> io::Result<()> {
        match self {
            Stream::Tcp(stream) => {
                stream.set_read_timeout(Some(timeout))?;
                stream.set_write_timeout(Some(timeout))
            }
            Stream::Unix(stream) => {
                stream.set_read_timeout(Some(timeout))?;
                stream.set_write_timeout(Some(timeout))
            }
        }
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Stream::Tcp(stream) => stream.as_fd(),
            Stream::Unix(stream) => stream.as_fd(),
        }
    }
}

/// A stream with a deadline.
#[derive(Debug)]
pub struct TimedStream<'a> {
    stream: &'a Stream,
    deadline: Instant,
}

impl TimedStream<'_> {
    fn arm(&self) -> io::Result<()> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        // Zero would mean "for ever" to the kernel, as would anything it rounds down to it.
        if left < Duration::from_micros(10) {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.stream.set_timeouts(left)
    }
}

impl Read for TimedStream<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.arm()?;
        let read = match self.stream {
            Stream::Tcp(stream) => (&**stream).read(buffer),
            Stream::Unix(stream) => (&**stream).read(buffer),
        };
        read.map_err(timed_out)
    }
}

impl Write for TimedStream<'_> {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        self.arm()?;
        let written = match self.stream {
            Stream::Tcp(stream) => (&**stream).write(buffer),
            Stream::Unix(stream) => (&**stream).write(buffer),
        };
        written.map_err(timed_out)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The kernel says "would block" when a time limit is over.
fn timed_out(error: io::Error) -> io::Error {
    if error.kind() == io::ErrorKind::WouldBlock { io::ErrorKind::TimedOut.into() } else { error }
}
