//! Public operations of the engine: blocking calls on slices (single tensors here, groups in [`grouped`]), non-blocking calls that own their
//! vectors ([`asynchronous`]), and calls on raw buffers for language bindings. Every operation has a name; ranks may call in any order.
//!
//! All operations are collective over the members of a process set ([`SetId::GLOBAL`] is all ranks): an operation is executed when every
//! member has submitted it under the same name. A name can be reused once its operation is complete on this rank. Lengths are in elements,
//! roots are global ranks, empty tensors are allowed.
//!
//! All operations have the same errors. [`EngineError::Refused`]: this rank's arguments are invalid, or the name is in flight here; no other
//! rank is involved. [`EngineError::Failed`]: the members' requests do not match (all of them get Horovod's message, and the engine stays
//! usable), a rank died (the text names it), or a rank has shut the engine down. After the last two all operations fail.

pub mod asynchronous;
pub mod grouped;
mod request_builders;

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::algorithm::partition;
use crate::compression::{Compression, narrow, widen};
use crate::coordinator::{ProcessSet, Request, SetId, SubmitError};
use crate::device::context::DeviceEvent;
use crate::dtype::{Element, bytes_of_mut};
use crate::engine::Engine;
use crate::engine::handle::{Completion, CompletionEvent, EngineError, Outcome};
use crate::engine::ops::request_builders::{
    allgather_request, allocate_output, alltoall_request, broadcast_request, in_place_buffers, output_elements,
};
use crate::engine::ops::request_builders::{allreduce_request, reducescatter_request};
use crate::engine::submission::{BufferOwner, OutputBuffer, Submission, TensorBuffers};
use crate::op::ReduceOp;

/// Parameters of a reduction, the same on all members.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reduce {
    /// Reduce operation.
    pub op: ReduceOp,
    /// Factor of each rank's input.
    pub prescale: f64,
    /// Factor of the result, in addition to the division of an average.
    pub postscale: f64,
    /// Process set.
    pub set: SetId,
}

impl Reduce {
    /// Average over all ranks, unscaled.
    pub const AVERAGE: Reduce = Reduce { op: ReduceOp::Average, prescale: 1.0, postscale: 1.0, set: SetId::GLOBAL };
    /// Sum over all ranks, unscaled.
    pub const SUM: Reduce = Reduce { op: ReduceOp::Sum, ..Reduce::AVERAGE };
}

/// Handle of a non-blocking call, for [`Engine::synchronize`] of the same engine.
pub struct Handle {
    completion: Arc<Completion>,
}

impl Handle {
    /// True once the result is available. Never blocks; the operation makes progress without it.
    pub fn is_done(&self) -> bool {
        self.completion.is_done()
    }

    /// True if no device uses the tensors of a completed call any more. Never blocks.
    pub fn is_settled(&self) -> bool {
        self.completion.is_settled()
    }

    /// Result of a completed call. Only the first call gets the outputs.
    pub fn outcome(&self) -> Result<Outcome, EngineError> {
        debug_assert!(self.is_done(), "the call is pending");
        self.completion.take_outcome()
    }
}

impl Engine {
    /// Allreduce in place. All members pass the same number of elements of the same type.
    pub fn allreduce<T: Element>(&self, name: &str, data: &mut [T], reduce: Reduce) -> Result<(), EngineError> {
        let request = allreduce_request(name, T::DTYPE, data.len(), reduce);
        // SAFETY: the slice is borrowed until the call returns, and its length is that of the request.
        unsafe { self.submit_and_wait(vec![request], vec![in_place_buffers(data)]).map(drop) }
    }

    /// Allreduce of `input` into `output`, which has the same length.
    pub fn allreduce_into<T: Element>(
        &self,
        name: &str,
        input: &[T],
        output: &mut [T],
        reduce: Reduce,
    ) -> Result<(), EngineError> {
        if input.len() != output.len() {
            return Err(SubmitError::LengthMismatch { input: input.len(), output: output.len() }.into());
        }
        let request = allreduce_request(name, T::DTYPE, input.len(), reduce);
        let buffers = TensorBuffers {
            output: OutputBuffer::SameSize(bytes_of_mut(output).as_mut_ptr()),
            ..allocate_output(input)
        };
        // SAFETY: the slices have the same length and are borrowed until the call returns.
        unsafe { self.submit_and_wait(vec![request], vec![buffers]).map(drop) }
    }

