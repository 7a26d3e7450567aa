//! Rendezvous at rank 0, server side: accepts the other ranks, collects one blob from each and sends all blobs back. Every
//! connection is authenticated on a thread of its own, so a silent peer blocks no other.
//!
//! Without a secret and without a launcher's id for the run, ranks of another world may connect. Rank 0 then compares the origins of the
//! processes: it refuses processes that cannot belong to its world, and aborts if it cannot tell which of two processes does.

use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, Scope};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::error::{MAX_BLOB_BYTES, RankList, RendezvousError, is_informative};
use super::process_origin::ProcessOrigin;
use super::rank0_address::Rank0Address;
use super::rank0_client::{ABORTED, ALL_BLOBS, REFUSED, REQUEST_HEAD_BYTES};
use super::rank0_listener::{Listener, listen};
use super::session::SessionPeer;
use super::signed_blob::pack;
use super::timed_stream::Stream;
use crate::auth::{AuthError, Role, Secret, authenticate};

const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);
/// Extra time after the deadline to send replies.
const REPLY_GRACE: Duration = Duration::from_secs(1);
/// How long rank 0 listens for processes that claim a rank twice, once all ranks have joined. Only used when origins are compared: the
/// ranks of two worlds that one script starts at the same time connect within this time.
const DUPLICATE_WINDOW: Duration = Duration::from_millis(500);
/// Connections in authentication beyond the number of ranks. Further ones are closed at once.
const MAX_UNAUTHENTICATED: usize = 64;
/// Bytes by which a signed blob may exceed a blob.
const SIGNATURE_MARGIN: usize = 1024;

/// Collects the blobs of all ranks, by rank, and sends them to every rank. Also returns the connections to the other ranks, which stay open.
pub fn receive_all(
    address: &Rank0Address,
    secret: Option<&Secret>,
    own: Vec<u8>,
    deadline: Instant,
) -> Result<(Vec<Vec<u8>>, Vec<SessionPeer>), RendezvousError> {
    let started = Instant::now();
    let listeners = listen(address, secret, deadline)?;
    let (wake_reader, wake_writer) = UnixStream::pair().map_err(RendezvousError::Wait)?;
    for end in [&wake_reader, &wake_writer] {
        end.set_nonblocking(true).map_err(RendezvousError::Wait)?;
    }
    let (sender, outcomes) = channel();
    let mut gathering = RendezvousState {
        address,
        origin: ProcessOrigin::of_this_process(),
        compares_origins: address.is_ambiguous && secret.is_none(),
        joined: (0..address.size).map(|_| None).collect(),
        pending: Vec::new(),
        refused: None,
        ambiguity: None,
    };
    let handshakes = Handshakes { address, secret, deadline, sender, wake_writer };
    let outcome = thread::scope(|scope| {
        let outcome = gathering.run(scope, &handshakes, &listeners, &wake_reader, &outcomes, started);
        for (_, stream) in &gathering.pending {
            stream.shut_down();
        }
        outcome
    });
    // Before the replies: a rank that has left may join the next round, and must not find these listeners open.
    drop(listeners);
    let until = deadline.max(Instant::now() + REPLY_GRACE);
    if let Err(error) = outcome {
        let reason = error.to_string();
        for joined in gathering.joined.iter().flatten() {
            let _ = reply(&joined.stream, ABORTED, reason.as_bytes(), until);
        }
        return Err(error);
    }
    let mut all = vec![own];
    let mut peers = Vec::new();
    for joined in gathering.joined.into_iter().skip(1) {
        let joined = joined.expect("all ranks have joined");
        all.push(joined.blob);
        peers.push(SessionPeer::new(joined.rank, joined.stream));
    }
    let body = pack(&all);
    for peer in &peers {
        // A rank that has ended meanwhile is noticed while the ranks connect.
        let _ = reply(&peer.stream, ALL_BLOBS, &body, until);
    }
    Ok((all, peers))
}

/// An authenticated process and its request.
struct JoinRequest {
    rank: usize,
    size: usize,
    origin: ProcessOrigin,
    blob: Vec<u8>,
    stream: Stream,
}

/// Context of the threads that authenticate connections.
struct Handshakes<'a> {
    address: &'a Rank0Address,
    secret: Option<&'a Secret>,
    deadline: Instant,
    sender: Sender<(u64, Result<JoinRequest, AuthError>)>,
    /// Wakes the thread that polls.
    wake_writer: UnixStream,
}

/// State of the rendezvous.
struct RendezvousState<'a> {
    address: &'a Rank0Address,
    /// Origin of this process, which is rank 0.
    origin: ProcessOrigin,
    /// Whether origins are compared, because neither a secret nor the job id excludes ranks of other worlds.
    compares_origins: bool,
    /// By rank.
    joined: Vec<Option<JoinRequest>>,
    /// Connections in authentication, by number; shut down at the end.
    pending: Vec<(u64, Stream)>,
    /// Why the last connection failed to authenticate.
    refused: Option<AuthError>,
    /// Set when rank 0 cannot tell which of two processes belongs to its world.
    ambiguity: Option<String>,
}

