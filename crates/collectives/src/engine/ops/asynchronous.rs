//! Non-blocking operations. They take ownership of vectors; [`Engine::finish`] returns the results. Each operation follows the rules of its
//! blocking version in [`super`] or [`super::grouped`].
//!
//! The engine owns the vectors until the operation is complete, so an operation whose result is dropped completes like any other.

use std::sync::{Arc, Mutex, PoisonError};

use crate::compression::{Compression, narrow, widen};
use crate::coordinator::{Request, SetId, SubmitError};
use crate::dtype::{Dtype, Element};
use crate::engine::Engine;
use crate::engine::handle::{EngineError, Outcome};
use crate::engine::ops::grouped::{
    all_output_elements, allgather_requests, allreduce_requests, reducescatter_requests,
};
use crate::engine::ops::request_builders::{
    allgather_request, allocate_output, alltoall_request, broadcast_request, in_place_buffers, output_elements,
};
use crate::engine::ops::request_builders::{allreduce_request, reducescatter_request};
use crate::engine::ops::{Handle, Reduce};
use crate::engine::submission::{BufferOwner, TensorBuffers};

/// Result of a non-blocking operation, obtained with [`Engine::finish`] of the same engine. If it is dropped, the operation continues and its
/// memory is freed on completion.
#[must_use = "Engine::finish returns the result or the error"]
pub struct PendingResult<R> {
    /// Error if the submission was invalid.
    in_flight: Result<InFlight<R>, EngineError>,
}

/// Submitted operation and the conversion of its result.
struct InFlight<R> {
    handle: Handle,
    convert: Box<dyn FnOnce(Outcome) -> R + Send>,
}

impl<R> PendingResult<R> {
    /// True if [`Engine::finish`] would return at once. Never blocks; the operation makes progress without it.
    pub fn poll(&self) -> bool {
        self.in_flight.as_ref().map_or(true, |in_flight| in_flight.handle.is_done())
    }
}

impl<R: 'static> PendingResult<R> {
    fn refused(error: SubmitError) -> PendingResult<R> {
        PendingResult { in_flight: Err(error.into()) }
    }

    fn map<S>(self, change: impl FnOnce(R) -> S + Send + 'static) -> PendingResult<S> {
        let next = |InFlight { handle, convert }: InFlight<R>| InFlight {
            handle,
            convert: Box::new(|outcome| change(convert(outcome))),
        };
        PendingResult { in_flight: self.in_flight.map(next) }
    }
}

impl Engine {
    /// Non-blocking [`Engine::allreduce`].
    pub fn allreduce_async<T: Element>(&self, name: &str, data: Vec<T>, reduce: Reduce) -> PendingResult<Vec<T>> {
        let request = allreduce_request(name, T::DTYPE, data.len(), reduce);
        self.submit_in_place(vec![request], vec![data]).map(single_tensor)
    }

    /// Non-blocking [`Engine::allreduce_compressed`].
    pub fn allreduce_compressed_async(
        &self,
        name: &str,
        mut data: Vec<f32>,
        reduce: Reduce,
        compression: Compression,
    ) -> PendingResult<Vec<f32>> {
        let Some(dtype) = compression.wire_dtype(self.rank_info().size) else {
            return self.allreduce_async(name, data, reduce);
        };
        let mut compressed = Vec::new();
        narrow(&data, dtype, &mut compressed);
        self.allreduce_compressed_bytes(name, compressed, dtype, reduce).map(move |compressed| {
            widen(&compressed, dtype, &mut data);
            data
        })
    }

    /// Allreduce of bytes that are elements of `dtype`, without waiting.
    pub(crate) fn allreduce_compressed_bytes(
        &self,
        name: &str,
        compressed: Vec<u8>,
        dtype: Dtype,
        reduce: Reduce,
    ) -> PendingResult<Vec<u8>> {
        let request = allreduce_request(name, dtype, compressed.len() / dtype.size(), reduce);
        self.submit_in_place(vec![request], vec![compressed]).map(single_tensor)
    }

    /// Non-blocking [`Engine::broadcast`].
    pub fn broadcast_async<T: Element>(
        &self,
        name: &str,
        data: Vec<T>,
        root: u32,
        set: SetId,
    ) -> PendingResult<Vec<T>> {
        let request = broadcast_request(name, &data, root, set);
        self.submit_in_place(vec![request], vec![data]).map(single_tensor)
    }

    /// Non-blocking [`Engine::allgather`].
    pub fn allgather_async<T: Element>(&self, name: &str, data: Vec<T>, set: SetId) -> PendingResult<Vec<T>> {
        let request = allgather_request(name, &data, set);
        self.submit_allocating(vec![request], vec![data]).map(|outcome| output_elements(&outcome.outputs[0]))
    }

    /// Non-blocking [`Engine::alltoall`].
    pub fn alltoall_async<T: Element>(
        &self,
        name: &str,
        data: Vec<T>,
        splits: &[u64],
        set: SetId,
    ) -> PendingResult<(Vec<T>, Vec<u64>)> {
        let request = alltoall_request(name, &data, splits, set);
        let outcome = self.submit_allocating(vec![request], vec![data]);
        outcome
            .map(|mut outcome| (output_elements(&outcome.outputs[0]), std::mem::take(&mut outcome.outputs[0].received)))
    }

