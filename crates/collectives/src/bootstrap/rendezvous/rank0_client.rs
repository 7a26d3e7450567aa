//! Rendezvous at rank 0, client side: tries the addresses in turn until rank 0 of this job answers, sends this rank's blob
//! and receives the blobs of all ranks.
//!
//! Request: rank, size, blob length (u32 each, little-endian), origin of the process, blob. Reply: kind (u8), length (u32), body.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::{Duration, Instant};

use super::error::{DialError, RendezvousError};
use super::http_reply::MAX_BODY_BYTES;
use super::process_origin::{ORIGIN_BYTES, ProcessOrigin};
use super::rank0_address::Rank0Address;
use super::session::SessionPeer;
use super::signed_blob::unpack;
use super::timed_stream::Stream;
use crate::auth::{Role, Secret, authenticate};

/// Time limit of one connection attempt: a firewall that drops packets must not delay the next address.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);
const MAX_PAUSE: Duration = Duration::from_millis(20);
/// Extra time for rank 0's reply: its deadline is about the same, and its error names the missing ranks.
const REPLY_GRACE: Duration = Duration::from_secs(2);

/// Kind of a reply: the body is the blobs of all ranks.
pub const ALL_BLOBS: u8 = 1;
/// Kind of a reply: the rendezvous failed for all ranks; the body is the reason.
pub const ABORTED: u8 = 0;
/// Kind of a reply: this process is refused, and the rendezvous goes on without it; the body is the reason.
pub const REFUSED: u8 = 2;

/// Bytes of a request before the blob.
pub const REQUEST_HEAD_BYTES: usize = 12 + ORIGIN_BYTES;

const LOCAL_SOCKET: &str = "the job's socket on this host";

/// Joins the rendezvous. Returns the blobs of all ranks, and the connection to rank 0, which stays open.
pub fn join(
    rank0: &Rank0Address,
    rank: usize,
    secret: Option<&Secret>,
    signed: &[u8],
    deadline: Instant,
) -> Result<(Vec<Vec<u8>>, Vec<SessionPeer>), RendezvousError> {
    let started = Instant::now();
    let mut pause = Duration::from_millis(1);
    let mut earlier = None;
    loop {
        let last = match connect_rank0(rank0, secret, deadline) {
            Ok(stream) => {
                let all = exchange_blobs(&stream, rank0.size, rank, signed, deadline + REPLY_GRACE)?;
                return Ok((all, vec![SessionPeer::new(0, stream)]));
            }
            Err(error) => error.prefer_informative(earlier.take()),
        };
        if Instant::now() + pause > deadline {
            let (addresses, waited) = (rank0.describe(), started.elapsed());
            return Err(RendezvousError::NoRank0 { addresses, waited, last: Box::new(last) });
        }
        earlier = Some(last);
        thread::sleep(pause);
        pause = (pause * 2).min(MAX_PAUSE);
    }
}

/// Makes an authenticated connection to rank 0, over the abstract Unix socket of this host or over TCP.
fn connect_rank0(rank0: &Rank0Address, secret: Option<&Secret>, deadline: Instant) -> Result<Stream, DialError> {
    // The Unix socket is tried even if rank 0 has a host name: this host may be it and not resolve Slurm's name for it.
    let connected = rank0.unix().and_then(|address| UnixStream::connect_addr(&address)).map(Stream::from);
    let mut last = match authenticate_rank0(connected, LOCAL_SOCKET.to_owned(), rank0, secret, deadline) {
        Ok(stream) => return Ok(stream),
        Err(error) => error,
    };
    let addresses = match rank0.ip_addresses() {
        Ok(addresses) => addresses,
        Err(error) => return Err(error.prefer_informative(Some(last))),
    };
    for port in rank0.ports {
        for ip in &addresses {
            let address = SocketAddr::new(*ip, port);
            let timeout = remaining_at_most(deadline, CONNECT_TIMEOUT);
            let connected = TcpStream::connect_timeout(&address, timeout).map(|stream| {
                // Without Nagle's delay for short messages. A failure only makes them slower.
                let _ = stream.set_nodelay(true);
                Stream::from(stream)
            });
            match authenticate_rank0(connected, address.to_string(), rank0, secret, deadline) {
                Ok(stream) => return Ok(stream),
                Err(error) => last = error.prefer_informative(Some(last)),
            }
        }
    }
    Err(last)
}

