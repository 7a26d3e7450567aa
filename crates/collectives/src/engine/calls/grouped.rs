//! Groups: several tensors of one type in one call that waits, released together or not at all. What holds for one tensor (see beside)
//! holds for each of them.
//!
//! All members pass as many tensors, in the same order; those of a group called `name` are known to errors and timelines as
//! `name_1of3`, `name_2of3` and so on. When one of them cannot be done, the call fails, and results that were wanted in place may or
//! may not be there. A group of none is done at once, and nobody hears of it.

use crate::coordinator::{Request, SetId, SubmitError};
use crate::dtype::Element;
use crate::engine::Engine;
use crate::engine::calls::Reduce;
use crate::engine::calls::requests::{elements, fresh, gathering, in_place, names, reduction, scattering};
use crate::engine::entry::Place;
use crate::engine::handle::{EngineError, Outcome};

impl Engine {
    /// As [`Engine::allreduce`] of each tensor, in place. Each has the same number of elements on all members.
    pub fn grouped_allreduce<T: Element>(
        &self,
        name: &str,
        tensors: &mut [&mut [T]],
        reduce: Reduce,
    ) -> Result<(), EngineError> {
        let requests = reductions(name, tensors.iter().map(|tensor| &**tensor), reduce);
        let places = tensors.iter_mut().map(|tensor| in_place(tensor)).collect();
        // SAFETY: the slices are borrowed until the call is done.
        unsafe { self.call(requests, places).map(drop) }
    }

    /// As [`Engine::allgather`] of each tensor; the results in the same order. Members may bring different lengths of each.
    pub fn grouped_allgather<T: Element>(
        &self,
        name: &str,
        tensors: &[&[T]],
        set: SetId,
    ) -> Result<Vec<Vec<T>>, EngineError> {
        let requests = gatherings(name, tensors.iter().copied(), set);
        let places: Vec<Place> = tensors.iter().map(|tensor| fresh(tensor)).collect();
        // SAFETY: the slices are borrowed until the call is done.
        let outcome = unsafe { self.call(requests, places)? };
        Ok(all_elements(&outcome))
    }

    /// As [`Engine::reducescatter`] of each tensor, given with the elements of one row of it; this rank's shares in the same order.
    pub fn grouped_reducescatter<T: Element>(
        &self,
        name: &str,
        tensors: &[(&[T], usize)],
        reduce: Reduce,
    ) -> Result<Vec<Vec<T>>, EngineError> {
        let requests = scatterings(name, tensors.iter().copied(), reduce)?;
        let places: Vec<Place> = tensors.iter().map(|(tensor, _)| fresh(tensor)).collect();
        // SAFETY: the slices are borrowed until the call is done.
        let outcome = unsafe { self.call(requests, places)? };
        Ok(all_elements(&outcome))
    }
}

pub(super) fn reductions<'t, T: Element>(
    name: &str,
    tensors: impl ExactSizeIterator<Item = &'t [T]>,
    reduce: Reduce,
) -> Vec<Request> {
    let names = names(name, tensors.len());
    tensors.zip(names).map(|(tensor, name)| reduction(&name, T::DTYPE, tensor.len(), reduce)).collect()
}

pub(super) fn gatherings<'t, T: Element>(
    name: &str,
    tensors: impl ExactSizeIterator<Item = &'t [T]>,
    set: SetId,
) -> Vec<Request> {
    let names = names(name, tensors.len());
    tensors.zip(names).map(|(tensor, name)| gathering(&name, tensor, set)).collect()
}

/// Tensors with the elements of a row.
pub(super) fn scatterings<'t, T: Element>(
    name: &str,
    tensors: impl ExactSizeIterator<Item = (&'t [T], usize)>,
    reduce: Reduce,
) -> Result<Vec<Request>, SubmitError> {
    let names = names(name, tensors.len());
    tensors.zip(names).map(|((tensor, row), name)| scattering(&name, tensor, row, reduce)).collect()
}

pub(super) fn all_elements<T: Element>(outcome: &Outcome) -> Vec<Vec<T>> {
    outcome.outputs.iter().map(elements).collect()
}