impl RendezvousState<'_> {
    fn run<'scope, 'env>(
        &mut self,
        scope: &'scope Scope<'scope, 'env>,
        handshakes: &'env Handshakes<'env>,
        listeners: &[Listener],
        wake_reader: &UnixStream,
        outcomes: &Receiver<(u64, Result<JoinRequest, AuthError>)>,
        started: Instant,
    ) -> Result<(), RendezvousError> {
        let mut n_accepted = 0;
        let mut window_end: Option<Instant> = None;
        loop {
            let is_complete = self.joined.iter().skip(1).all(Option::is_some);
            if is_complete && !self.compares_origins {
                return Ok(());
            }
            let until = match is_complete {
                true => *window_end.get_or_insert(Instant::now() + DUPLICATE_WINDOW),
                false => handshakes.deadline,
            };
            let remaining = until.saturating_duration_since(Instant::now());
            match remaining.is_zero() {
                true if is_complete => return Ok(()),
                true => return Err(self.missing_error(started)),
                false => {}
            }
            let joined = self.joined.iter().flatten().map(|joined| joined.stream.as_fd());
            let descriptors = listeners.iter().map(AsFd::as_fd).chain([wake_reader.as_fd()]).chain(joined);
            let mut polled: Vec<PollFd> = descriptors.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
            let timeout = Timespec::try_from(remaining).unwrap_or(Timespec { tv_sec: 3600, tv_nsec: 0 });
            match poll(&mut polled, Some(&timeout)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(RendezvousError::Wait(error.into())),
            }
            // A rank that has joined sends nothing while it waits, so its stream becomes readable only at end of file.
            if let Some(gone) = self.joined.iter().flatten().find(|joined| joined.stream.is_closed_by_peer()) {
                return Err(RendezvousError::Left { rank: gone.rank, missing: RankList(self.missing_ranks()) });
            }
            for listener in listeners {
                while let Some(stream) = listener.accept() {
                    n_accepted += 1;
                    self.start_handshake(scope, handshakes, n_accepted, stream);
                }
            }
            while (&*wake_reader).read(&mut [0; 64]).is_ok_and(|n_bytes| n_bytes > 0) {}
            while let Ok((number, outcome)) = outcomes.try_recv() {
                self.pending.retain(|(pending, _)| *pending != number);
                match outcome {
                    Ok(request) => self.admit(request),
                    Err(error) if is_informative(&error) => self.refused = Some(error),
                    Err(error) => self.refused = self.refused.take().or(Some(error)),
                }
            }
            if let Some(reason) = self.ambiguity.take() {
                return Err(RendezvousError::Ambiguous { reason });
            }
        }
    }

    fn start_handshake<'scope, 'env>(
        &mut self,
        scope: &'scope Scope<'scope, 'env>,
        handshakes: &'env Handshakes<'env>,
        number: u64,
        stream: Stream,
    ) {
        let Ok(handle) = stream.try_clone() else { return };
        if self.pending.len() >= self.address.size + MAX_UNAUTHENTICATED {
            return;
        }
        self.pending.push((number, handle));
        scope.spawn(move || {
            let outcome = handshakes.read_request(stream);
            // The receiver lives as long as the scope. If the wake-up socket is full, a wake-up is already pending.
            let _ = handshakes.sender.send((number, outcome));
            let _ = (&handshakes.wake_writer).write(&[1]);
        });
    }

    /// Admits a rank or refuses it. A process of another world is refused and the rendezvous goes on, so that it cannot harm this world. If
    /// rank 0 cannot tell which of two processes belongs to its world, the rendezvous is aborted: ranks of two worlds must not mix.
    fn admit(&mut self, request: JoinRequest) {
        if let Some(reason) = self.refusal_reason(&request) {
            if self.is_ambiguous(&request) {
                self.ambiguity = Some(self.ambiguity_message(request.rank));
            }
            return send_refusal(&request, &reason);
        }
        let rank = request.rank;
        let replaced = self.joined[rank].replace(request);
        if let Some(replaced) = replaced {
            // A sibling of rank 0 replaces a process of another launcher.
            send_refusal(&replaced, &self.duplicate_message(rank));
        }
    }

    /// Why a process cannot join; names this world and the other.
    fn refusal_reason(&self, request: &JoinRequest) -> Option<String> {
        let (size, addresses, pid) = (self.address.size, self.address.describe(), self.origin.pid);
        if request.size != size {
            return Some(format!(
                "another world of {size} ranks meets at {addresses}, and this process is rank {} of a world of {} ranks: choose \
                 another MASTER_PORT for one of them, or correct the number of ranks",
                request.rank, request.size
            ));
        }
        if request.rank == 0 {
            return Some(format!(
                "a world of {size} ranks already meets at {addresses}, and its rank 0 is process {pid}; this process is rank 0 of \
                 another: choose another MASTER_PORT, or end the other one first"
            ));
        }
        if request.rank >= size {
            return Some(format!("rank {} is out of range in a world of {size}", request.rank));
        }
        if self.compares_origins && !self.origin.may_share_world(&request.origin) {
            return Some(format!(
                "another world of {size} ranks meets at {addresses}; its rank 0 (process {pid}) and this process have neither the \
                 parent process nor the session in common: choose another MASTER_PORT, or, if they are one world, give all its \
                 ranks the same CORRO_JOB_SECRET"
            ));
        }
        let earlier = self.joined[request.rank].as_ref()?;
        let is_closer = self.compares_origins
            && self.origin.is_sibling(&request.origin)
            && !self.origin.is_sibling(&earlier.origin);
        (!is_closer).then(|| self.duplicate_message(request.rank))
    }

    /// Whether the process claims a rank that has joined, or rank 0, and its origin is no further from rank 0's than those of the joined processes.
    fn is_ambiguous(&self, request: &JoinRequest) -> bool {
        let is_as_close =
            |joined: &JoinRequest| self.origin.is_sibling(&request.origin) || !self.origin.is_sibling(&joined.origin);
        let mut rivals: Box<dyn Iterator<Item = &JoinRequest>> = match request.rank {
            0 => Box::new(self.joined.iter().flatten()),
            rank => Box::new(self.joined.get(rank).into_iter().flatten()),
        };
        self.compares_origins
            && request.size == self.address.size
            && self.origin.may_share_world(&request.origin)
            && rivals.any(is_as_close)
    }

    fn ambiguity_message(&self, rank: usize) -> String {
        let (size, addresses) = (self.address.size, self.address.describe());
        format!(
            "two processes claim to be rank {rank} of a world of {size} ranks that meets at {addresses}, and nothing tells which ranks belong \
             together: choose another MASTER_PORT for one of the worlds, or give each a CORRO_JOB_SECRET"
        )
    }

    fn duplicate_message(&self, rank: usize) -> String {
        let (size, addresses, pid) = (self.address.size, self.address.describe(), self.origin.pid);
        format!(
            "another process has already joined as rank {rank} of the world of {size} ranks that meets at {addresses} (its rank 0 is \
             process {pid}): if two worlds use one MASTER_PORT, choose another for one of them or give each a CORRO_JOB_SECRET"
        )
    }

    fn missing_ranks(&self) -> Vec<usize> {
        let missing = self.joined.iter().enumerate().skip(1).filter(|(_, joined)| joined.is_none());
        missing.map(|(rank, _)| rank).collect()
    }

    fn missing_error(&mut self, started: Instant) -> RendezvousError {
        let (ranks, waited) = (RankList(self.missing_ranks()), started.elapsed());
        RendezvousError::Missing { ranks, waited, refused: self.refused.take() }
    }
}

