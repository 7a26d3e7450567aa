//! What people call: typed slices for calls that wait (those of one tensor are here, groups in [`grouped`]), vectors that are handed over
//! for calls that do not ([`asynchronous`]), and addresses for bindings. All of them name their operation; ranks may call in any order.
//!
//! All operations are collective over the members of a process set ([`SetId::GLOBAL`]: all ranks): one is done when every member has asked
//! for it under the same name. A name may be used again as soon as its operation has ended on this rank. Lengths are in elements,
//! roots are global ranks, and what is empty is fine.
//!
//! Errors are the same for all. [`EngineError::Refused`]: this rank's arguments are wrong, or the name is in flight here; nobody else
//! heard of it. [`EngineError::Failed`]: the members do not agree (all of them get Horovod's text, and the engine goes on), a rank died
//! (it is named), or some rank has shut the engine down; after the last two everything fails.

pub mod asynchronous;
pub mod grouped;
mod request_builders;

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::algorithm::partition;
use crate::compression::{Compression, narrow, widen};
use crate::coordinator::{ProcessSet, Request, SetId, SubmitError};
use crate::dtype::{Element, bytes_of_mut};
use crate::engine::Engine;
use crate::engine::handle::{Completion, CompletionEvent, EngineError, Outcome};
use crate::engine::ops::request_builders::{
    allgather_request, allocate_output, alltoall_request, broadcast_request, in_place_buffers, output_elements,
};
use crate::engine::ops::request_builders::{allreduce_request, reducescatter_request};
use crate::engine::submission::{BufferOwner, OutputBuffer, Submission, TensorBuffers};
use crate::op::ReduceOp;

/// How a reduction is done. All members say the same.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reduce {
    /// What is computed.
    pub op: ReduceOp,
    /// Each rank's input is multiplied with it.
    pub prescale: f64,
    /// The result is multiplied with it, beside the division of an average.
    pub postscale: f64,
    /// Over whom.
    pub set: SetId,
}

impl Reduce {
    /// Over all ranks, unscaled.
    pub const AVERAGE: Reduce = Reduce { op: ReduceOp::Average, prescale: 1.0, postscale: 1.0, set: SetId::GLOBAL };
    /// Over all ranks, unscaled.
    pub const SUM: Reduce = Reduce { op: ReduceOp::Sum, ..Reduce::AVERAGE };
}

/// A call that was not waited for. For [`Engine::synchronize`] of the engine it came from.
pub struct Handle {
    completion: Arc<Completion>,
}

impl Handle {
    /// Whether the outcome is there. Never waits, and need not be called for the operation to go on.
    pub fn is_done(&self) -> bool {
        self.completion.is_done()
    }

    /// What came of a call that is done; only the first time with its outputs.
    pub fn outcome(&self) -> Result<Outcome, EngineError> {
        debug_assert!(self.is_done(), "wait first");
        self.completion.take_outcome()
    }
}

impl Engine {
    /// Combines `data` of all members, element by element, in place. They pass the same number of elements of the same type.
    pub fn allreduce<T: Element>(&self, name: &str, data: &mut [T], reduce: Reduce) -> Result<(), EngineError> {
        let request = allreduce_request(name, T::DTYPE, data.len(), reduce);
        // SAFETY: the slice is borrowed until the call is done.
        unsafe { self.submit_and_wait(vec![request], vec![in_place_buffers(data)]).map(drop) }
    }

