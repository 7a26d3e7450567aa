//! Grouped operations: several tensors of one type in one call, with the same results as separate calls. The rules of [`super::typed`]
//! hold for each tensor; all members pass the same number of tensors, in the same order.
//!
//! Small tensors are fused into one operation through a buffer that is reused; large ones are sent separately. All members know the same
//! sizes, so they divide the group in the same way. Arguments are checked before the first tensor is sent.

use std::ops::Range;

use crate::algorithm::{Buffers, Reduction, partition};
use crate::communicator::Communicator;
use crate::communicator::typed::{Scale, contiguous_ranges};
use crate::dtype::{Element, bytes_of, bytes_of_mut};
use crate::error::Error;
use crate::op::ReduceOp;

impl Communicator {
    /// As [`Communicator::allreduce`] of each tensor. Each has the same length on all members.
    pub fn grouped_allreduce<T: Element>(&mut self, tensors: &mut [&mut [T]], op: ReduceOp) -> Result<(), Error> {
        if op == ReduceOp::Adasum {
            return tensors.iter_mut().try_for_each(|tensor| self.allreduce(tensor, op));
        }
        let sizes: Vec<usize> = tensors.iter().map(|tensor| size_of_val(&**tensor)).collect();
        self.for_each_fused_run(&sizes, |comm, run, fused| match &mut tensors[run] {
            [one] => comm.allreduce(one, op),
            run => comm.allreduce_fused(run, op, fused),
        })
    }

    /// As [`Communicator::allgather`] of each tensor; the results in the same order. Lengths may differ between members.
    pub fn grouped_allgather<T: Element>(&mut self, tensors: &[&[T]]) -> Result<Vec<Vec<T>>, Error> {
        let lengths: Vec<usize> = tensors.iter().map(|tensor| tensor.len()).collect();
        let n_tensors = tensors.len();
        let theirs = self.all_counts(&lengths)?;
        // By tensor, then by rank.
        let counts: Vec<Vec<usize>> =
            (0..n_tensors).map(|tensor| theirs.iter().skip(tensor).step_by(n_tensors).copied().collect()).collect();
        let sizes: Vec<usize> = counts.iter().map(|counts| counts.iter().sum::<usize>() * size_of::<T>()).collect();
        let mut outputs = Vec::with_capacity(n_tensors);
        self.for_each_fused_run(&sizes, |comm, run, fused| {
            if let [one] = &tensors[run.clone()] {
                outputs.push(comm.allgather_counts(one, &counts[run.start])?);
                return Ok(());
            }
            comm.allgather_fused(&tensors[run.clone()], &counts[run], fused, &mut outputs)
        })?;
        Ok(outputs)
    }

    /// As [`Communicator::reducescatter`] of each tensor, given with the elements of one of its rows; returns this rank's rows in the same order.
    pub fn grouped_reducescatter<T: Element>(
        &mut self,
        tensors: &[(&[T], usize)],
        op: ReduceOp,
    ) -> Result<Vec<Vec<T>>, Error> {
        let reduction = self.reduction(T::DTYPE, op, 1.0)?;
        let shares: Vec<Vec<Range<usize>>> =
            tensors.iter().map(|(tensor, row)| self.row_ranges(tensor, *row)).collect::<Result<_, _>>()?;
        let sizes: Vec<usize> = tensors.iter().map(|(tensor, _)| size_of_val(*tensor)).collect();
        let mut outputs = Vec::with_capacity(tensors.len());
        self.for_each_fused_run(&sizes, |comm, run, fused| {
            if let [(one, _)] = &tensors[run.clone()] {
                outputs.push(comm.reducescatter_ranges(one, &shares[run.start], reduction)?);
                return Ok(());
            }
            comm.reducescatter_fused(&tensors[run.clone()], &shares[run], reduction, fused, &mut outputs)
        })?;
        Ok(outputs)
    }

