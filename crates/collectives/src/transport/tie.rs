//! Control connection between two ranks. End of file without a BYE frame means that the peer died. Read by the monitor, and by the engine
//! while it is awake.

use std::io::{self, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Mutex, PoisonError};

use rustix::net::{RecvFlags, recv};

use crate::fork::ForkClosed;
use crate::transport::{peer, tcp};

pub enum Wire {
    Unix(ForkClosed<UnixStream>),
    Tcp(ForkClosed<TcpStream>),
}

/// One socket and the rank at its other end.
pub struct Tie {
    pub rank: usize,
    wire: Wire,
    /// Of the peer's process, where this kernel shows it.
    pidfd: Option<ForkClosed<OwnedFd>>,
    writing: Mutex<()>,
}

/// What is said: how many bytes follow, what they are, and those bytes.
pub const BYE: u8 = 1;
/// A rank.
pub const DIED: u8 = 2;
/// A rank.
pub const LEFT: u8 = 3;
pub const MESSAGE: u8 = 4;
/// A rank, and who cannot reach it any more.
pub const LOST: u8 = 5;
/// To be answered: somebody wants to know whether this process still runs.
pub const PING: u8 = 6;
pub const PONG: u8 = 7;
/// More is no message of ours.
const LONGEST: usize = 256 << 20;

/// Why there is nothing more to hear.
pub enum Ended {
    /// The other process, by the kernel's word.
    Died,
    /// The way to it.
    Lost,
}

impl Tie {
    pub fn new(rank: usize, wire: Wire) -> Tie {
        let pid = match &wire {
            Wire::Unix(stream) => peer::credentials(stream).and_then(|peer| peer.pid),
            Wire::Tcp(_) => None,
        };
        Tie { rank, wire, pidfd: pid.and_then(|pid| peer::open_pidfd(pid).ok()), writing: Mutex::new(()) }
    }

    /// Whether the peer is on another host.
    pub fn is_remote(&self) -> bool {
        matches!(self.wire, Wire::Tcp(_))
    }

    pub fn send(&self, kind: u8, body: &[u8]) -> io::Result<()> {
        let mut frame = Vec::with_capacity(body.len() + 5);
        frame.extend_from_slice(&(body.len() as u32).to_le_bytes());
        frame.push(kind);
        frame.extend_from_slice(body);
        let _whole = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        match &self.wire {
            Wire::Unix(stream) => (&**stream).write_all(&frame),
            Wire::Tcp(stream) => (&**stream).write_all(&frame),
        }
    }

    /// Reads what is there and hands over whole frames; `heard` keeps the beginning of the next. Never waits. False when nothing was
    /// there.
    pub fn hear(&self, heard: &mut Vec<u8>, mut on_frame: impl FnMut(u8, &[u8])) -> Result<bool, Ended> {
        let mut buffer = [0; 8 * 1024];
        match self.read(&mut buffer) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(true),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            // A process that ends with something unread resets its connections.
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Err(Ended::Died),
            Err(_) => return Err(Ended::Lost),
            Ok(0) => return Err(Ended::Died),
            Ok(n) => heard.extend_from_slice(&buffer[..n]),
        }
        let mut used = 0;
        while let Some(head) = heard.get(used..used + 5) {
            let length = u32::from_le_bytes(head[..4].try_into().expect("four bytes")) as usize;
            let kind = head[4];
            if length > LONGEST {
                return Err(Ended::Lost);
            }
            let Some(body) = heard.get(used + 5..used + 5 + length) else { break };
            on_frame(kind, body);
            used += 5 + length;
        }
        heard.drain(..used);
        Ok(true)
    }

    /// Whether what was said gets no answer from the other kernel.
    pub fn is_cut_off(&self) -> bool {
        matches!(&self.wire, Wire::Tcp(stream) if tcp::is_cut_off(stream))
    }

    /// Also ends what another thread is saying.
    pub fn close(&self) {
        let _ = match &self.wire {
            Wire::Unix(stream) => stream.shutdown(Shutdown::Both),
            Wire::Tcp(stream) => stream.shutdown(Shutdown::Both),
        };
    }

    pub fn fd(&self) -> BorrowedFd<'_> {
        match &self.wire {
            Wire::Unix(stream) => stream.as_fd(),
            Wire::Tcp(stream) => stream.as_fd(),
        }
    }

    /// Readable when the peer's process has ended.
    pub fn pidfd(&self) -> Option<BorrowedFd<'_>> {
        self.pidfd.as_ref().map(AsFd::as_fd)
    }

    fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let (n_bytes, _) = recv(self.fd(), buffer, RecvFlags::DONTWAIT)?;
        Ok(n_bytes)
    }
}
