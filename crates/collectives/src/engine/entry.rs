//! What waits in the engine: who asked, where its bytes are, and where the result is wanted.

use std::any::Any;
use std::sync::Arc;

use crate::coordinator::Request;
use crate::engine::handle::Slot;

/// Where a tensor of a call is, and where its result is wanted.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// `n_bytes` that can be read.
    pub input: *const u8,
    /// As the request's shape says.
    pub n_bytes: usize,
    /// For the result.
    pub output: Target,
}

/// Where a result goes.
#[derive(Clone, Copy, Debug)]
pub enum Target {
    /// There; it has as many bytes as the input. May be the input itself. A reducescatter leaves this rank's rows at their place among all.
    At(*mut u8),
    /// Of an allgather: there, if everybody's elements are so many bytes. The input may be in its place among them.
    All(*mut u8, usize),
    /// The engine makes room, when it knows how much.
    Fresh,
}

// SAFETY: the addresses are the caller's promise that they stay good, and nobody else's, until the call is done.
unsafe impl Send for Place {}

/// Something of the caller's, such as the owner of a tensor's memory, that is dropped when the engine needs the tensor no more.
pub type Keeps = Option<Arc<dyn Any + Send + Sync>>;

/// What is known of an agreed-on tensor of this rank.
pub(crate) struct Entry {
    pub place: Place,
    pub slot: Arc<Slot>,
    /// Which of the call's tensors.
    pub index: usize,
    /// Whatever must live until the end.
    #[expect(dead_code, reason = "held to be dropped with the entry")]
    pub keeps: Keeps,
}

/// What is asked of the engine by other threads.
pub(crate) enum Ask {
    /// As many places as requests.
    Tensors {
        requests: Vec<Request>,
        places: Vec<Place>,
        grouped: bool,
        slot: Arc<Slot>,
        keeps: Keeps,
    },
    Barrier {
        set: crate::coordinator::SetId,
        slot: Arc<Slot>,
    },
    Join {
        set: crate::coordinator::SetId,
        slot: Arc<Slot>,
    },
    RegisterSets {
        sets: Vec<Vec<u32>>,
        slot: Arc<Slot>,
    },
    AddSet {
        ranks: Vec<u32>,
        slot: Arc<Slot>,
    },
    RemoveSet {
        set: crate::coordinator::SetId,
        slot: Arc<Slot>,
    },
    ShutDown,
}
