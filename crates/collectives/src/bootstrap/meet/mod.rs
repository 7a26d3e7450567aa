//! An allgather of one opaque blob per rank, before there is any connection between them. The transport enters here with its
//! addresses. Blocking; every wait ends at the caller's deadline, with an error that names who did not come. Never looks
//! into a blob, and never accepts one that is not signed when the job has a secret.

mod client;
mod envelope;
mod guest;
mod host;
mod http;
mod key_value;
mod origin;
pub(crate) mod session;
mod spot;
pub(crate) mod stream;

use std::fmt;
use std::io;
use std::time::{Duration, Instant};

use thiserror::Error;

use super::place::{Launch, Meeting};
use crate::trust::TrustError;
use envelope::Envelope;
use session::Session;

/// Hands `mine` to every rank and returns every rank's blob, by rank. `round` counts the meetings of this job: all ranks
/// pass the same, and never the same twice.
pub fn exchange(launch: &Launch, round: u64, mine: &[u8], deadline: Instant) -> Result<Vec<Vec<u8>>, MeetError> {
    join(launch, round, mine, deadline).map(|(blobs, _)| blobs)
}

/// As [`exchange`]; the meeting goes on until the session is dropped.
pub(crate) fn join(
    launch: &Launch,
    round: u64,
    mine: &[u8],
    deadline: Instant,
) -> Result<(Vec<Vec<u8>>, Session), MeetError> {
    if mine.len() > LONGEST_BLOB {
        return Err(MeetError::TooLong { n_bytes: mine.len() });
    }
    let place = &launch.place;
    let envelope = Envelope { secret: launch.secret.as_ref(), round, size: place.size };
    let sealed = envelope.seal(place.rank, mine);
    let (all, session) = match &launch.meeting {
        Meeting::Alone => return Ok((vec![mine.to_vec()], Session::Alone)),
        Meeting::KeyValue { addr, port } => {
            let (all, notices) = key_value::exchange(addr, *port, place, round, &sealed, deadline)?;
            (all, Session::KeyValue(notices))
        }
        Meeting::Hosted(hosted) => {
            let spot = spot::Spot::of(hosted, round, place.size);
            let (all, members) = if place.rank == 0 {
                host::receive_all(&spot, launch.secret.as_ref(), sealed, deadline)?
            } else {
                guest::attend(&spot, place.rank, launch.secret.as_ref(), &sealed, deadline)?
            };
            (all, Session::Hosted(members))
        }
    };
    let opened = all.iter().enumerate().map(|(rank, sealed)| envelope.open(rank, sealed).map(<[u8]>::to_vec));
    Ok((opened.collect::<Result<_, _>>()?, session))
}

/// Clears away what the round left behind. To be called once all ranks are known to have left [`exchange`], for example
/// after a barrier: a slower rank would miss what is gone.
pub fn leave(launch: &Launch, round: u64, deadline: Instant) -> Result<(), MeetError> {
    match &launch.meeting {
        Meeting::KeyValue { addr, port } => key_value::leave(addr, *port, launch.place.rank, round, deadline),
        Meeting::Alone | Meeting::Hosted(_) => Ok(()),
    }
}

/// Addresses take some hundred bytes. All of a job's blobs have to fit into one reply of a key-value server.
pub const LONGEST_BLOB: usize = 128 * 1024;

