//! Control connection between two ranks. End of file without a BYE frame means that the peer died. Read by the failure
//! detector's thread, and by the engine while it is awake.

use std::io::{self, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Mutex, PoisonError};

use rustix::net::{RecvFlags, recv};

use crate::close_on_fork::CloseOnFork;
use crate::peer_process;
use crate::transport::tcp::socket::is_unacknowledged;

pub enum Wire {
    Unix(CloseOnFork<UnixStream>),
    Tcp(CloseOnFork<TcpStream>),
}

/// One socket and the rank at its other end.
pub struct ControlConnection {
    pub rank: usize,
    wire: Wire,
    /// Handle of the peer's process; `None` if its pid is not known on this host or cannot be opened.
    pidfd: Option<CloseOnFork<OwnedFd>>,
    writing: Mutex<()>,
}

/// Kinds of frames. A frame is the length of its body (u32, little-endian), its kind (u8), and the body.
///
/// The sender leaves in good order.
pub const BYE: u8 = 1;
/// Body: a rank that has died.
pub const DIED: u8 = 2;
/// Body: a rank that has left in good order.
pub const LEFT: u8 = 3;
/// Body: a message of the engine.
pub const MESSAGE: u8 = 4;
/// Body: a rank that is lost, and the rank that cannot reach it.
pub const LOST: u8 = 5;
/// To be answered with PONG.
pub const PING: u8 = 6;
pub const PONG: u8 = 7;
/// A longer length field is no valid frame.
const MAX_BODY_BYTES: usize = 256 << 20;

/// Why a connection has ended.
pub enum Disconnect {
    /// End of file or reset: the peer's process has ended.
    Died,
    /// Any other error: the peer may live, but cannot be reached.
    Lost,
}

impl ControlConnection {
    pub fn new(rank: usize, wire: Wire) -> ControlConnection {
        let pid = match &wire {
            Wire::Unix(stream) => peer_process::credentials(stream).and_then(|peer| peer.pid),
            Wire::Tcp(_) => None,
        };
        ControlConnection {
            rank,
            wire,
            pidfd: pid.and_then(|pid| peer_process::open_pidfd(pid).ok()),
            writing: Mutex::new(()),
        }
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

    /// Reads what has arrived and hands over complete frames; `partial` keeps the beginning of the next. Never blocks. False when nothing had
    /// arrived.
    pub fn read_frames(&self, partial: &mut Vec<u8>, mut on_frame: impl FnMut(u8, &[u8])) -> Result<bool, Disconnect> {
        let mut buffer = [0; 8 * 1024];
        match self.read(&mut buffer) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(true),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            // A process that ends with something unread resets its connections.
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Err(Disconnect::Died),
            Err(_) => return Err(Disconnect::Lost),
            Ok(0) => return Err(Disconnect::Died),
            Ok(n) => partial.extend_from_slice(&buffer[..n]),
        }
        let mut used = 0;
        while let Some(head) = partial.get(used..used + 5) {
            let length = u32::from_le_bytes(head[..4].try_into().expect("four bytes")) as usize;
            let kind = head[4];
            if length > MAX_BODY_BYTES {
                return Err(Disconnect::Lost);
            }
            let Some(body) = partial.get(used + 5..used + 5 + length) else { break };
            on_frame(kind, body);
            used += 5 + length;
        }
        partial.drain(..used);
        Ok(true)
    }

    /// Whether sent bytes have not been acknowledged by the peer's kernel for too long (TCP_INFO).
    pub fn is_cut_off(&self) -> bool {
        matches!(&self.wire, Wire::Tcp(stream) if is_unacknowledged(stream))
    }

    /// Shuts the socket down; a send of another thread ends too.
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