    /// Allreduce whose values are transferred in half precision. All members use the same compression.
    pub fn allreduce_compressed(
        &self,
        name: &str,
        data: &mut [f32],
        reduce: Reduce,
        compression: Compression,
    ) -> Result<(), EngineError> {
        let Some(dtype) = compression.wire_dtype(self.rank_info().size) else {
            return self.allreduce(name, data, reduce);
        };
        let mut compressed = Vec::new();
        narrow(data, dtype, &mut compressed);
        let request = allreduce_request(name, dtype, data.len(), reduce);
        // SAFETY: the vector holds elements of `dtype` and lives in this function until the call is complete.
        unsafe { self.submit_and_wait(vec![request], vec![in_place_buffers(&mut compressed)])? };
        widen(&compressed, dtype, data);
        Ok(())
    }

    /// Concatenation of all members' `data` in rank order. Lengths may differ.
    pub fn allgather<T: Element>(&self, name: &str, data: &[T], set: SetId) -> Result<Vec<T>, EngineError> {
        // SAFETY: the slice is borrowed until the call returns, and its length is that of the request.
        let outcome =
            unsafe { self.submit_and_wait(vec![allgather_request(name, data, set)], vec![allocate_output(data)])? };
        Ok(output_elements(&outcome.outputs[0]))
    }

    /// This rank's part of `n` elements that are divided among all ranks. The first ranks get one more if they do not divide evenly.
    pub fn shard(&self, n: usize) -> Range<usize> {
        partition::split_rows(n, self.rank_info().size, self.rank_info().rank)
    }

    /// Allgather in place: each rank contributes its [`Engine::shard`] of `data` and receives the others'. All ranks pass the same number of
    /// elements.
    pub fn allgather_shards<T: Element>(&self, name: &str, data: &mut [T]) -> Result<(), EngineError> {
        let shard = self.shard(data.len());
        let all = bytes_of_mut(data);
        let output = OutputBuffer::Gathered(all.as_mut_ptr(), all.len());
        let request = allgather_request(name, &data[shard.clone()], SetId::GLOBAL);
        let buffers = TensorBuffers { output, ..allocate_output(&data[shard]) };
        // SAFETY: the slice is borrowed until the call returns, and its length is that of the request.
        unsafe { self.submit_and_wait(vec![request], vec![buffers]).map(drop) }
    }

    /// Broadcast of the `data` of global rank `root`, in place. All members pass the same number of elements and the same root.
    pub fn broadcast<T: Element>(&self, name: &str, data: &mut [T], root: u32, set: SetId) -> Result<(), EngineError> {
        let request = broadcast_request(name, data, root, set);
        // SAFETY: the slice is borrowed until the call returns, and its length is that of the request.
        unsafe { self.submit_and_wait(vec![request], vec![in_place_buffers(data)]).map(drop) }
    }

    /// Alltoall: sends consecutive parts of `data`, `splits[i]` elements to member `i` of the set; equal parts if `splits` is empty. Returns
    /// the received elements in rank order and the number received from each member.
    pub fn alltoall<T: Element>(
        &self,
        name: &str,
        data: &[T],
        splits: &[u64],
        set: SetId,
    ) -> Result<(Vec<T>, Vec<u64>), EngineError> {
        let request = alltoall_request(name, data, splits, set);
        // SAFETY: the slice is borrowed until the call returns, and its length is that of the request.
        let mut outcome = unsafe { self.submit_and_wait(vec![request], vec![allocate_output(data)])? };
        Ok((output_elements(&outcome.outputs[0]), std::mem::take(&mut outcome.outputs[0].received)))
    }

    /// Reducescatter of rows of `row` elements: reduces all members' rows and returns this rank's part of them. The first members get one row
    /// more if they do not divide evenly. Sum and average only. All members pass the same number of whole rows.
    pub fn reducescatter<T: Element>(
        &self,
        name: &str,
        data: &[T],
        row: usize,
        reduce: Reduce,
    ) -> Result<Vec<T>, EngineError> {
        let request = reducescatter_request(name, data, row, reduce)?;
        // SAFETY: the slice is borrowed until the call returns, and its length is that of the request.
        let outcome = unsafe { self.submit_and_wait(vec![request], vec![allocate_output(data)])? };
        Ok(output_elements(&outcome.outputs[0]))
    }

    /// Returns when all members have called it. At most one barrier per process set can be pending.
    pub fn barrier(&self, set: SetId) -> Result<(), EngineError> {
        self.synchronize(&self.begin_barrier(set)).map(drop)
    }

