//! Groups of the direct door: several tensors of one type in one call, cheaper than one by one, with the same results. What holds for one
//! tensor (see [`super::typed`]) holds for each of them; all members pass as many, in the same order.
//!
//! Small tensors travel together, through a buffer that is kept; large ones gain nothing from company and go alone. All members see the same
//! sizes, so they divide the group alike. What cannot be done is refused before the first tensor is sent.

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

    /// As [`Communicator::allgather`] of each tensor; the results in the same order. Members may bring different lengths of each.
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

    /// As [`Communicator::reducescatter`] of each tensor, given with the elements of one row of it; this rank's shares in the same order.
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

    /// Divides tensors of these sizes, in bytes, into runs that travel together, and lets each pass, with the buffer that is kept.
    fn for_each_fused_run(
        &mut self,
        sizes: &[usize],
        mut pass: impl FnMut(&mut Communicator, Range<usize>, &mut Vec<u8>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut fused = std::mem::take(&mut self.fused);
        let mut outcome = Ok(());
        let mut start = 0;
        while start < sizes.len() && outcome.is_ok() {
            let end = start + partition::fused_run_len(sizes[start..].iter().copied());
            outcome = pass(self, start..end, &mut fused);
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
        // SAFETY: one vector of whole elements.
        unsafe { self.allreduce_checked(Buffers { src: at, dst: at }, fused.len(), T::DTYPE, op, Scale::NONE)? };
        let mut rest = fused.as_slice();
        for tensor in run {
            let (own, after) = rest.split_at(size_of_val(&**tensor));
            bytes_of_mut(tensor).copy_from_slice(own);
            rest = after;
        }
        Ok(())
    }

    /// Each rank's part of the buffer holds its tensors behind each other. `counts`: by tensor, then by rank.
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
        // SAFETY: one vector that holds all parts.
        unsafe { self.allgather_raw(Buffers { src: at, dst: at }, &parts)? };
        let mut from: Vec<usize> = parts.into_iter().map(|part| part.start).collect();
        for counts in counts {
            let pieces = counts.iter().zip(&mut from).map(|(count, from)| {
                let start = *from;
                *from += count * size_of::<T>();
                &fused[start..*from]
            });
            // SAFETY: what was gathered are elements of `T`.
            outputs.push(unsafe { concat_elements(counts.iter().sum(), pieces) });
        }
        Ok(())
    }

    /// Each rank's part of the buffer holds its shares of all tensors behind each other. `shares`: by tensor, then by rank.
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
        // SAFETY: the buffer holds all parts, of whole elements, and the vector ours.
        unsafe { self.reducescatter_raw(fused.as_ptr(), own.as_mut_ptr(), &parts, reduction)? };
        let mut rest = own.as_slice();
        for shares in shares {
            let (share, after) = rest.split_at(shares[self.rank()].len());
            rest = after;
            // SAFETY: what was reduced are elements of `T`.
            outputs.push(unsafe { concat_elements(share.len() / size_of::<T>(), std::iter::once(share)) });
        }
        Ok(())
    }
}

/// # Safety
/// The pieces must be so many elements of `T` together.
unsafe fn concat_elements<'p, T: Element>(n_elements: usize, pieces: impl Iterator<Item = &'p [u8]>) -> Vec<T> {
    let mut elements: Vec<T> = Vec::with_capacity(n_elements);
    let mut at: *mut u8 = elements.as_mut_ptr().cast();
    // SAFETY: there is room for all of them, and they are what the caller says.
    unsafe {
        for piece in pieces {
            std::ptr::copy_nonoverlapping(piece.as_ptr(), at, piece.len());
            at = at.add(piece.len());
        }
        elements.set_len(n_elements);
    }
    elements
}
