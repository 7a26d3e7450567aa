//! Errors of joining a generation.

use crate::bootstrap::rendezvous::http_reply::HttpError;
use crate::engine::StartError;

/// Why a process has no place in a next generation.
#[derive(Debug, thiserror::Error)]
pub enum PlaceError {
    /// It is to end by itself, as a success.
    #[error("process {process} is not part of the job any more")]
    Dismissed { process: u64 },
    /// The reason is the driver's.
    #[error("the elastic job is over: {reason}")]
    Over { reason: String },
    #[error("cannot ask the launcher at {server} for a rank in the elastic job")]
    Unreachable {
        server: String,
        #[source]
        source: HttpError,
    },
    #[error(
        "the launcher answered `{answer}`, which is not a place in an elastic job: use one build for launcher and ranks"
    )]
    Malformed { answer: String },
    /// The caller has given up.
    #[error("interrupted while waiting for a rank in the elastic job")]
    Interrupted,
}

/// Why a process could not start its engine in a next generation.
#[derive(Debug, thiserror::Error)]
pub enum ElasticStartError {
    #[error(transparent)]
    Place(#[from] PlaceError),
    #[error(transparent)]
    Start(#[from] StartError),
}
