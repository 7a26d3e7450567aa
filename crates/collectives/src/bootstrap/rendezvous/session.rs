//! The meeting while its ranks connect to each other: a way to learn that a rank ended, or could not connect, before the ranks can tell
//! each other directly. At rank 0 these are the connections of the meeting, which stay open; at a key-value server it is one key of the
//! round, which a launcher that watches the processes writes as well.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use rustix::net::{RecvFlags, recv};

use super::kv_exchange::FailureKey;
use super::timed_stream::Stream;

/// Something that makes it impossible for the world to come together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerFailure {
    /// The process of this rank has ended.
    Died(usize),
    /// This rank is not reached by another, or has given up.
    Lost(usize),
}

/// How this rank is connected to the meeting.
pub enum Session {
    SingleProcess,
    KeyValue(FailureKey),
    /// At rank 0: one connection to every other rank. At the others: one to rank 0.
    Rank0(Vec<SessionPeer>),
}

/// A connection to a rank of the meeting.
pub struct SessionPeer {
    pub rank: usize,
    pub stream: Stream,
    received: Vec<u8>,
}

/// What a member of the meeting said.
#[derive(Debug, PartialEq, Eq)]
pub enum SessionMessage {
    /// It is connected to all others and needs the meeting no more.
    Connected,
    PeerFailure(PeerFailure),
}

const CONNECTED: u8 = 2;
const DIED: u8 = 3;
const LOST: u8 = 4;
const FRAME_BYTES: usize = 5;
const SEND_LIMIT: Duration = Duration::from_secs(1);

impl SessionPeer {
    pub fn new(rank: usize, stream: Stream) -> SessionPeer {
        SessionPeer { rank, stream, received: Vec::new() }
    }

    /// Best effort: a member that is gone is noticed by the end of its connection.
    pub fn send(&self, said: &SessionMessage) {
        let (kind, rank) = match said {
            SessionMessage::Connected => (CONNECTED, 0),
            SessionMessage::PeerFailure(PeerFailure::Died(rank)) => (DIED, *rank as u32),
            SessionMessage::PeerFailure(PeerFailure::Lost(rank)) => (LOST, *rank as u32),
        };
        let mut frame = [kind; FRAME_BYTES];
        frame[1..].copy_from_slice(&rank.to_le_bytes());
        let _ = io::Write::write_all(&mut self.stream.until(Instant::now() + SEND_LIMIT), &frame);
    }

    /// All that has arrived; never waits. An error when the connection has ended.
    pub fn receive(&mut self) -> io::Result<Vec<SessionMessage>> {
        let mut buffer = [0; 256];
        match recv(self.stream.as_fd(), &mut buffer, RecvFlags::DONTWAIT) {
            Ok((_, 0)) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok((_, n_bytes)) => self.received.extend_from_slice(&buffer[..n_bytes]),
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => return Ok(Vec::new()),
            Err(error) => return Err(error.into()),
        }
        let whole = self.received.len() / FRAME_BYTES * FRAME_BYTES;
        let said = self.received.drain(..whole).collect::<Vec<u8>>();
        Ok(said.chunks_exact(FRAME_BYTES).filter_map(decode).collect())
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
        DIED => Some(SessionMessage::PeerFailure(PeerFailure::Died(rank))),
        LOST => Some(SessionMessage::PeerFailure(PeerFailure::Lost(rank))),
        // A later version may say more.
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn what_is_said_arrives_in_order_and_the_end_is_noticed() {
        let (one, other) = UnixStream::pair().expect("sockets");
        let (one, mut other) = (SessionPeer::new(1, one.into()), SessionPeer::new(0, other.into()));
        assert_eq!(other.receive().expect("open"), []);
        let all = [
            SessionMessage::PeerFailure(PeerFailure::Died(3)),
            SessionMessage::PeerFailure(PeerFailure::Lost(70_000)),
            SessionMessage::Connected,
        ];
        all.iter().for_each(|said| one.send(said));
        assert_eq!(other.receive().expect("open"), all);
        drop(one);
        assert!(other.receive().is_err());
    }
}
