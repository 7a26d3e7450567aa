//! What waits in the engine: who asked, where its bytes are, and where the result is wanted.

use std::any::Any;
use std::sync::Arc;

use crate::coordinator::Request;
use crate::engine::handle::Completion;

/// Where a tensor of a call is, and where its result is wanted.
#[derive(Clone, Copy, Debug)]
pub struct TensorBuffers {
    /// `n_bytes` that can be read.
    pub input: *const u8,
    /// As the request's shape says.
    pub n_bytes: usize,
    /// For the result.
    pub output: OutputBuffer,
}

/// Where a result goes.
#[derive(Clone, Copy, Debug)]
pub enum OutputBuffer {
    /// There; it has as many bytes as the input. May be the input itself. A reducescatter leaves this rank's rows at their place among all.
    SameSize(*mut u8),
    /// Of an allgather: there, if everybody's elements are so many bytes. The input may be in its place among them.
    Gathered(*mut u8, usize),
    /// The engine makes room, when it knows how much.
    Allocate,
}

// SAFETY: the addresses are the caller's promise that they stay good, and nobody else's, until the call is done.
unsafe impl Send for TensorBuffers {}

/// Something of the caller's, such as the owner of a tensor's memory, that is dropped when the engine needs the tensor no more.
pub type BufferOwner = Option<Arc<dyn Any + Send + Sync>>;

/// What is known of an agreed-on tensor of this rank.
pub(crate) struct TensorTableEntry {
    pub buffers: TensorBuffers,
    pub completion: Arc<Completion>,
    /// Which of the call's tensors.
    pub index: usize,
    /// Whatever must live until the end.
    #[expect(dead_code, reason = "held to be dropped with the entry")]
    pub owner: BufferOwner,
}

/// What is asked of the engine by other threads.
pub(crate) enum Submission {
    /// As many places as requests.
    Tensors {
        requests: Vec<Request>,
        buffers: Vec<TensorBuffers>,
        grouped: bool,
        completion: Arc<Completion>,
        owner: BufferOwner,
    },
    Barrier {
        set: crate::coordinator::SetId,
        completion: Arc<Completion>,
    },
    Join {
        set: crate::coordinator::SetId,
        completion: Arc<Completion>,
    },
    RegisterSets {
        sets: Vec<Vec<u32>>,
        completion: Arc<Completion>,
    },
    AddSet {
        ranks: Vec<u32>,
        completion: Arc<Completion>,
    },
    RemoveSet {
        set: crate::coordinator::SetId,
        completion: Arc<Completion>,
    },
    ShutDown,
}