impl Handshakes<'_> {
    /// Authenticates a connection and reads its request.
    fn read_request(&self, stream: Stream) -> Result<JoinRequest, AuthError> {
        let until = self.deadline.min(Instant::now() + HANDSHAKE_TIMEOUT);
        if !stream.is_same_user() {
            return Err(AuthError::OtherJob);
        }
        let mut timed = stream.until(until);
        authenticate(&mut timed, self.secret, &self.address.context, Role::Listener)?;
        let mut head = [0; REQUEST_HEAD_BYTES];
        timed.read_exact(&mut head).map_err(AuthError::Io)?;
        let number = |nth: usize| u32::from_le_bytes(head[4 * nth..][..4].try_into().expect("four bytes")) as usize;
        let [rank, size, length] = [0, 1, 2].map(number);
        if length > MAX_BLOB_BYTES + SIGNATURE_MARGIN {
            return Err(AuthError::NotCorro);
        }
        let mut blob = vec![0; length];
        timed.read_exact(&mut blob).map_err(AuthError::Io)?;
        let origin = ProcessOrigin::decode(head[12..].try_into().expect("the rest of the head"));
        Ok(JoinRequest { rank, size, origin, blob, stream })
    }
}

/// Best effort: the process ends anyway.
fn send_refusal(request: &JoinRequest, reason: &str) {
    let _ = reply(&request.stream, REFUSED, reason.as_bytes(), Instant::now() + REPLY_GRACE);
}

fn reply(stream: &Stream, kind: u8, body: &[u8], deadline: Instant) -> io::Result<()> {
    let length = u32::try_from(body.len()).map_err(io::Error::other)?;
    let mut message = vec![kind];
    message.extend_from_slice(&length.to_le_bytes());
    message.extend_from_slice(body);
    stream.until(deadline).write_all(&message)
}
