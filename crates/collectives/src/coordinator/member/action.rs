//! What a member says is to be done. The engine reads it.

use std::sync::Arc;

use crate::coordinator::message::{Agreed, Area, CacheId, SetId, SetMade, ShutdownReason, Terms, Token, Tuning};
use crate::coordinator::text::Refusal;

/// What the engine has to do, in this order.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// One operation on all of these tensors together.
    Perform {
        set: SetId,
        terms: Terms,
        tensors: Vec<Tensor>,
    },
    Fail {
        tokens: Vec<Token>,
        text: Arc<str>,
    },
    Barrier {
        token: Token,
    },
    Joined {
        token: Token,
        /// The global rank that joined last.
        last: u32,
    },
    SetsAdded {
        token: Token,
        sets: Arc<[SetMade]>,
    },
    /// Comes before the failure of what waited in the set.
    SetRemoved {
        token: Token,
        set: SetId,
        area: Area,
    },
    SetRefused {
        token: Token,
        refusal: Refusal,
    },
    Tune(Tuning),
    /// The last action. What was pending fails with the text, and so does what comes.
    ShutDown {
        tokens: Vec<Token>,
        reason: ShutdownReason,
        text: Arc<str>,
    },
}

#[derive(Clone, Debug, PartialEq)]
pub struct Tensor {
    /// `None`: this rank has joined and supplies zeros.
    pub token: Option<Token>,
    pub agreed: Arc<Agreed>,
    /// Alltoall: rows for each member. Otherwise empty.
    pub splits: Arc<[u64]>,
}

/// The coordinator said what cannot be. The engine ends.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProtocolError {
    #[error("the coordinator named an unknown agreement {0}")]
    UnknownId(CacheId),
    #[error("the coordinator named an unknown process set (area {0})")]
    UnknownArea(Area),
    #[error("the coordinator answered {0:?}, which this rank did not ask for")]
    Unasked(Arc<str>),
    #[error("the coordinator asked to perform nothing")]
    Nothing,
}