#[derive(Debug, Error)]
pub enum MeetError {
    #[error("{n_bytes} bytes are too many to meet with: at most {LONGEST_BLOB}")]
    TooLong { n_bytes: usize },
    #[error("{ranks} did not come to the meeting within {waited:.1?}: see whether they run, and what they last said")]
    Missing {
        ranks: Ranks,
        waited: Duration,
        /// The last visitor who could not prove itself, who may be one of them.
        #[source]
        stranger: Option<TrustError>,
    },
    #[error("rank 0 was not found at {places} within {waited:.1?}")]
    NoHost {
        places: String,
        waited: Duration,
        #[source]
        last: Box<Attempt>,
    },
    #[error("rank 0 called the meeting off: {reason}")]
    CalledOff { reason: String },
    /// The reason names another world, or what is wrong with this process's place.
    #[error("rank 0 refused this process: {reason}")]
    Refused { reason: String },
    /// The reason says which place two processes claim.
    #[error("{reason}")]
    Ambiguous { reason: String },
    #[error("rank {rank} ended, or gave up, before {missing} had joined")]
    Left { rank: usize, missing: Ranks },
    /// By the word of the launcher, or of another rank.
    #[error("the ranks cannot meet: {reason}")]
    PeerFailed { reason: String },
    #[error("rank 0 hung up during the meeting: it died, most likely")]
    HostLost(#[source] io::Error),
    #[error("rank {rank} came to the meeting without the job's secret: hand CORRO_JOB_SECRET to every rank")]
    Unsigned { rank: usize },
    #[error("rank {rank} signs with a secret, but this process has none: hand CORRO_JOB_SECRET to every rank")]
    WithoutSecret { rank: usize },
    #[error("what came in the name of rank {rank} is not signed with the job's secret")]
    WrongSignature { rank: usize },
    #[error("what came in the name of rank {rank} is not a message of this build's: use one build in all ranks")]
    NotOurs { rank: usize },
    #[error("cannot talk to the launcher's key-value server at {server}")]
    Server {
        server: String,
        #[source]
        source: http::HttpError,
    },
    #[error("cannot listen for the other ranks at {places}")]
    Listen {
        places: String,
        #[source]
        source: io::Error,
    },
    #[error(
        "the sockets for the other ranks at {places} are taken, by another world or another program: choose another MASTER_PORT"
    )]
    AddressTaken {
        places: String,
        #[source]
        source: io::Error,
    },
    #[error("rank 0 is not at {places}, where its launcher is: set MASTER_ADDR to the host of rank 0")]
    NotHere { places: String },
    #[error("cannot wait for the other ranks")]
    Wait(#[source] io::Error),
}

/// Why a rank did not get through to rank 0, this time.
#[derive(Debug, Error)]
pub enum Attempt {
    #[error("the name {host} was not resolved: set MASTER_ADDR to an address of rank 0's host")]
    Resolve {
        host: String,
        #[source]
        source: io::Error,
    },
    #[error("nobody answers at {place}")]
    Connect {
        place: String,
        #[source]
        source: io::Error,
    },
    #[error("whoever answers at {place} is not rank 0 of this job")]
    Stranger {
        place: String,
        #[source]
        source: TrustError,
    },
    #[error("whoever answers at {place} belongs to another user")]
    OtherUser { place: String },
}

/// Whether the error says what is wrong with the peer, and not only that it went away, as anyone does at the end.
fn is_telling(error: &TrustError) -> bool {
    !matches!(error, TrustError::Io(_) | TrustError::HungUp)
}

impl Attempt {
    /// Whoever answered and refused tells more than a place where nobody is.
    fn or_more_telling(self, earlier: Option<Attempt>) -> Attempt {
        let telling = |attempt: &Attempt| match attempt {
            Attempt::Stranger { source, .. } => is_telling(source),
            Attempt::OtherUser { .. } => true,
            Attempt::Resolve { .. } | Attempt::Connect { .. } => false,
        };
        earlier.filter(|earlier| telling(earlier) && !telling(&self)).unwrap_or(self)
    }
}

/// As people list them.
#[derive(Debug, PartialEq, Eq)]
pub struct Ranks(pub Vec<usize>);

impl fmt::Display for Ranks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const MOST_NAMED: usize = 16;
        f.write_str(if self.0.len() == 1 { "rank " } else { "ranks " })?;
        let named: Vec<String> = self.0.iter().take(MOST_NAMED).map(usize::to_string).collect();
        f.write_str(&named.join(", "))?;
        match self.0.len().saturating_sub(MOST_NAMED) {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}

/// Decodes bytes as every message that a meeting reads, and asserts what must hold whatever they are. For fuzzing.
#[doc(hidden)]
pub fn check_untrusted(bytes: &[u8]) {
    let secret = crate::trust::Secret::new("secret");
    let signed = envelope::Envelope { secret: Some(&secret), round: 1, size: 2 };
    assert!(signed.open(1, bytes).is_err(), "a blob that nobody signed is accepted");
    let plain = envelope::Envelope { secret: None, round: 1, size: 2 };
    if let Ok(blob) = plain.open(1, bytes) {
        assert_eq!(plain.seal(1, blob), bytes);
    }
    for n_blobs in [0, 1, 3, 1_000_000] {
        if let Some(blobs) = envelope::unpack(bytes, n_blobs) {
            assert_eq!(envelope::pack(&blobs), bytes);
        }
    }
    if let Ok(reply) = http::read_reply(&mut &*bytes) {
        assert!(reply.body.len() <= bytes.len());
    }
}

#[cfg(test)]
mod tests;