    /// Divides tensors of these sizes, in bytes, into fused runs, and calls `run_operation` with each run and the reused fusion buffer.
    fn for_each_fused_run(
        &mut self,
        sizes: &[usize],
        mut run_operation: impl FnMut(&mut Communicator, Range<usize>, &mut Vec<u8>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut fused = std::mem::take(&mut self.fused);
        let mut outcome = Ok(());
        let mut start = 0;
        while start < sizes.len() && outcome.is_ok() {
            let end = start + partition::fused_run_len(sizes[start..].iter().copied());
            outcome = run_operation(self, start..end, &mut fused);
            start = end;
        }
        self.fused = fused;
        outcome
    }

    fn allreduce_fused<T: Element>(
        &mut self,
        run: &mut [&mut [T]],
        op: ReduceOp,
        fused: &mut Vec<u8>,
    ) -> Result<(), Error> {
        fused.clear();
        run.iter().for_each(|tensor| fused.extend_from_slice(bytes_of(tensor)));
        let at = fused.as_mut_ptr();
        // SAFETY: `at` is valid for the vector, which holds whole elements of `T`.
        unsafe { self.allreduce_checked(Buffers { src: at, dst: at }, fused.len(), T::DTYPE, op, Scale::NONE)? };
        let mut rest = fused.as_slice();
        for tensor in run {
            let (own, after) = rest.split_at(size_of_val(&**tensor));
            bytes_of_mut(tensor).copy_from_slice(own);
            rest = after;
        }
        Ok(())
    }

    /// Allgather of a run. Each rank's part of the buffer holds its tensors one after another. `counts`: by tensor, then by rank.
    fn allgather_fused<T: Element>(
        &mut self,
        run: &[&[T]],
        counts: &[Vec<usize>],
        fused: &mut Vec<u8>,
        outputs: &mut Vec<Vec<T>>,
    ) -> Result<(), Error> {
        let by_rank: Vec<usize> = (0..self.size()).map(|rank| counts.iter().map(|counts| counts[rank]).sum()).collect();
        let parts = contiguous_ranges(&by_rank, size_of::<T>());
        fused.resize(parts.last().map_or(0, |part| part.end), 0);
        let mut own = &mut fused[parts[self.rank()].clone()];
        for tensor in run {
            let (here, after) = own.split_at_mut(size_of_val(*tensor));
            here.copy_from_slice(bytes_of(tensor));
            own = after;
        }
        let at = fused.as_mut_ptr();
        // SAFETY: `at` is valid for the vector, which holds all parts.
        unsafe { self.allgather_raw(Buffers { src: at, dst: at }, &parts)? };
        let mut from: Vec<usize> = parts.into_iter().map(|part| part.start).collect();
        for counts in counts {
            let chunks = counts.iter().zip(&mut from).map(|(count, from)| {
                let start = *from;
                *from += count * size_of::<T>();
                &fused[start..*from]
            });
            // SAFETY: the gathered chunks are `counts` elements of `T`, in byte form.
            outputs.push(unsafe { concat_elements(counts.iter().sum(), chunks) });
        }
        Ok(())
    }

    /// Reduce-scatter of a run. Each rank's part of the buffer holds its rows of all tensors one after another. `shares`: by tensor, then by rank.
    fn reducescatter_fused<T: Element>(
        &mut self,
        run: &[(&[T], usize)],
        shares: &[Vec<Range<usize>>],
        reduction: Reduction,
        fused: &mut Vec<u8>,
        outputs: &mut Vec<Vec<T>>,
    ) -> Result<(), Error> {
        fused.clear();
        let mut parts = Vec::with_capacity(self.size());
        for rank in 0..self.size() {
            let start = fused.len();
            for ((tensor, _), shares) in run.iter().zip(shares) {
                fused.extend_from_slice(&bytes_of(tensor)[shares[rank].clone()]);
            }
            parts.push(start..fused.len());
        }
        let mut own = vec![0; parts[self.rank()].len()];
        // SAFETY: the buffer holds all parts, of whole elements, and `own` has the length of the own part.
        unsafe { self.reducescatter_raw(fused.as_ptr(), own.as_mut_ptr(), &parts, reduction)? };
        let mut rest = own.as_slice();
        for shares in shares {
            let (share, after) = rest.split_at(shares[self.rank()].len());
            rest = after;
            // SAFETY: `share` holds whole reduced elements of `T`.
            outputs.push(unsafe { concat_elements(share.len() / size_of::<T>(), std::iter::once(share)) });
        }
        Ok(())
    }
}

/// Concatenates bytes into a vector of elements.
///
/// # Safety
/// `chunks` must together be exactly the bytes of `n_elements` valid elements of `T`.
unsafe fn concat_elements<'p, T: Element>(n_elements: usize, chunks: impl Iterator<Item = &'p [u8]>) -> Vec<T> {
    let mut elements: Vec<T> = Vec::with_capacity(n_elements);
    let mut at: *mut u8 = elements.as_mut_ptr().cast();
    // SAFETY: the chunks have the bytes of `n_elements` elements, by the function's contract, for which there is capacity.
    unsafe {
        for chunk in chunks {
            std::ptr::copy_nonoverlapping(chunk.as_ptr(), at, chunk.len());
            at = at.add(chunk.len());
        }
        elements.set_len(n_elements);
    }
    elements
}
