//! Submissions from API threads to the progress engine, and the buffers of their tensors.

use std::any::Any;
use std::sync::Arc;

use crate::coordinator::Request;
use crate::device::context::DeviceEvent;
use crate::engine::handle::Completion;

/// Input and output of one tensor.
#[derive(Clone, Copy, Debug)]
pub struct TensorBuffers {
    /// Address of `n_bytes` readable bytes.
    pub input: *const u8,
    /// Size of the input: elements of the request's shape times the dtype's size.
    pub n_bytes: usize,
    /// Destination of the result.
    pub output: OutputBuffer,
}

/// Destination of a result.
#[derive(Clone, Copy, Debug)]
pub enum OutputBuffer {
    /// Buffer of the input's size; may be the input itself. A reducescatter writes this rank's rows at their offset in the full tensor.
    SameSize(*mut u8),
    /// Allgather: buffer of this many bytes for all ranks' parts. The input may lie at its own offset in it. The operation fails on this
    /// rank if the parts have a different total size.
    Gathered(*mut u8, usize),
    /// The engine allocates the result once its size is known.
    Allocate,
}

// SAFETY: `Engine::submit` requires that the buffers stay valid and are not accessed by others until the operation is complete, so
// the progress engine may use them from any thread.
unsafe impl Send for TensorBuffers {}

/// Owner of a tensor's memory. The engine drops it when it no longer uses the tensor.
pub type BufferOwner = Option<Arc<dyn Any + Send + Sync>>;

/// Entry of the tensor table (Horovod's term): a pending tensor of this rank.
pub(crate) struct TensorTableEntry {
    pub buffers: TensorBuffers,
    pub completion: Arc<Completion>,
    /// Index of the tensor in its call.
    pub index: usize,
    /// Keeps the memory alive until the operation is complete.
    #[expect(dead_code, reason = "dropped with the entry")]
    pub owner: BufferOwner,
    /// The buffers are addresses of a device, and the input is there when the event is complete.
    pub ready: Option<Arc<DeviceEvent>>,
}

/// Submission from an API thread.
pub(crate) enum Submission {
    /// Operations on tensors, with one element of `buffers` for each request.
    Tensors {
        requests: Vec<Request>,
        buffers: Vec<TensorBuffers>,
        grouped: bool,
        completion: Arc<Completion>,
        owner: BufferOwner,
        /// As in [`TensorTableEntry`].
        ready: Option<Arc<DeviceEvent>>,
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
