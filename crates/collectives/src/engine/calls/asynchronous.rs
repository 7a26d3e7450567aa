//! Calls that do not wait: vectors are handed over, and come back with [`Engine::finish`], or what became of them does. What an
//! operation does, and what members have to pass, is said where it is called to wait, beside and in `grouped`.
//!
//! The engine itself keeps what was handed over until it needs it no more, so that a call nobody waits for ends like any other.

use std::sync::{Arc, Mutex, PoisonError};

use crate::compression::{Compression, narrow, widen};
use crate::coordinator::{Request, SetId, SubmitError};
use crate::dtype::{Dtype, Element};
use crate::engine::Engine;
use crate::engine::calls::grouped::{all_elements, gatherings, reductions, scatterings};
use crate::engine::calls::requests::{broadcasting, elements, exchanging, fresh, gathering, in_place};
use crate::engine::calls::requests::{reduction, scattering};
use crate::engine::calls::{Handle, Reduce};
use crate::engine::entry::{Keeps, Place};
use crate::engine::handle::{EngineError, Outcome};

/// A call under way whose result will be an `R`; [`Engine::finish`] of the engine it came from brings it. Dropped before, the
/// operation goes on, and its memory is freed when it has ended.
#[must_use = "the result, and whether there is one, comes with Engine::finish"]
pub struct Pending<R> {
    /// Or why nobody was asked.
    asked: Result<Asked<R>, EngineError>,
}

struct Asked<R> {
    handle: Handle,
    read: Box<dyn FnOnce(Outcome) -> R + Send>,
}

impl<R> Pending<R> {
    /// Whether [`Engine::finish`] would return at once. Never waits, and need not be called for the operation to go on.
    pub fn poll(&self) -> bool {
        self.asked.as_ref().map_or(true, |asked| asked.handle.is_done())
    }
}

impl<R: 'static> Pending<R> {
    fn refused(error: SubmitError) -> Pending<R> {
        Pending { asked: Err(error.into()) }
    }

    fn map<S>(self, change: impl FnOnce(R) -> S + Send + 'static) -> Pending<S> {
        let next = |Asked { handle, read }: Asked<R>| Asked { handle, read: Box::new(|outcome| change(read(outcome))) };
        Pending { asked: self.asked.map(next) }
    }
}

impl Engine {
    /// As [`Engine::allreduce`], without waiting.
    pub fn allreduce_async<T: Element>(&self, name: &str, data: Vec<T>, reduce: Reduce) -> Pending<Vec<T>> {
        let request = reduction(name, T::DTYPE, data.len(), reduce);
        self.lend(vec![request], vec![data]).map(only)
    }

    /// As [`Engine::allreduce_compressed`], without waiting.
    pub fn allreduce_compressed_async(
        &self,
        name: &str,
        mut data: Vec<f32>,
        reduce: Reduce,
        compression: Compression,
    ) -> Pending<Vec<f32>> {
        let Some(dtype) = compression.among(self.place().size) else {
            return self.allreduce_async(name, data, reduce);
        };
        let mut short = Vec::new();
        narrow(&data, dtype, &mut short);
        self.allreduce_short(name, short, dtype, reduce).map(move |short| {
            widen(&short, dtype, &mut data);
            data
        })
    }

    /// Of bytes that are elements of `dtype`.
    pub(crate) fn allreduce_short(&self, name: &str, short: Vec<u8>, dtype: Dtype, reduce: Reduce) -> Pending<Vec<u8>> {
        let request = reduction(name, dtype, short.len() / dtype.size(), reduce);
        self.lend(vec![request], vec![short]).map(only)
    }

    /// As [`Engine::broadcast`], without waiting.
    pub fn broadcast_async<T: Element>(&self, name: &str, data: Vec<T>, root: u32, set: SetId) -> Pending<Vec<T>> {
        let request = broadcasting(name, &data, root, set);
        self.lend(vec![request], vec![data]).map(only)
    }

    /// As [`Engine::allgather`], without waiting.
    pub fn allgather_async<T: Element>(&self, name: &str, data: Vec<T>, set: SetId) -> Pending<Vec<T>> {
        let request = gathering(name, &data, set);
        self.give(vec![request], vec![data]).map(|outcome| elements(&outcome.outputs[0]))
    }

    /// As [`Engine::alltoall`], without waiting.
    pub fn alltoall_async<T: Element>(
        &self,
        name: &str,
        data: Vec<T>,
        splits: &[u64],
        set: SetId,
    ) -> Pending<(Vec<T>, Vec<u64>)> {
        let request = exchanging(name, &data, splits, set);
        let outcome = self.give(vec![request], vec![data]);
        outcome.map(|mut outcome| (elements(&outcome.outputs[0]), std::mem::take(&mut outcome.outputs[0].received)))
    }

