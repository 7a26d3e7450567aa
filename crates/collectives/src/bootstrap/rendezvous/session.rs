//! Failure notices between the rendezvous and the end of connection setup, when most ranks have no connection to each other yet. With a
//! rendezvous at rank 0 they use its connections, which stay open; with a key-value server they use a key of the round, which the
//! launcher sets too when a process ends.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use rustix::net::{RecvFlags, recv};

use super::kv_exchange::FailureKey;
use super::timed_stream::Stream;

/// A failure after which the world cannot be connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerFailure {
    /// The process of this rank has ended.
    Died(usize),
    /// Another rank cannot connect to this rank, or this rank has given up.
    Lost(usize),
}

/// The channel for failure notices.
pub enum Session {
    SingleProcess,
    KeyValue(FailureKey),
    /// On rank 0: one connection to every other rank. On the others: one to rank 0.
    Rank0(Vec<SessionPeer>),
}

/// A connection to another rank.
pub struct SessionPeer {
    pub rank: usize,
    pub stream: Stream,
    /// No more messages will come: it is connected to all ranks, or its connection has ended.
    pub is_done: bool,
    received: Vec<u8>,
}

/// A message on a connection. On the wire: kind (u8), rank (u32, little-endian).
#[derive(Debug, PartialEq, Eq)]
pub enum SessionMessage {
    /// The sender is connected to all ranks and needs the session no more.
    Connected,
    Failure(PeerFailure),
}

const CONNECTED: u8 = 2;
const DIED: u8 = 3;
const LOST: u8 = 4;
const FRAME_BYTES: usize = 5;
const SEND_TIMEOUT: Duration = Duration::from_secs(1);

impl SessionPeer {
    pub fn new(rank: usize, stream: Stream) -> SessionPeer {
        SessionPeer { rank, stream, is_done: false, received: Vec::new() }
    }

    /// Sends a message. Best effort: a peer that has ended is noticed by end of file.
    pub fn send(&self, message: &SessionMessage) {
        let (kind, rank) = match message {
            SessionMessage::Connected => (CONNECTED, 0),
            SessionMessage::Failure(PeerFailure::Died(rank)) => (DIED, *rank as u32),
            SessionMessage::Failure(PeerFailure::Lost(rank)) => (LOST, *rank as u32),
        };
        let mut frame = [kind; FRAME_BYTES];
        frame[1..].copy_from_slice(&rank.to_le_bytes());
        let _ = io::Write::write_all(&mut self.stream.until(Instant::now() + SEND_TIMEOUT), &frame);
    }

    /// Returns the messages that have arrived. Never blocks. An error when the connection has ended.
    pub fn receive(&mut self) -> io::Result<Vec<SessionMessage>> {
        let mut buffer = [0; 256];
        match recv(self.stream.as_fd(), &mut buffer, RecvFlags::DONTWAIT) {
            Ok((_, 0)) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok((_, n_bytes)) => self.received.extend_from_slice(&buffer[..n_bytes]),
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => return Ok(Vec::new()),
            Err(error) => return Err(error.into()),
        }
        let n_whole = self.received.len() / FRAME_BYTES * FRAME_BYTES;
        let frames = self.received.drain(..n_whole).collect::<Vec<u8>>();
        Ok(frames.chunks_exact(FRAME_BYTES).filter_map(decode).collect())
    }
}

impl AsFd for SessionPeer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

fn decode(frame: &[u8]) -> Option<SessionMessage> {
    let rank = u32::from_le_bytes(frame[1..].try_into().expect("four bytes")) as usize;
    match frame[0] {
        CONNECTED => Some(SessionMessage::Connected),
        DIED => Some(SessionMessage::Failure(PeerFailure::Died(rank))),
        LOST => Some(SessionMessage::Failure(PeerFailure::Lost(rank))),
        // A message of a later version.
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn messages_arrive_in_order_and_end_of_file_is_an_error() {
        let (one, other) = UnixStream::pair().expect("sockets");
        let (one, mut other) = (SessionPeer::new(1, one.into()), SessionPeer::new(0, other.into()));
        assert_eq!(other.receive().expect("open"), []);
        let all = [
            SessionMessage::Failure(PeerFailure::Died(3)),
            SessionMessage::Failure(PeerFailure::Lost(70_000)),
            SessionMessage::Connected,
        ];
        all.iter().for_each(|message| one.send(message));
        assert_eq!(other.receive().expect("open"), all);
        drop(one);
        assert!(other.receive().is_err());
    }
}