    /// Starts a [`Engine::barrier`] without waiting. As for the other `begin_` functions, a caller that waits with [`Engine::wait_for`] or
    /// [`Engine::synchronize`] makes the engine progress.
    pub fn begin_barrier(&self, set: SetId) -> Handle {
        self.begin(|completion| Submission::Barrier { set, completion })
    }

    /// Horovod's join, for a rank without more data: until all ranks have joined it takes part in the others' allreduces with zeros, which
    /// count in averages. Returns the global rank that joined last.
    pub fn join(&self) -> Result<u32, EngineError> {
        let outcome = self.synchronize(&self.begin_join())?;
        Ok(outcome.last_joined.unwrap_or_default())
    }

    /// Starts a [`Engine::join`] without waiting.
    pub fn begin_join(&self) -> Handle {
        self.begin(|completion| Submission::Join { set: SetId::GLOBAL, completion })
    }

    /// Starts a [`Engine::join`] for a caller that waits for an event; the event counts the call when it completes.
    pub fn begin_join_with_event(&self, event: Arc<CompletionEvent>) -> Handle {
        let completion = Completion::with_event(1, Some(event));
        self.enqueue(Submission::Join { set: SetId::GLOBAL, completion: completion.clone() });
        Handle { completion }
    }

    /// Adds a process set of some global ranks. Collective over all ranks, members or not, with the same `ranks` on all. Requires
    /// `HOROVOD_DYNAMIC_PROCESS_SETS=1`.
    pub fn add_set(&self, ranks: Vec<u32>) -> Result<ProcessSet, EngineError> {
        let outcome = self.synchronize(&self.begin_add_set(ranks))?;
        Ok(outcome.sets.into_iter().next().expect("one set was requested and created"))
    }

    /// Starts an [`Engine::add_set`] without waiting.
    pub fn begin_add_set(&self, ranks: Vec<u32>) -> Handle {
        self.begin(|completion| Submission::AddSet { ranks, completion })
    }

    /// Removes a process set; its pending operations fail. Collective over all ranks, with the same set on all. Requires
    /// `HOROVOD_DYNAMIC_PROCESS_SETS=1`.
    pub fn remove_set(&self, set: SetId) -> Result<(), EngineError> {
        self.synchronize(&self.begin_remove_set(set)).map(drop)
    }

    /// Starts an [`Engine::remove_set`] without waiting.
    pub fn begin_remove_set(&self, set: SetId) -> Handle {
        self.begin(|completion| Submission::RemoveSet { set, completion })
    }

    /// Registers initial process sets, as [`Engine::start_with`] does. Does not require `HOROVOD_DYNAMIC_PROCESS_SETS`.
    pub fn begin_register_sets(&self, sets: Vec<Vec<u32>>) -> Handle {
        self.begin(|completion| Submission::RegisterSets { sets, completion })
    }

    /// Submits operations on tensors without waiting. If `grouped`, they are executed as a group: all or none. A submission without tensors
    /// completes at once.
    ///
    /// # Errors
    /// Invalid arguments, a name in flight, or an engine that has shut down. Errors that involve other ranks come with the result.
    ///
    /// # Safety
    /// Until the handle is done:
    /// - each input points to `n_bytes` readable bytes, the size of its request's shape, that no thread writes;
    /// - each [`OutputBuffer::SameSize`] points to as many writable bytes, and each [`OutputBuffer::Gathered`] to as many as it says, that
    ///   no other code accesses;
    /// - an output is its input, contains it at this rank's offset (`Gathered`), or is disjoint from it.
    ///
    /// `owner` may keep the buffers alive; it is dropped when the engine no longer uses them.
    pub unsafe fn submit(
        &self,
        requests: Vec<Request>,
        buffers: Vec<TensorBuffers>,
        grouped: bool,
        owner: BufferOwner,
    ) -> Result<Handle, EngineError> {
        // SAFETY: `submit_with_event` has the same contract, and the caller guarantees it for these buffers.
        unsafe { self.submit_with_event(requests, buffers, grouped, owner, None) }
    }