    /// As [`Engine::reducescatter`], without waiting.
    pub fn reducescatter_async<T: Element>(
        &self,
        name: &str,
        data: Vec<T>,
        row: usize,
        reduce: Reduce,
    ) -> Pending<Vec<T>> {
        match scattering(name, &data, row, reduce) {
            Ok(request) => self.give(vec![request], vec![data]).map(|outcome| elements(&outcome.outputs[0])),
            Err(error) => Pending::refused(error),
        }
    }

    /// Combines `data` of all ranks where it is, without waiting; afterwards only this rank's [`Engine::share`] is good. Sum and average only.
    pub(crate) fn reduce_shares<T: Element>(&self, name: &str, data: Vec<T>, reduce: Reduce) -> Pending<Vec<T>> {
        match scattering(name, &data, 1, reduce) {
            Ok(request) => self.lend(vec![request], vec![data]).map(only),
            Err(error) => Pending::refused(error),
        }
    }

    /// As [`Engine::grouped_allreduce`], without waiting.
    pub fn grouped_allreduce_async<T: Element>(
        &self,
        name: &str,
        tensors: Vec<Vec<T>>,
        reduce: Reduce,
    ) -> Pending<Vec<Vec<T>>> {
        let requests = reductions(name, tensors.iter().map(Vec::as_slice), reduce);
        self.lend(requests, tensors)
    }

    /// As [`Engine::grouped_allgather`], without waiting.
    pub fn grouped_allgather_async<T: Element>(
        &self,
        name: &str,
        tensors: Vec<Vec<T>>,
        set: SetId,
    ) -> Pending<Vec<Vec<T>>> {
        let requests = gatherings(name, tensors.iter().map(Vec::as_slice), set);
        self.give(requests, tensors).map(|outcome| all_elements(&outcome))
    }

    /// As [`Engine::grouped_reducescatter`], without waiting.
    pub fn grouped_reducescatter_async<T: Element>(
        &self,
        name: &str,
        tensors: Vec<(Vec<T>, usize)>,
        reduce: Reduce,
    ) -> Pending<Vec<Vec<T>>> {
        match scatterings(name, tensors.iter().map(|(tensor, row)| (tensor.as_slice(), *row)), reduce) {
            Ok(requests) => {
                let tensors = tensors.into_iter().map(|(tensor, _)| tensor).collect();
                self.give(requests, tensors).map(|outcome| all_elements(&outcome))
            }
            Err(error) => Pending::refused(error),
        }
    }

    /// Waits for a call, driving the engine meanwhile. After an error what was handed over is gone.
    pub fn finish<R>(&self, pending: Pending<R>) -> Result<R, EngineError> {
        let asked = pending.asked?;
        let outcome = self.synchronize(&asked.handle)?;
        Ok((asked.read)(outcome))
    }

    /// For results that are written over what was handed over.
    fn lend<T: Element>(&self, requests: Vec<Request>, mut tensors: Vec<Vec<T>>) -> Pending<Vec<Vec<T>>> {
        let places: Vec<Place> = tensors.iter_mut().map(|tensor| in_place(tensor)).collect();
        let held = Arc::new(Mutex::new(tensors));
        let asked = self.hand_over(requests, places, Some(held.clone()));
        // The engine may still hold it for a moment, but writes no more.
        let read = move |_| std::mem::take(&mut *held.lock().unwrap_or_else(PoisonError::into_inner));
        Pending { asked: asked.map(|handle| Asked { handle, read: Box::new(read) }) }
    }

    /// For results that the engine makes room for.
    fn give<T: Element>(&self, requests: Vec<Request>, tensors: Vec<Vec<T>>) -> Pending<Outcome> {
        let places: Vec<Place> = tensors.iter().map(|tensor| fresh(tensor)).collect();
        let asked = self.hand_over(requests, places, Some(Arc::new(tensors)));
        Pending { asked: asked.map(|handle| Asked { handle, read: Box::new(|outcome| outcome) as Box<_> }) }
    }

    /// `keeps` owns the vectors that the places lie in.
    fn hand_over(&self, requests: Vec<Request>, places: Vec<Place>, keeps: Keeps) -> Result<Handle, EngineError> {
        let grouped = requests.len() > 1;
        // SAFETY: the memory of vectors stays where it is when they move, the engine drops what it keeps when it needs the tensors no
        // more, and nobody else takes them out before the outcome is there.
        unsafe { self.submit(requests, places, grouped, keeps) }
    }
}

fn only<T>(mut tensors: Vec<Vec<T>>) -> Vec<T> {
    tensors.pop().expect("one was handed over")
}
