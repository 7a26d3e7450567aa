//! Errors of connecting the ranks of a world.

use std::io;

use crate::auth::AuthError;
use crate::bootstrap::rendezvous::error::RendezvousError;

/// Why the ranks of a world could not be connected.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    #[error("the ranks could not exchange their addresses")]
    Rendezvous(#[from] RendezvousError),
    #[error("{} of this host did not connect to its lowest rank", list(ranks))]
    Missing {
        ranks: Vec<usize>,
        #[source]
        cause: io::Error,
    },
    #[error("cannot connect to {}", list(ranks))]
    Unreachable {
        ranks: Vec<usize>,
        #[source]
        cause: io::Error,
    },
    #[error("cannot share memory with the other ranks of this host")]
    SharedMemory(#[source] io::Error),
    #[error(
        "a process of another user connected in place of a rank; give all ranks the same CORRO_JOB_SECRET to allow this"
    )]
    OtherUser,
    #[error("a peer failed to authenticate as a rank of this job")]
    Auth(#[from] AuthError),
    #[error("cannot decode the peer info of rank {rank}: use one build in all ranks")]
    PeerInfo { rank: usize },
    #[error("the network interface {name} (from HOROVOD_GLOO_IFACE) has no address on this host")]
    Interface { name: String },
    #[error("no port from {first} to {last} (CORRO_PORTS) is free on this host")]
    NoFreePort { first: u16, last: u16 },
    #[error("a network operation failed")]
    Network(#[source] io::Error),
    #[error(
        "CORRO_TRANSPORT is shm, but rank {rank} on host {host} cannot share memory with rank 0: it is on another machine"
    )]
    NotOneMachine { rank: usize, host: String },
    #[error(
        "CORRO_ALGORITHM must be the same on all ranks: rank {rank} on host {host} has {theirs}, rank 0 has {first}"
    )]
    AlgorithmMismatch { rank: usize, host: String, theirs: String, first: String },
    #[error(
        "CORRO_DIRECT_READ is 1, but the kernel does not let the ranks read each other's memory (process_vm_readv)"
    )]
    CmaUnavailable,
    #[error("cannot start a thread")]
    Thread(#[source] io::Error),
    #[error("a communicator needs ascending ranks below {size}; got {ranks:?}")]
    InvalidMembers { ranks: Vec<usize>, size: usize },
    #[error(transparent)]
    Broken(#[from] crate::error::Error),
}

fn list(ranks: &[usize]) -> String {
    let numbers: Vec<String> = ranks.iter().map(usize::to_string).collect();
    format!("rank{} {}", if ranks.len() == 1 { "" } else { "s" }, numbers.join(", "))
}