    /// Non-blocking [`Engine::reducescatter`].
    pub fn reducescatter_async<T: Element>(
        &self,
        name: &str,
        data: Vec<T>,
        row: usize,
        reduce: Reduce,
    ) -> PendingResult<Vec<T>> {
        match reducescatter_request(name, &data, row, reduce) {
            Ok(request) => {
                self.submit_allocating(vec![request], vec![data]).map(|outcome| output_elements(&outcome.outputs[0]))
            }
            Err(error) => PendingResult::refused(error),
        }
    }

    /// Reducescatter in place, without waiting: afterwards only this rank's [`Engine::shard`] of the result is valid. Sum and average only.
    pub(crate) fn reducescatter_in_place<T: Element>(
        &self,
        name: &str,
        data: Vec<T>,
        reduce: Reduce,
    ) -> PendingResult<Vec<T>> {
        match reducescatter_request(name, &data, 1, reduce) {
            Ok(request) => self.submit_in_place(vec![request], vec![data]).map(single_tensor),
            Err(error) => PendingResult::refused(error),
        }
    }

    /// Non-blocking [`Engine::grouped_allreduce`].
    pub fn grouped_allreduce_async<T: Element>(
        &self,
        name: &str,
        tensors: Vec<Vec<T>>,
        reduce: Reduce,
    ) -> PendingResult<Vec<Vec<T>>> {
        let requests = allreduce_requests(name, tensors.iter().map(Vec::as_slice), reduce);
        self.submit_in_place(requests, tensors)
    }

    /// Non-blocking [`Engine::grouped_allgather`].
    pub fn grouped_allgather_async<T: Element>(
        &self,
        name: &str,
        tensors: Vec<Vec<T>>,
        set: SetId,
    ) -> PendingResult<Vec<Vec<T>>> {
        let requests = allgather_requests(name, tensors.iter().map(Vec::as_slice), set);
        self.submit_allocating(requests, tensors).map(|outcome| all_output_elements(&outcome))
    }

    /// Non-blocking [`Engine::grouped_reducescatter`].
    pub fn grouped_reducescatter_async<T: Element>(
        &self,
        name: &str,
        tensors: Vec<(Vec<T>, usize)>,
        reduce: Reduce,
    ) -> PendingResult<Vec<Vec<T>>> {
        match reducescatter_requests(name, tensors.iter().map(|(tensor, row)| (tensor.as_slice(), *row)), reduce) {
            Ok(requests) => {
                let tensors = tensors.into_iter().map(|(tensor, _)| tensor).collect();
                self.submit_allocating(requests, tensors).map(|outcome| all_output_elements(&outcome))
            }
            Err(error) => PendingResult::refused(error),
        }
    }

    /// Waits for an operation and makes the engine progress meanwhile. After an error the vectors are lost.
    pub fn finish<R>(&self, pending: PendingResult<R>) -> Result<R, EngineError> {
        let in_flight = pending.in_flight?;
        let outcome = self.synchronize(&in_flight.handle)?;
        Ok((in_flight.convert)(outcome))
    }

    /// Submits operations whose results overwrite the inputs.
    fn submit_in_place<T: Element>(
        &self,
        requests: Vec<Request>,
        mut tensors: Vec<Vec<T>>,
    ) -> PendingResult<Vec<Vec<T>>> {
        let buffers: Vec<TensorBuffers> = tensors.iter_mut().map(|tensor| in_place_buffers(tensor)).collect();
        let owner = Arc::new(Mutex::new(tensors));
        let in_flight = self.submit_owned(requests, buffers, Some(owner.clone()));
        // The engine may still hold the owner for a moment, but no longer writes to the vectors.
        let convert = move |_| std::mem::take(&mut *owner.lock().unwrap_or_else(PoisonError::into_inner));
        PendingResult { in_flight: in_flight.map(|handle| InFlight { handle, convert: Box::new(convert) }) }
    }

    /// Submits operations whose results the engine allocates.
    fn submit_allocating<T: Element>(&self, requests: Vec<Request>, tensors: Vec<Vec<T>>) -> PendingResult<Outcome> {
        let buffers: Vec<TensorBuffers> = tensors.iter().map(|tensor| allocate_output(tensor)).collect();
        let in_flight = self.submit_owned(requests, buffers, Some(Arc::new(tensors)));
        PendingResult {
            in_flight: in_flight.map(|handle| InFlight { handle, convert: Box::new(|outcome| outcome) as Box<_> }),
        }
    }

    /// Submits operations on the vectors that `owner` owns.
    fn submit_owned(
        &self,
        requests: Vec<Request>,
        buffers: Vec<TensorBuffers>,
        owner: BufferOwner,
    ) -> Result<Handle, EngineError> {
        let grouped = requests.len() > 1;
        // SAFETY: moving a vector does not move its heap memory. The engine holds `owner` until it no longer uses the buffers, and
        // the vectors are taken out of it only after completion.
        unsafe { self.submit(requests, buffers, grouped, owner) }
    }
}

/// The only tensor of a submission.
fn single_tensor<T>(mut tensors: Vec<Vec<T>>) -> Vec<T> {
    tensors.pop().expect("one tensor was submitted")
}
