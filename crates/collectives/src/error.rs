//! What can go wrong between ranks. Everyone meets these; the doors turn them into what their callers expect.

use std::io;
use std::sync::Arc;
use std::time::Duration;

/// Why a collective operation did not come to its end. All but the last break the communicator: what is tried afterwards fails alike.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// Its process ended without a goodbye, or its host did. Also told to those who were waiting for somebody else.
    #[error("rank {} on host {} has died", peer.rank, peer.host)]
    Died { peer: Peer },
    /// It may live, but somebody who needs it cannot reach it.
    #[error("the connection to rank {} on host {} was lost", peer.rank, peer.host)]
    Lost { peer: Peer },
    /// It dropped its world in good order, while an operation needed it.
    #[error("rank {} on host {} has left while others still needed it", peer.rank, peer.host)]
    Left { peer: Peer },
    /// Between hosts.
    #[error("the connection to rank {} on host {} broke", peer.rank, peer.host)]
    Link {
        peer: Peer,
        #[source]
        cause: Arc<io::Error>,
    },
    /// Only with [`Options::silence_limit`](crate::Options).
    #[error("rank {} on host {} has not answered for {} s", peer.rank, peer.host, waited.as_secs())]
    Silent { peer: Peer, waited: Duration },
    /// Nothing was sent, and the communicator is as good as before.
    #[error(transparent)]
    InvalidArgument(#[from] InvalidArgument),
}

/// A rank as messages name it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Of the world.
    pub rank: usize,
    /// As its launcher calls it.
    pub host: Arc<str>,
}

/// What the caller asked for cannot be done. Nothing was sent; the communicator is as good as before.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidArgument {
    #[error("the output holds {output} bytes, the input {input}: they must be of one length")]
    LengthMismatch { input: usize, output: usize },
    #[error("{bytes} bytes are no whole number of {dtype} elements")]
    PartialElement { bytes: usize, dtype: &'static str },
    #[error("root rank {root} is not one of the {size} ranks")]
    Root { root: usize, size: usize },
    #[error("{given} counts for {size} ranks: give one for each")]
    CountsLength { given: usize, size: usize },
    #[error("the counts add up to {counted} bytes, the buffer holds {held}")]
    CountsSum { counted: usize, held: usize },
    #[error("all ranks together brought {n_bytes} bytes, for which there is no room")]
    TooLarge { n_bytes: usize },
    #[error("{op} is not defined for {dtype}")]
    Unsupported { op: &'static str, dtype: &'static str },
    #[error("Adasum needs a power of two of ranks; there are {size}")]
    AdasumSize { size: usize },
}