fn authenticate_rank0(
    connected: io::Result<Stream>,
    address: String,
    rank0: &Rank0Address,
    secret: Option<&Secret>,
    deadline: Instant,
) -> Result<Stream, DialError> {
    let stream = match connected {
        Ok(stream) => stream,
        Err(source) => return Err(DialError::Connect { address, source }),
    };
    if !stream.is_same_user() {
        return Err(DialError::OtherUser { address });
    }
    let until = Instant::now() + remaining_at_most(deadline, HANDSHAKE_TIMEOUT);
    match authenticate(stream.until(until), secret, &rank0.context, Role::Dialer) {
        Ok(()) => Ok(stream),
        Err(source) => Err(DialError::NotRank0 { address, source }),
    }
}

/// Asks the process that listens on the job's socket of this host why a second rank 0 cannot listen there. `None` when it does not answer as a
/// rank 0 of this build does: it may be about to exit.
pub fn query_existing_rank0(
    rank0: &Rank0Address,
    secret: Option<&Secret>,
    deadline: Instant,
) -> Option<RendezvousError> {
    let connected = rank0.unix().and_then(|address| UnixStream::connect_addr(&address)).map(Stream::from);
    let stream = authenticate_rank0(connected, LOCAL_SOCKET.to_owned(), rank0, secret, deadline).ok()?;
    let until = Instant::now() + remaining_at_most(deadline, HANDSHAKE_TIMEOUT);
    let error = exchange_blobs(&stream, rank0.size, 0, &[], until).err();
    error.filter(|error| matches!(error, RendezvousError::Refused { .. }))
}

/// Sends this rank's blob and receives those of all ranks.
pub(super) fn exchange_blobs(
    stream: &Stream,
    size: usize,
    rank: usize,
    signed: &[u8],
    deadline: Instant,
) -> Result<Vec<Vec<u8>>, RendezvousError> {
    let mut stream = stream.until(deadline);
    let mut request = Vec::with_capacity(REQUEST_HEAD_BYTES + signed.len());
    for number in [rank, size, signed.len()] {
        request.extend_from_slice(&u32::try_from(number).expect("jobs and blobs are small").to_le_bytes());
    }
    request.extend_from_slice(&ProcessOrigin::of_this_process().encode());
    request.extend_from_slice(signed);
    stream.write_all(&request).map_err(RendezvousError::Rank0Lost)?;
    let mut head = [0; 5];
    stream.read_exact(&mut head).map_err(RendezvousError::Rank0Lost)?;
    let [kind, length @ ..] = head;
    let length = u32::from_le_bytes(length) as usize;
    if length > MAX_BODY_BYTES {
        return Err(RendezvousError::Malformed { rank: 0 });
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).map_err(RendezvousError::Rank0Lost)?;
    match kind {
        ALL_BLOBS => unpack(&body, size).ok_or(RendezvousError::Malformed { rank: 0 }),
        ABORTED => Err(RendezvousError::Aborted { reason: String::from_utf8_lossy(&body).into_owned() }),
        REFUSED => Err(RendezvousError::Refused { reason: String::from_utf8_lossy(&body).into_owned() }),
        _ => Err(RendezvousError::Malformed { rank: 0 }),
    }
}

/// Time until the deadline, at most `limit` and at least 1 ms: the standard library refuses a timeout of zero.
fn remaining_at_most(deadline: Instant, limit: Duration) -> Duration {
    deadline.saturating_duration_since(Instant::now()).min(limit).max(Duration::from_millis(1))
}
