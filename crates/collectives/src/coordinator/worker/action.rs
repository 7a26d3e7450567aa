//! Actions that the worker asks its caller to carry out.

use std::sync::Arc;

use crate::coordinator::error_messages::ProcessSetError;
use crate::coordinator::message::{FusionKey, ProcessSet, Response, ShutdownReason, Tuning};
use crate::coordinator::request::{CacheId, RequestId, SetGeneration, SetId};

/// One action. Actions are carried out in order.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Execute one operation on all of these tensors, fused.
    Execute {
        set: SetId,
        key: FusionKey,
        tensors: Vec<NegotiatedTensor>,
    },
    Fail {
        request_ids: Vec<RequestId>,
        text: Arc<str>,
    },
    Barrier {
        request_id: RequestId,
    },
    Joined {
        request_id: RequestId,
        /// The global rank that joined last.
        last: u32,
    },
    SetsAdded {
        request_id: RequestId,
        sets: Arc<[ProcessSet]>,
    },
    /// Followed by `Fail` actions for the pending operations of the set.
    SetRemoved {
        request_id: RequestId,
        set: SetId,
        generation: SetGeneration,
    },
    SetRefused {
        request_id: RequestId,
        error: ProcessSetError,
    },
    Tune(Tuning),
    /// The last action: pending and future operations fail with the text.
    ShutDown {
        request_ids: Vec<RequestId>,
        reason: ShutdownReason,
        text: Arc<str>,
    },
}

/// One tensor of an operation.
#[derive(Clone, Debug, PartialEq)]
pub struct NegotiatedTensor {
    /// `None` if this rank has joined and contributes zeros.
    pub request_id: Option<RequestId>,
    pub response: Arc<Response>,
    /// Alltoall: rows that this rank sends to each member. Otherwise empty.
    pub splits: Arc<[u64]>,
}

/// Response of the coordinator that contradicts the worker's state. A bug or a corrupted stream; the engine shuts down.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProtocolError {
    #[error("protocol error: the coordinator sent the unknown cache id {0}")]
    UnknownCacheId(CacheId),
    #[error("protocol error: the coordinator sent a response for an unknown process set (generation {0})")]
    UnknownGeneration(SetGeneration),
    #[error("protocol error: the coordinator sent a response for {0:?}, which this rank did not request")]
    NotRequested(Arc<str>),
    #[error("protocol error: the coordinator sent an operation without tensors")]
    EmptyExecute,
}