    /// As [`Engine::submit`]. The event, if given, counts the call when it completes. A call without tensors is not counted.
    ///
    /// # Errors
    /// As [`Engine::submit`].
    ///
    /// # Safety
    /// As [`Engine::submit`].
    pub unsafe fn submit_with_event(
        &self,
        mut requests: Vec<Request>,
        buffers: Vec<TensorBuffers>,
        grouped: bool,
        owner: BufferOwner,
        event: Option<Arc<CompletionEvent>>,
    ) -> Result<Handle, EngineError> {
        let completion = Completion::with_event(requests.len(), event);
        self.in_flight.admit(&mut requests, grouped, &completion).map_err(EngineError::from_submit)?;
        if !requests.is_empty() {
            let completion = completion.clone();
            self.enqueue(Submission::Tensors { requests, buffers, grouped, completion, owner, ready: None });
        }
        Ok(Handle { completion })
    }

    /// As [`Engine::submit`], for tensors in the memory of a device. `ready` is an event after the work that computes the inputs. The call
    /// completes when its work is submitted to the device; [`crate::engine::handle::Output::device`] has an event after it. Outputs are
    /// [`OutputBuffer::SameSize`] or [`OutputBuffer::Allocate`].
    ///
    /// # Errors
    /// As [`Engine::submit`].
    ///
    /// # Safety
    /// As [`Engine::submit`], with addresses of the device, until that event is complete.
    pub unsafe fn submit_on_device(
        &self,
        requests: Vec<Request>,
        buffers: Vec<TensorBuffers>,
        grouped: bool,
        ready: Arc<DeviceEvent>,
    ) -> Result<Handle, EngineError> {
        // SAFETY: the same contract, which the caller guarantees.
        unsafe { self.submit_on_device_with_event(requests, buffers, grouped, ready, None) }
    }

    /// As [`Engine::submit_on_device`]; the event, if given, counts the call when it completes.
    ///
    /// # Errors
    /// As [`Engine::submit`].
    ///
    /// # Safety
    /// As [`Engine::submit_on_device`].
    pub unsafe fn submit_on_device_with_event(
        &self,
        mut requests: Vec<Request>,
        buffers: Vec<TensorBuffers>,
        grouped: bool,
        ready: Arc<DeviceEvent>,
        event: Option<Arc<CompletionEvent>>,
    ) -> Result<Handle, EngineError> {
        let completion = Completion::with_event(requests.len(), event);
        self.in_flight.admit(&mut requests, grouped, &completion).map_err(EngineError::from_submit)?;
        if !requests.is_empty() {
            let (completion, ready) = (completion.clone(), Some(ready));
            self.enqueue(Submission::Tensors { requests, buffers, grouped, completion, owner: None, ready });
        }
        Ok(Handle { completion })
    }

    /// Why the engine has shut down, if it has.
    pub fn ended(&self) -> Option<Arc<str>> {
        self.in_flight.ended()
    }

    /// Waits for a call for at most `limit` and makes the engine progress meanwhile. True if the call is complete.
    pub fn wait_for(&self, handle: &Handle, limit: Duration) -> bool {
        self.state.wait(&handle.completion, Some(Instant::now() + limit));
        handle.is_done()
    }

    /// Waits until the event's count differs from `seen`, for at most `limit`, and makes the engine progress meanwhile. False if the engine
    /// has stopped after a panic; [`Engine::wait_for`] then fails the pending call.
    pub fn wait_event(&self, event: &CompletionEvent, seen: u32, limit: Duration) -> bool {
        self.state.wait_event(event, seen, Instant::now() + limit)
    }

    /// Waits for a call and makes the engine progress meanwhile. Only the first call gets the outputs.
    pub fn synchronize(&self, handle: &Handle) -> Result<Outcome, EngineError> {
        self.wait(&handle.completion)
    }

    /// Submits operations on tensors and waits for them. Several are a group.
    ///
    /// # Safety
    /// As [`Engine::submit`]; the buffers must be valid until this function returns.
    pub unsafe fn submit_and_wait(
        &self,
        requests: Vec<Request>,
        buffers: Vec<TensorBuffers>,
    ) -> Result<Outcome, EngineError> {
        let grouped = requests.len() > 1;
        let completion = Completion::new(requests.len());
        if requests.is_empty() {
            return completion.take_outcome();
        }
        self.enqueue_without_wake(Submission::Tensors {
            requests,
            buffers,
            grouped,
            completion: completion.clone(),
            owner: None,
            ready: None,
        });
        self.wait(&completion)
    }

    /// Submits a call without tensors.
    fn begin(&self, submission: impl FnOnce(Arc<Completion>) -> Submission) -> Handle {
        let completion = Completion::new(1);
        self.enqueue_without_wake(submission(completion.clone()));
        Handle { completion }
    }
}
