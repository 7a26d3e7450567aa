//! Messages between workers and the coordinator. Plain data without logic.

use std::sync::Arc;

use crate::{Dtype, ReduceOp};

use super::error_messages::ProcessSetError;
use super::request::{CacheId, Kind, Request, SetGeneration, SetId};

/// Message from a worker to the coordinator.
#[derive(Clone, Debug, PartialEq)]
pub enum ToCoordinator {
    /// Request for one tensor whose response is cached. Nearly all requests of a training loop are of this kind.
    CacheHit(CacheId),
    /// Several requests, or at least one in full.
    Submit {
        grouped: bool,
        items: Vec<RequestItem>,
    },
    /// A submission rejected with [`ToWorker::Resend`], now in full. The coordinator defers the rank's later messages until it arrives.
    Resubmit {
        grouped: bool,
        items: Vec<RequestItem>,
    },
    Barrier(SetGeneration),
    Join(SetGeneration),
    /// The process sets given at init. Sent once, before any other message about sets.
    RegisterSets(Vec<Vec<u32>>),
    AddSet(Vec<u32>),
    RemoveSet(SetGeneration),
    Shutdown,
}

/// One request of a submission.
#[derive(Clone, Debug, PartialEq)]
pub enum RequestItem {
    Cached(CacheId),
    /// Full request. The generation replaces the request's set id on the wire.
    Full(SetGeneration, Box<Request>),
}

/// Message from the coordinator to a worker. Workers carry messages out in the order in which they receive them.
#[derive(Clone, Debug, PartialEq)]
pub enum ToWorker {
    Execute {
        items: Arc<[ResponseItem]>,
        /// Indices of items that this rank did not submit because it has joined. It contributes zeros.
        zeros: Vec<u32>,
    },
    /// The named operations fail because the ranks' requests do not match.
    Error {
        generation: SetGeneration,
        names: Vec<Arc<str>>,
        text: Arc<str>,
    },
    /// All members have reached the barrier or have joined. Sent to the members that requested it.
    Barrier(SetGeneration),
    /// All members have joined; `last` is the global rank that joined last.
    Joined {
        generation: SetGeneration,
        last: u32,
    },
    /// Cache ids that are no longer valid.
    Evicted(Arc<[CacheId]>),
    /// The submission with this number (counted from 0 per rank) had an unknown cache id and was ignored; the worker sends it again in
    /// full. The coordinator defers the rank's later messages until then: a join must not overtake an earlier submission.
    Resend(u64),
    SetsAdded(Arc<[ProcessSet]>),
    SetRemoved(SetGeneration),
    SetRefused(ProcessSetError),
    Tune(Tuning),
    Shutdown(ShutdownReason),
}

/// One tensor to execute. The items of one message are executed as one fused operation, in this order.
#[derive(Clone, Debug, PartialEq)]
pub enum ResponseItem {
    Cached(CacheId),
    /// Full response, and the cache id to store it under.
    New(Arc<Response>, Option<CacheId>),
}

/// Negotiated result for one tensor: how the ranks execute it.
#[derive(Clone, Debug, PartialEq)]
pub struct Response {
    pub key: FusionKey,
    pub name: Arc<str>,
    /// Shape of every rank's tensor. Allgather and alltoall: shape of the result on this rank.
    pub shape: Vec<u64>,
    /// Allgather: rows of each member's tensor. Alltoall: rows received from each member. Otherwise empty.
    pub rows: Vec<u64>,
}

/// Properties that tensors must share to be fused. Fields without meaning for a kind have a fixed value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FusionKey {
    pub generation: SetGeneration,
    pub kind: Kind,
    pub dtype: Dtype,
    pub op: ReduceOp,
    pub root: u32,
    /// True if the tensor is in CPU memory on all ranks, false if on a GPU on all ranks.
    pub on_cpu: bool,
    pub prescale: f64,
    pub postscale: f64,
}

impl FusionKey {
    /// Fusion key of a request in the process set with this generation.
    pub fn new(generation: SetGeneration, request: &Request) -> FusionKey {
        let reduces = request.kind.reduces();
        FusionKey {
            generation,
            kind: request.kind,
            dtype: request.dtype,
            op: if reduces { request.op } else { ReduceOp::Sum },
            root: if request.kind == Kind::Broadcast { request.root } else { 0 },
            on_cpu: request.device < 0,
            prescale: if reduces { request.prescale } else { 1.0 },
            postscale: if reduces { request.postscale } else { 1.0 },
        }
    }
}

/// A registered process set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessSet {
    pub id: SetId,
    pub generation: SetGeneration,
    /// Global ranks, ascending.
    pub ranks: Vec<u32>,
}

/// Parameters set by autotuning.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tuning {
    /// Bytes.
    pub fusion_threshold: u64,
    pub cycle_time_ms: f64,
}

/// Reason for the shutdown of all ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ShutdownReason {
    /// A rank requested it.
    Requested { rank: u32 },
    /// A rank died; the text names it and its host.
    Lost { rank: u32, text: Arc<str> },
    /// A tensor was incomplete for longer than the stall shutdown time.
    Stalled,
}
