//! What ranks and the coordinator tell each other. Everyone in this folder enters; the engine builds [`Request`]s and passes
//! the rest on. Plain data: nothing here decides.
//!
//! A process set is known to users by its [`SetId`], which is used again after a removal. On the wire it is known by its area, a
//! number that never comes back, so that a message on its way while a set ends can never reach the next one of that id.

use std::sync::Arc;

use crate::{Dtype, ReduceOp};

use super::error_messages::ProcessSetError;
use super::request::{CacheId, Kind, Request, SetGeneration, SetId};

/// From a rank to the coordinator.
#[derive(Clone, Debug, PartialEq)]
pub enum ToCoordinator {
    /// One tensor on known terms: nearly everything that is ever sent.
    CacheHit(CacheId),
    /// Several at once, or at least one in full.
    Submit {
        grouped: bool,
        items: Vec<RequestItem>,
    },
    /// In full what was turned down with [`ToMember::Resend`]; until it comes, the rank's later messages wait for it.
    Resubmit {
        grouped: bool,
        items: Vec<RequestItem>,
    },
    Barrier(SetGeneration),
    Join(SetGeneration),
    /// The process sets given at init: once, before anything else about sets.
    RegisterSets(Vec<Vec<u32>>),
    AddSet(Vec<u32>),
    RemoveSet(SetGeneration),
    Shutdown,
}

#[derive(Clone, Debug, PartialEq)]
pub enum RequestItem {
    Cached(CacheId),
    /// The request's set id does not travel; the area does.
    Full(SetGeneration, Box<Request>),
}

/// From the coordinator to a rank, in the order in which it is to be carried out.
#[derive(Clone, Debug, PartialEq)]
pub enum ToWorker {
    Execute {
        items: Arc<[ResponseItem]>,
        /// Which of the items this rank did not submit (it has joined): it supplies zeros.
        zeros: Vec<u32>,
    },
    /// The named operations cannot be: what they were asked for differs.
    Error {
        generation: SetGeneration,
        names: Vec<Arc<str>>,
        text: Arc<str>,
    },
    /// All members have asked for it, or have joined; told to those who asked.
    Barrier(SetGeneration),
    /// All members have joined, this one last (a global rank).
    Joined {
        generation: SetGeneration,
        last: u32,
    },
    /// Terms that no longer have an id.
    Evicted(Arc<[CacheId]>),
    /// The submission with this number (counted from 0 per rank) named an unknown id and was not looked at: once more, in full. Until
    /// then nothing later of this rank is looked at either: a join must not overtake what was submitted before it.
    Resend(u64),
    SetsAdded(Arc<[ProcessSet]>),
    SetRemoved(SetGeneration),
    SetRefused(ProcessSetError),
    Tune(Tuning),
    Shutdown(ShutdownReason),
}

/// One tensor to be performed. Those of one message are performed as one, in this order.
#[derive(Clone, Debug, PartialEq)]
pub enum ResponseItem {
    Cached(CacheId),
    /// In full, and what it is to be remembered by.
    New(Arc<Response>, Option<CacheId>),
}

/// What all ranks agreed on for one tensor.
#[derive(Clone, Debug, PartialEq)]
pub struct Response {
    pub key: FusionKey,
    pub name: Arc<str>,
    /// Of every rank's tensor; allgather and alltoall: of the result on this rank.
    pub shape: Vec<u64>,
    /// Allgather: rows of each member's tensor. Alltoall: rows received from each member. Otherwise empty.
    pub rows: Vec<u64>,
}

/// What tensors must have in common to be performed as one. Fields that a kind has no use for are always the same.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FusionKey {
    pub generation: SetGeneration,
    pub kind: Kind,
    pub dtype: Dtype,
    pub op: ReduceOp,
    pub root: u32,
    /// On the CPU of all ranks, otherwise on a GPU of all ranks.
    pub on_cpu: bool,
    pub prescale: f64,
    pub postscale: f64,
}

impl FusionKey {
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

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessSet {
    pub id: SetId,
    pub generation: SetGeneration,
    /// Ascending.
    pub ranks: Vec<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tuning {
    pub fusion_threshold: u64,
    pub cycle_time_ms: f64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ShutdownReason {
    /// A rank asked for it.
    Requested { rank: u32 },
    /// A rank is gone; the text says which one and where.
    Lost { rank: u32, text: Arc<str> },
    /// Some tensors waited for longer than the shutdown time.
    Stalled,
}
