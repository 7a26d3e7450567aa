//! Errors of collective operations.

use std::io;
use std::sync::Arc;
use std::time::Duration;

/// Why a collective operation failed. All but the last break the communicator: later operations fail with the same error.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// Its process ended without a BYE frame, or its host went down. Ranks that wait for another rank get this error too.
    #[error("rank {} on host {} has died", peer.rank, peer.host)]
    Died { peer: Peer },
    /// It may be alive, but a rank that needs it cannot reach it.
    #[error("the connection to rank {} on host {} was lost", peer.rank, peer.host)]
    Lost { peer: Peer },
    /// It dropped its world (BYE frame) while an operation needed it.
    #[error("rank {} on host {} has left while others still needed it", peer.rank, peer.host)]
    Left { peer: Peer },
    /// A TCP connection failed.
    #[error("the connection to rank {} on host {} broke", peer.rank, peer.host)]
    Link {
        peer: Peer,
        #[source]
        cause: Arc<io::Error>,
    },
    /// After `HOROVOD_GLOO_TIMEOUT_SECONDS` inside an operation.
    #[error("rank {} on host {} has not answered for {} s", peer.rank, peer.host, waited.as_secs())]
    Silent { peer: Peer, waited: Duration },
    /// Invalid arguments. Nothing was sent, and the communicator stays usable.
    #[error(transparent)]
    InvalidArgument(#[from] InvalidArgument),
}

/// A rank and its host, for messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Rank in the world.
    pub rank: usize,
    /// The host name that the launcher uses.
    pub host: Arc<str>,
}

/// Invalid arguments of an operation. Nothing was sent; the communicator stays usable.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidArgument {
    #[error("the output has {output} bytes, the input {input}: they must have the same length")]
    LengthMismatch { input: usize, output: usize },
    #[error("{bytes} bytes are not a whole number of {dtype} elements")]
    PartialElement { bytes: usize, dtype: &'static str },
    #[error("root rank {root} is not one of the {size} ranks")]
    Root { root: usize, size: usize },
    #[error("{given} counts for {size} ranks: give one for each")]
    CountsLength { given: usize, size: usize },
    #[error("the counts add up to {counted} bytes, but the buffer has {held}")]
    CountsSum { counted: usize, held: usize },
    #[error("cannot allocate {n_bytes} bytes for the input of all ranks")]
    TooLarge { n_bytes: usize },
    #[error("{op} is not defined for {dtype}")]
    Unsupported { op: &'static str, dtype: &'static str },
    #[error("Adasum needs a power of two of ranks; there are {size}")]
    AdasumSize { size: usize },
}