    /// As [`Engine::allreduce`], leaving `input` as it is. `output` has its length.
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
        // SAFETY: the slices, of one length, are borrowed until the call is done.
        unsafe { self.submit_and_wait(vec![request], vec![buffers]).map(drop) }
    }

    /// As [`Engine::allreduce`], with values that travel in half precision. All members compress alike.
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
        // SAFETY: the vector, of elements of that type, is there until the call is done.
        unsafe { self.submit_and_wait(vec![request], vec![in_place_buffers(&mut compressed)])? };
        widen(&compressed, dtype, data);
        Ok(())
    }

    /// Everybody's `data`, one after the other in the order of ranks. They may be of different lengths.
    pub fn allgather<T: Element>(&self, name: &str, data: &[T], set: SetId) -> Result<Vec<T>, EngineError> {
        // SAFETY: the slice is borrowed until the call is done.
        let outcome =
            unsafe { self.submit_and_wait(vec![allgather_request(name, data, set)], vec![allocate_output(data)])? };
        Ok(output_elements(&outcome.outputs[0]))
    }

    /// The elements of `n` that are this rank's when all ranks share them out: the first get one more when they do not divide evenly.
    pub fn shard(&self, n: usize) -> Range<usize> {
        partition::split_rows(n, self.rank_info().size, self.rank_info().rank)
    }

    /// Everybody has its [`Engine::share`] of `data`, and gets all others' in their places. All ranks pass as many elements.
    pub fn allgather_shards<T: Element>(&self, name: &str, data: &mut [T]) -> Result<(), EngineError> {
        let shard = self.shard(data.len());
        let all = bytes_of_mut(data);
        let output = OutputBuffer::Gathered(all.as_mut_ptr(), all.len());
        let request = allgather_request(name, &data[shard.clone()], SetId::GLOBAL);
        let buffers = TensorBuffers { output, ..allocate_output(&data[shard]) };
        // SAFETY: the slice is borrowed until the call is done.
        unsafe { self.submit_and_wait(vec![request], vec![buffers]).map(drop) }
    }

    /// Everybody gets the `data` of the global rank `root`, in place. All members pass the same number of elements and the same root.
    pub fn broadcast<T: Element>(&self, name: &str, data: &mut [T], root: u32, set: SetId) -> Result<(), EngineError> {
        let request = broadcast_request(name, data, root, set);
        // SAFETY: the slice is borrowed until the call is done.
        unsafe { self.submit_and_wait(vec![request], vec![in_place_buffers(data)]).map(drop) }
    }

    /// Sends `splits[i]` elements to the set's member `i`, taken from `data` one after the other; without splits, equal parts to all.
    /// Returns what came, in the order of ranks, and how many elements from each.
    pub fn alltoall<T: Element>(
        &self,
        name: &str,
        data: &[T],
        splits: &[u64],
        set: SetId,
    ) -> Result<(Vec<T>, Vec<u64>), EngineError> {
        let request = alltoall_request(name, data, splits, set);
        // SAFETY: the slice is borrowed until the call is done.
        let mut outcome = unsafe { self.submit_and_wait(vec![request], vec![allocate_output(data)])? };
        Ok((output_elements(&outcome.outputs[0]), std::mem::take(&mut outcome.outputs[0].received)))
    }

    /// Combines everybody's rows of `row` elements each and gives every member its share of them; the first members get one more when
    /// they do not divide evenly. Sum and average only. All members pass as many rows; elements that are no whole number of rows are
    /// refused.
    pub fn reducescatter<T: Element>(
        &self,
        name: &str,
        data: &[T],
        row: usize,
        reduce: Reduce,
    ) -> Result<Vec<T>, EngineError> {
        let request = reducescatter_request(name, data, row, reduce)?;
        // SAFETY: the slice is borrowed until the call is done.
        let outcome = unsafe { self.submit_and_wait(vec![request], vec![allocate_output(data)])? };
        Ok(output_elements(&outcome.outputs[0]))
    }

    /// Returns when all members have called it. One at a time in a set.
    pub fn barrier(&self, set: SetId) -> Result<(), EngineError> {
        self.synchronize(&self.begin_barrier(set)).map(drop)
    }

    /// As [`Engine::barrier`], for a caller that waits in its own way; like the next four.
    pub fn begin_barrier(&self, set: SetId) -> Handle {
        self.begin(|completion| Submission::Barrier { set, completion })
    }

    /// This rank has no more data: until all ranks have joined it takes part in the others' allreduces with zeros (which an average
    /// counts). Returns when all have; tells the global rank that came last.
    pub fn join(&self) -> Result<u32, EngineError> {
        let outcome = self.synchronize(&self.begin_join())?;
        Ok(outcome.last_joined.unwrap_or_default())
    }

    /// As [`Engine::join`].
    pub fn begin_join(&self) -> Handle {
        self.begin(|completion| Submission::Join { set: SetId::GLOBAL, completion })
    }

    /// As [`Engine::join`], for a caller that does not drive the engine; the event counts the call when it ends.
    pub fn begin_join_with_event(&self, event: Arc<CompletionEvent>) -> Handle {
        let completion = Completion::with_event(1, Some(event));
        self.enqueue(Submission::Join { set: SetId::GLOBAL, completion: completion.clone() });
        Handle { completion }
    }

    /// Makes a process set of some global ranks. Collective over all ranks, members or not, with the same `ranks` everywhere; needs
    /// `HOROVOD_DYNAMIC_PROCESS_SETS=1`.
    pub fn add_set(&self, ranks: Vec<u32>) -> Result<ProcessSet, EngineError> {
        let outcome = self.synchronize(&self.begin_add_set(ranks))?;
        Ok(outcome.sets.into_iter().next().expect("one set was requested and created"))
    }

    /// As [`Engine::add_set`].
    pub fn begin_add_set(&self, ranks: Vec<u32>) -> Handle {
        self.begin(|completion| Submission::AddSet { ranks, completion })
    }

    /// Removes a process set; what waits in it fails. Collective over all ranks, with the same set everywhere; needs
    /// `HOROVOD_DYNAMIC_PROCESS_SETS=1`.
    pub fn remove_set(&self, set: SetId) -> Result<(), EngineError> {
        self.synchronize(&self.begin_remove_set(set)).map(drop)
    }

    /// As [`Engine::remove_set`].
    pub fn begin_remove_set(&self, set: SetId) -> Handle {
        self.begin(|completion| Submission::RemoveSet { set, completion })
    }

    /// Process sets to begin with, which need no leave: as those of [`Engine::start_with`].
    pub fn begin_register_sets(&self, sets: Vec<Vec<u32>>) -> Handle {
        self.begin(|completion| Submission::RegisterSets { sets, completion })
    }

    /// Asks for operations on tensors and waits for none of them. Several are a group when `grouped`: all or nothing. None are
    /// done at once.
    ///
    /// # Errors
    /// What this rank got wrong, a name that is in flight among it, and an engine that has ended. What is found out with the
    /// others comes with the outcome.
    ///
    /// # Safety
    /// The places must stay as they are, and be nobody else's, until the handle is done; inputs hold `n_bytes`, as the
    /// requests' shapes say, and outputs as many.
    pub unsafe fn submit(
        &self,
        requests: Vec<Request>,
        buffers: Vec<TensorBuffers>,
        grouped: bool,
        owner: BufferOwner,
    ) -> Result<Handle, EngineError> {
        // SAFETY: the caller's promise is the same.
        unsafe { self.submit_with_event(requests, buffers, grouped, owner, None) }
    }

    /// As [`Engine::submit`]. The event, if there is one, counts the call when it ends; a call without tensors is not counted.
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
            self.enqueue(Submission::Tensors { requests, buffers, grouped, completion: completion.clone(), owner });
        }
        Ok(Handle { completion })
    }

    /// Waits for the outcome, driving the engine meanwhile, but no longer than that; whether it is there.
    pub fn wait_for(&self, handle: &Handle, limit: Duration) -> bool {
        self.state.wait(&handle.completion, Some(Instant::now() + limit));
        handle.is_done()
    }

    /// Waits until the event's count is not `seen` any more, driving the engine meanwhile, but no longer than that. False when this engine
    /// cannot be driven any more, after a panic: [`Engine::wait_for`] then fails what is pending.
    pub fn wait_event(&self, event: &CompletionEvent, seen: u32, limit: Duration) -> bool {
        self.state.wait_event(event, seen, Instant::now() + limit)
    }

    /// Waits for the outcome, driving the engine meanwhile. Only the first call gets the outputs.
    pub fn synchronize(&self, handle: &Handle) -> Result<Outcome, EngineError> {
        self.wait(&handle.completion)
    }

    /// Asks and waits.
    ///
    /// # Safety
    /// As [`Engine::submit`].
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
        });
        self.wait(&completion)
    }

    /// Of calls that are no tensors.
    fn begin(&self, enqueue: impl FnOnce(Arc<Completion>) -> Submission) -> Handle {
        let completion = Completion::new(1);
        self.enqueue_without_wake(enqueue(completion.clone()));
        Handle { completion }
    }
}
