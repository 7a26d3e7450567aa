//! What both kinds of first meeting (`local`, `tcp`) share: who we are, how that is proved, and waiting for whoever is to come.

use std::io::{self, Read, Write};
use std::time::{Duration, Instant};

use crate::bootstrap::meet::MeetError;
use crate::trust::{Role, Secret, TrustError, prove};

/// Why a world did not come together.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    #[error("the ranks could not be told of each other")]
    Meet(#[from] MeetError),
    #[error("no {} of this host has come", list(ranks))]
    Missing {
        ranks: Vec<usize>,
        #[source]
        cause: io::Error,
    },
    #[error("no connection to {} could be made in time", list(ranks))]
    Unreachable {
        ranks: Vec<usize>,
        #[source]
        cause: io::Error,
    },
    #[error("memory could not be shared with the other ranks of this host")]
    Memory(#[source] io::Error),
    #[error("a process of another user came in place of a rank; give all ranks one CORRO_JOB_SECRET if that is meant")]
    OtherUser,
    #[error("a peer did not prove that it belongs to this job")]
    Trust(#[from] TrustError),
    #[error("rank {rank} sent an peer_info that cannot be read: use one build in all ranks")]
    PeerInfo { rank: usize },
    #[error("the network interface {name} has no address on this host; it is named by HOROVOD_GLOO_IFACE")]
    Interface { name: String },
    #[error("none of the ports {first} to {last} is free on this host; they are named by CORRO_PORTS")]
    Ports { first: u16, last: u16 },
    #[error("the network could not be used")]
    Network(#[source] io::Error),
    #[error("CORRO_TRANSPORT asks for shared memory, but rank {rank} on host {host} is on another machine than rank 0")]
    NotOneMachine { rank: usize, host: String },
    #[error(
        "CORRO_ALGORITHM must be the same on all ranks: rank {rank} on host {host} has {theirs}, rank 0 has {first}"
    )]
    Algorithms { rank: usize, host: String, theirs: String, first: String },
    #[error("CORRO_DIRECT_READ asks that ranks read each other's memory, but the kernel does not let them")]
    NotReadable,
    #[error("a thread could not be started")]
    Thread(#[source] io::Error),
    #[error("a communicator needs different ranks below {size}, this one among them; got {ranks:?}")]
    Members { ranks: Vec<usize>, size: usize },
    #[error(transparent)]
    Broken(#[from] crate::error::Error),
}

fn list(ranks: &[usize]) -> String {
    let numbers: Vec<String> = ranks.iter().map(usize::to_string).collect();
    format!("rank{} {}", if ranks.len() == 1 { "" } else { "s" }, numbers.join(", "))
}

/// What a rank proves to others: that it belongs to this world.
#[derive(Clone)]
pub struct Credentials {
    pub secret: Option<Secret>,
    /// Drawn by rank 0, so that two jobs without secrets are told apart.
    pub world: [u8; 16],
}

impl Credentials {
    /// `listener` is the rank that was dialled: an address that leads to another rank is noticed.
    pub fn prove(
        &self,
        stream: impl Read + Write,
        purpose: &str,
        listener: usize,
        role: Role,
    ) -> Result<(), ConnectError> {
        let context = [&self.world[..], purpose.as_bytes(), &(listener as u32).to_le_bytes()].concat();
        Ok(prove(stream, self.secret.as_ref(), &context, role)?)
    }
}

/// Never zero, which would mean for ever.
pub fn time_left(deadline: Instant) -> Duration {
    deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1))
}
