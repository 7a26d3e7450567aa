//! Horovod's agreement: which tensors are ready on all ranks, in which order and in which company they are performed, and what does
//! not fit together. The engine enters: it carries bytes between the [`Member`] on every rank and the one [`Coordinator`] on global
//! rank 0, and does what the member says. State machines only: no clock, no I/O, no threads, and nothing ever waits for a
//! timer – the last rank's request is answered at once.
//!
//! Reading order: `message` has what is said and `wire` how it looks as bytes; `member` and `core` are the two sides; `tally`
//! counts who has asked, `settle` decides, `check` compares, `entry` and `cache` remember, `fusion` and `queue` order the answers; `sets` makes
//! process sets, `stall` names those who let others wait, `event` is for timelines, `text` for users.

mod controller;
mod error_messages;
mod id_map;
mod message;
mod request;
mod wire;
mod worker;

#[cfg(test)]
mod tests;

pub use controller::{
    Coordinator, IncompleteOp, MissingRank, NegotiationEvent, NegotiationEvents, StallLimits, StallReport,
};
pub use error_messages::{ProcessSetError, SHUTDOWN_MESSAGE, SubmitError};
pub use message::{
    FusionKey, ProcessSet, RequestItem, Response, ResponseItem, ShutdownReason, ToCoordinator, ToWorker, Tuning,
};
pub use request::{CacheId, GLOBAL_GENERATION, Kind, Request, RequestId, SetGeneration, SetId};
pub use wire::{DecodeError, decode_to_coordinator, decode_to_worker, encode_to_coordinator, encode_to_worker};
pub use worker::{Action, NegotiatedTensor, ProtocolError, Worker, WorkerConfig, validate_request};

/// What the coordinator goes by.
#[derive(Clone, Debug)]
pub struct Config {
    /// The host of every global rank.
    pub hosts: Vec<String>,
    /// Bytes before rounding; 0 turns fusion off. `HOROVOD_FUSION_THRESHOLD`, 128 MiB.
    pub fusion_threshold: u64,
    /// Ranks on this host, for the rounding.
    pub local_size: u32,
    /// Equally many ranks on every host.
    pub homogeneous: bool,
    /// `HOROVOD_DISABLE_GROUP_FUSION`.
    pub disable_group_fusion: bool,
    /// Per process set; 0 turns the cache off. `HOROVOD_CACHE_CAPACITY`, 1024.
    pub cache_capacity: usize,
    /// `None` is `HOROVOD_STALL_CHECK_DISABLE`.
    pub stall: Option<StallLimits>,
}

impl Config {
    fn threshold(&self) -> u64 {
        controller::fusion::rounded_threshold(self.fusion_threshold, self.local_size.into(), self.homogeneous)
    }
}
