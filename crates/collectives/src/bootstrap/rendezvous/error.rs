//! Errors of a rendezvous.

use std::fmt;
use std::io;
use std::time::Duration;

use thiserror::Error;

use super::http_reply::HttpError;
use crate::auth::AuthError;

/// Maximum bytes of a blob. Peer infos have some hundred bytes; the blobs of all ranks must fit into one reply of a key-value server.
pub const MAX_BLOB_BYTES: usize = 128 * 1024;

#[derive(Debug, Error)]
pub enum RendezvousError {
    #[error("a rendezvous blob has at most {MAX_BLOB_BYTES} bytes; this one has {n_bytes}")]
    TooLong { n_bytes: usize },
    #[error("{ranks} did not join the rendezvous within {waited:.1?}: check that they run, and read their last output")]
    Missing {
        ranks: RankList,
        waited: Duration,
        /// Why the last connection was refused that failed to authenticate; it may have been one of the missing ranks.
        #[source]
        refused: Option<AuthError>,
    },
    #[error("rank 0 was not found at {addresses} within {waited:.1?}")]
    NoRank0 {
        addresses: String,
        waited: Duration,
        #[source]
        last: Box<DialError>,
    },
    #[error("rank 0 aborted the rendezvous: {reason}")]
    Aborted { reason: String },
    /// The reason names the other world, or what is wrong with the rank or size of this process.
    #[error("rank 0 refused this process: {reason}")]
    Refused { reason: String },
    /// The reason says which rank two processes claim to be.
    #[error("{reason}")]
    Ambiguous { reason: String },
    #[error("rank {rank} ended, or gave up, before {missing} had joined")]
    Left { rank: usize, missing: RankList },
    /// Reported by the launcher, or by another rank.
    #[error("the rendezvous failed: {reason}")]
    PeerFailed { reason: String },
    #[error("rank 0 closed the connection during the rendezvous: it has most likely died")]
    Rank0Lost(#[source] io::Error),
    #[error("rank {rank} joined the rendezvous without the job's secret: pass CORRO_JOB_SECRET to every rank")]
    Unsigned { rank: usize },
    #[error("rank {rank} signs with a secret, but this process has none: pass CORRO_JOB_SECRET to every rank")]
    WithoutSecret { rank: usize },
    #[error("the blob of rank {rank} is not signed with the job's secret")]
    WrongSignature { rank: usize },
    #[error("the blob of rank {rank} is malformed: use one build in all ranks")]
    Malformed { rank: usize },
    #[error("cannot talk to the launcher's key-value server at {server}")]
    Server {
        server: String,
        #[source]
        source: HttpError,
    },
    #[error("cannot listen for the other ranks at {addresses}")]
    Listen {
        addresses: String,
        #[source]
        source: io::Error,
    },
    #[error(
        "the sockets for the other ranks at {addresses} are in use, by another job or another program: choose another MASTER_PORT"
    )]
    AddressTaken {
        addresses: String,
        #[source]
        source: io::Error,
    },
    #[error("rank 0 does not run at {addresses}, where its launcher does: set MASTER_ADDR to the host of rank 0")]
    WrongHost { addresses: String },
    #[error("cannot wait for the other ranks")]
    Wait(#[source] io::Error),
}

/// Why one attempt to connect to rank 0 failed.
#[derive(Debug, Error)]
pub enum DialError {
    #[error("cannot resolve the host name {host}: set MASTER_ADDR to an address of rank 0's host")]
    Resolve {
        host: String,
        #[source]
        source: io::Error,
    },
    #[error("cannot connect to {address}")]
    Connect {
        address: String,
        #[source]
        source: io::Error,
    },
    #[error("the peer at {address} is not rank 0 of this job")]
    NotRank0 {
        address: String,
        #[source]
        source: AuthError,
    },
    #[error("the process at {address} belongs to another user")]
    OtherUser { address: String },
}

/// Whether the error says what is wrong with the peer, and not only that the connection ended.
pub fn is_informative(error: &AuthError) -> bool {
    !matches!(error, AuthError::Io(_) | AuthError::Closed)
}

impl DialError {
    /// Chooses the error to report: that of a peer that answered and was refused explains more than that of an address that did not answer.
    pub fn prefer_informative(self, earlier: Option<DialError>) -> DialError {
        let informative = |error: &DialError| match error {
            DialError::NotRank0 { source, .. } => is_informative(source),
            DialError::OtherUser { .. } => true,
            DialError::Resolve { .. } | DialError::Connect { .. } => false,
        };
        earlier.filter(|earlier| informative(earlier) && !informative(&self)).unwrap_or(self)
    }
}

/// Ranks in a message: "ranks 1, 2 and 3 more".
#[derive(Debug, PartialEq, Eq)]
pub struct RankList(pub Vec<usize>);

impl fmt::Display for RankList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const MAX_NAMED: usize = 16;
        f.write_str(if self.0.len() == 1 { "rank " } else { "ranks " })?;
        let named: Vec<String> = self.0.iter().take(MAX_NAMED).map(usize::to_string).collect();
        f.write_str(&named.join(", "))?;
        match self.0.len().saturating_sub(MAX_NAMED) {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lists_of_ranks_are_shortened() {
        assert_eq!(RankList(vec![3]).to_string(), "rank 3");
        assert_eq!(RankList(vec![1, 2]).to_string(), "ranks 1, 2");
        assert!(RankList((0..20).collect()).to_string().ends_with("14, 15 and 4 more"));
    }
}
