//! What a member says is to be done. The engine reads it.

use std::sync::Arc;

use crate::coordinator::error_messages::ProcessSetError;
use crate::coordinator::message::{FusionKey, ProcessSet, Response, ShutdownReason, Tuning};
use crate::coordinator::request::{CacheId, RequestId, SetGeneration, SetId};

/// What the engine has to do, in this order.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// One operation on all of these tensors together.
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
    /// Comes before the failure of what waited in the set.
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
    /// The last action. What was pending fails with the text, and so does what comes.
    ShutDown {
        request_ids: Vec<RequestId>,
        reason: ShutdownReason,
        text: Arc<str>,
    },
}

#[derive(Clone, Debug, PartialEq)]
pub struct NegotiatedTensor {
    /// `None`: this rank has joined and supplies zeros.
    pub request_id: Option<RequestId>,
    pub response: Arc<Response>,
    /// Alltoall: rows for each member. Otherwise empty.
    pub splits: Arc<[u64]>,
}

/// The coordinator said what cannot be. The engine ends.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProtocolError {
    #[error("the coordinator named an unknown agreement {0}")]
    UnknownCacheId(CacheId),
    #[error("the coordinator named an unknown process set (generation {0})")]
    UnknownGeneration(SetGeneration),
    #[error("the coordinator answered {0:?}, which this rank did not ask for")]
    NotRequested(Arc<str>),
    #[error("the coordinator asked to perform nothing")]
    EmptyExecute,
}
