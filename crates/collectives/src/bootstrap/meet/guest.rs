//! The meeting at rank 0, as every other rank sees it. Entered by [`super::exchange`]. Tries all places in turn until rank 0 of
//! this very job answers; then hands over its blob and waits for all of them.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::{Duration, Instant};

use super::envelope::unpack;
use super::http::LONGEST_BODY;
use super::origin::{ORIGIN_BYTES, Origin};
use super::session::Member;
use super::spot::Spot;
use super::stream::Stream;
use super::{Attempt, MeetError};
use crate::trust::{Role, Secret, prove};

/// A firewall that swallows packets must not keep us from the next place.
const LONGEST_CONNECT: Duration = Duration::from_secs(2);
const LONGEST_PROOF: Duration = Duration::from_secs(5);
const LONGEST_PAUSE: Duration = Duration::from_millis(20);
/// Rank 0 has much the same deadline, and knows better who is missing.
const GRACE: Duration = Duration::from_secs(2);

/// What rank 0 answers with: all blobs, or why not.
pub const ALL: u8 = 1;
pub const CALLED_OFF: u8 = 0;
/// To one process alone: the meeting goes on without it.
pub const REFUSED: u8 = 2;

pub fn attend(
    spot: &Spot,
    rank: usize,
    secret: Option<&Secret>,
    sealed: &[u8],
    deadline: Instant,
) -> Result<(Vec<Vec<u8>>, Vec<Member>), MeetError> {
    let started = Instant::now();
    let mut pause = Duration::from_millis(1);
    let mut earlier = None;
    loop {
        let last = match find(spot, secret, deadline) {
            Ok(stream) => {
                let all = hand_over(&stream, spot.size, rank, sealed, deadline + GRACE)?;
                return Ok((all, vec![Member::new(0, stream)]));
            }
            Err(attempt) => attempt.or_more_telling(earlier.take()),
        };
        if Instant::now() + pause > deadline {
            let (places, waited) = (spot.places(), started.elapsed());
            return Err(MeetError::NoHost { places, waited, last: Box::new(last) });
        }
        earlier = Some(last);
        thread::sleep(pause);
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// A proven connection to rank 0.
fn find(spot: &Spot, secret: Option<&Secret>, deadline: Instant) -> Result<Stream, Attempt> {
    // Asked whatever the host is called: Slurm's name for it need not be one that this host can resolve.
    let connected = spot.unix().and_then(|address| UnixStream::connect_addr(&address)).map(Stream::from);
    let mut last = match introduce(connected, "the job's socket on this host".to_owned(), spot, secret, deadline) {
        Ok(stream) => return Ok(stream),
        Err(attempt) => attempt,
    };
    let addresses = match spot.addresses() {
        Ok(addresses) => addresses,
        Err(attempt) => return Err(attempt.or_more_telling(Some(last))),
    };
    for port in spot.ports {
        for address in &addresses {
            let address = SocketAddr::new(*address, port);
            let limit = remaining(deadline, LONGEST_CONNECT);
            let connected = TcpStream::connect_timeout(&address, limit).map(|stream| {
                // Short messages must not wait for an acknowledgement; if this fails they are merely slower.
                let _ = stream.set_nodelay(true);
                Stream::from(stream)
            });
            match introduce(connected, address.to_string(), spot, secret, deadline) {
                Ok(stream) => return Ok(stream),
                Err(attempt) => last = attempt.or_more_telling(Some(last)),
            }
        }
    }
    Err(last)
}

fn introduce(
    connected: io::Result<Stream>,
    place: String,
    spot: &Spot,
    secret: Option<&Secret>,
    deadline: Instant,
) -> Result<Stream, Attempt> {
    let stream = match connected {
        Ok(stream) => stream,
        Err(source) => return Err(Attempt::Connect { place, source }),
    };
    if !stream.is_same_user() {
        return Err(Attempt::OtherUser { place });
    }
    let until = Instant::now() + remaining(deadline, LONGEST_PROOF);
    match prove(stream.until(until), secret, &spot.context, Role::Dialer) {
        Ok(()) => Ok(stream),
        Err(source) => Err(Attempt::Stranger { place, source }),
    }
}

/// Asks whoever listens at the job's socket of this host why a second rank 0 cannot listen there. `None` when it does not answer as a
/// rank 0 of this build does: it may be about to end.
pub fn ask_other_host(spot: &Spot, secret: Option<&Secret>, deadline: Instant) -> Option<MeetError> {
    let connected = spot.unix().and_then(|address| UnixStream::connect_addr(&address)).map(Stream::from);
    let stream = introduce(connected, "the job's socket on this host".to_owned(), spot, secret, deadline).ok()?;
    let until = Instant::now() + remaining(deadline, LONGEST_PROOF);
    hand_over(&stream, spot.size, 0, &[], until).err().filter(|error| matches!(error, MeetError::Refused { .. }))
}

/// Rank, size, length of the blob, and where the process was started from.
pub const HEAD_BYTES: usize = 12 + ORIGIN_BYTES;

/// Gives the blob and takes all of them.
pub(super) fn hand_over(
    stream: &Stream,
    size: usize,
    rank: usize,
    sealed: &[u8],
    deadline: Instant,
) -> Result<Vec<Vec<u8>>, MeetError> {
    let mut stream = stream.until(deadline);
    let mut message = Vec::with_capacity(HEAD_BYTES + sealed.len());
    for number in [rank, size, sealed.len()] {
        message.extend_from_slice(&u32::try_from(number).expect("jobs and blobs are small").to_le_bytes());
    }
    message.extend_from_slice(&Origin::own().encode());
    message.extend_from_slice(sealed);
    stream.write_all(&message).map_err(MeetError::HostLost)?;
    let mut head = [0; 5];
    stream.read_exact(&mut head).map_err(MeetError::HostLost)?;
    let [kind, length @ ..] = head;
    let length = u32::from_le_bytes(length) as usize;
    if length > LONGEST_BODY {
        return Err(MeetError::NotOurs { rank: 0 });
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).map_err(MeetError::HostLost)?;
    match kind {
        ALL => unpack(&body, size).ok_or(MeetError::NotOurs { rank: 0 }),
        CALLED_OFF => Err(MeetError::CalledOff { reason: String::from_utf8_lossy(&body).into_owned() }),
        REFUSED => Err(MeetError::Refused { reason: String::from_utf8_lossy(&body).into_owned() }),
        _ => Err(MeetError::NotOurs { rank: 0 }),
    }
}

fn remaining(deadline: Instant, limit: Duration) -> Duration {
    // A limit of zero is an error to the standard library.
    deadline.saturating_duration_since(Instant::now()).min(limit).max(Duration::from_millis(1))
}
