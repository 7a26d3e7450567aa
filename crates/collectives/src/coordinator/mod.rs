//! Horovod's negotiation: decides which tensors are ready on all ranks, in which order they are executed and which are fused, and reports
//! requests that do not match. A [`Worker`] on every rank sends requests to the one [`Coordinator`] on global rank 0 and turns its
//! responses into [`Action`]s. The caller carries the bytes and executes the actions.
//!
//! Both sides are state machines without clock, I/O or threads: time is an argument. Nothing waits for a timer or a cycle; the request of
//! the last rank is answered at once.
//!
//! Reading order: `request` and `message` are the data, `wire` is their encoding. `controller` is the side of rank 0, `worker` the side of
//! every rank. `error_messages` has the texts that users see.

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

/// Configuration of the coordinator.
#[derive(Clone, Debug)]
pub struct Config {
    /// Host name of every global rank, for stall reports.
    pub hosts: Vec<String>,
    /// Fusion threshold in bytes, before rounding; 0 disables fusion. `HOROVOD_FUSION_THRESHOLD`, 128 MiB by default.
    pub fusion_threshold: u64,
    /// Ranks on this host, for rounding the fusion threshold.
    pub local_size: u32,
    /// True if every host has the same number of ranks.
    pub homogeneous: bool,
    /// `HOROVOD_DISABLE_GROUP_FUSION`: tensors of a group are fused only with each other.
    pub disable_group_fusion: bool,
    /// Responses cached per process set; 0 disables the cache. `HOROVOD_CACHE_CAPACITY`, 1024 by default.
    pub cache_capacity: usize,
    /// Stall inspection; `None` if `HOROVOD_STALL_CHECK_DISABLE` is set.
    pub stall: Option<StallLimits>,
}

impl Config {
    fn threshold(&self) -> u64 {
        controller::fusion::rounded_threshold(self.fusion_threshold, self.local_size.into(), self.homogeneous)
    }
}
