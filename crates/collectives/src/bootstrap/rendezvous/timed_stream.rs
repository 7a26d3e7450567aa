//! A TCP or Unix stream whose reads and writes end at a deadline. The remaining time is set before every call, so a peer that sends a
//! byte now and then cannot extend it.

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

    /// Shuts down both directions, which ends blocked reads and writes of other threads.
    pub fn shut_down(&self) {
        // Fails if the peer has closed the connection already.
        let _ = match self {
            Stream::Tcp(stream) => stream.shutdown(Shutdown::Both),
            Stream::Unix(stream) => stream.shutdown(Shutdown::Both),
        };
    }

    /// Whether the peer has closed its end and nothing is left to read.
    pub fn is_closed_by_peer(&self) -> bool {
        use rustix::net::{RecvFlags, recv};
        match recv(self.as_fd(), &mut [0u8; 1], RecvFlags::PEEK | RecvFlags::DONTWAIT) {
            Ok((_, n_bytes)) => n_bytes == 0,
            Err(error) => error != rustix::io::Errno::AGAIN,
        }
    }

    /// Whether the other end of a Unix socket is a process of the same user or of root. True for TCP, where the kernel cannot tell.
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
        let remaining = self.deadline.saturating_duration_since(Instant::now());
        // The kernel takes zero, and anything it rounds down to zero, as no limit.
        if remaining < Duration::from_micros(10) {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.stream.set_timeouts(remaining)
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

/// The kernel returns EWOULDBLOCK when a socket timeout expires.
fn timed_out(error: io::Error) -> io::Error {
    if error.kind() == io::ErrorKind::WouldBlock { io::ErrorKind::TimedOut.into() } else { error }
}
