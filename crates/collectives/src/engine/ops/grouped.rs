//! Grouped operations: several tensors of one type in one blocking call, executed together or not at all. Each tensor follows the rules of the
//! single operation.
//!
//! All members pass the same number of tensors in the same order. Errors and timelines call the tensors of a group `name` as Horovod does:
//! `name_1of3`, `name_2of3` and so on. If one tensor fails, the call fails, and in-place results of the others may or may not be written. An
//! empty group completes at once, without the other ranks.

use crate::coordinator::{Request, SetId, SubmitError};
use crate::dtype::Element;
use crate::engine::Engine;
use crate::engine::handle::{EngineError, Outcome};
use crate::engine::ops::Reduce;
use crate::engine::ops::request_builders::{
    allgather_request, allocate_output, allreduce_request, group_names, in_place_buffers, output_elements,
    reducescatter_request,
};
use crate::engine::submission::TensorBuffers;

impl Engine {
    /// [`Engine::allreduce`] of each tensor, in place. Each has the same number of elements on all members.
    pub fn grouped_allreduce<T: Element>(
        &self,
        name: &str,
        tensors: &mut [&mut [T]],
        reduce: Reduce,
    ) -> Result<(), EngineError> {
        let requests = allreduce_requests(name, tensors.iter().map(|tensor| &**tensor), reduce);
        let buffers = tensors.iter_mut().map(|tensor| in_place_buffers(tensor)).collect();
        // SAFETY: the slices are borrowed until the call returns, and their lengths are those of the requests.
        unsafe { self.submit_and_wait(requests, buffers).map(drop) }
    }

    /// [`Engine::allgather`] of each tensor; the results are in the same order. Lengths may differ between members.
    pub fn grouped_allgather<T: Element>(
        &self,
        name: &str,
        tensors: &[&[T]],
        set: SetId,
    ) -> Result<Vec<Vec<T>>, EngineError> {
        let requests = allgather_requests(name, tensors.iter().copied(), set);
        let buffers: Vec<TensorBuffers> = tensors.iter().map(|tensor| allocate_output(tensor)).collect();
        // SAFETY: the slices are borrowed until the call returns, and their lengths are those of the requests.
        let outcome = unsafe { self.submit_and_wait(requests, buffers)? };
        Ok(all_output_elements(&outcome))
    }

    /// [`Engine::reducescatter`] of each tensor, given with its row length in elements; returns this rank's parts in the same order.
    pub fn grouped_reducescatter<T: Element>(
        &self,
        name: &str,
        tensors: &[(&[T], usize)],
        reduce: Reduce,
    ) -> Result<Vec<Vec<T>>, EngineError> {
        let requests = reducescatter_requests(name, tensors.iter().copied(), reduce)?;
        let buffers: Vec<TensorBuffers> = tensors.iter().map(|(tensor, _)| allocate_output(tensor)).collect();
        // SAFETY: the slices are borrowed until the call returns, and their lengths are those of the requests.
        let outcome = unsafe { self.submit_and_wait(requests, buffers)? };
        Ok(all_output_elements(&outcome))
    }
}

pub(super) fn allreduce_requests<'t, T: Element>(
    name: &str,
    tensors: impl ExactSizeIterator<Item = &'t [T]>,
    reduce: Reduce,
) -> Vec<Request> {
    let group_names = group_names(name, tensors.len());
    tensors.zip(group_names).map(|(tensor, name)| allreduce_request(&name, T::DTYPE, tensor.len(), reduce)).collect()
}

pub(super) fn allgather_requests<'t, T: Element>(
    name: &str,
    tensors: impl ExactSizeIterator<Item = &'t [T]>,
    set: SetId,
) -> Vec<Request> {
    let group_names = group_names(name, tensors.len());
    tensors.zip(group_names).map(|(tensor, name)| allgather_request(&name, tensor, set)).collect()
}

/// Requests for tensors given with their row length in elements.
pub(super) fn reducescatter_requests<'t, T: Element>(
    name: &str,
    tensors: impl ExactSizeIterator<Item = (&'t [T], usize)>,
    reduce: Reduce,
) -> Result<Vec<Request>, SubmitError> {
    let group_names = group_names(name, tensors.len());
    tensors.zip(group_names).map(|((tensor, row), name)| reducescatter_request(&name, tensor, row, reduce)).collect()
}

pub(super) fn all_output_elements<T: Element>(outcome: &Outcome) -> Vec<Vec<T>> {
    outcome.outputs.iter().map(output_elements).collect()
}
