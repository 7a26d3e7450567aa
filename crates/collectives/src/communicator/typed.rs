//! What people call (groups are in [`super::grouped`]): slices of numbers in, slices of numbers out. Checks what it is given and refuses it before anything is sent.
//!
//! Every operation is collective: all members call the same ones in the same order, with inputs that fit together, as the
//! documentation of each says. Ranks and roots count within the communicator, lengths are in elements. What is empty is fine.
//!
//! Errors are the same for all of them. [`Error::InvalidArgument`]: this rank asked for something impossible; nothing was sent and the
//! communicator is as good as before (the others, unless they were refused too, now wait). Any other: a member died, left or broke
//! its connection, this operation has no result, buffers hold anything, and the communicator is of no more use.
//!
//! Integers wrap in sums and products, and averages of them are cut toward zero; `bool` is logic ("or" for sum and max, "and" for product
//! and min) and has no average. All ranks get the same bits.

use std::ops::Range;

use crate::algorithm::{Buffers, Reduction, partition};
use crate::communicator::Communicator;
use crate::compression::{Compression, narrow, widen};
use crate::dtype::{Dtype, Element, bytes_of, bytes_of_mut};
use crate::error::{Error, InvalidArgument};
use crate::op::{Combine, ReduceOp};
use crate::reduce;

/// Factors around a reduction: every input is multiplied with `before`, every result with `after`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scale {
    /// Prescale: of each rank's input, before anything is combined.
    pub before: f64,
    /// Postscale: of the result, beside the division of an average.
    pub after: f64,
}

impl Scale {
    /// Nothing is scaled.
    pub const NONE: Scale = Scale { before: 1.0, after: 1.0 };
}

impl Communicator {
    /// Combines everybody's `data`, element by element, in place. All members pass the same number of elements.
    pub fn allreduce<T: Element>(&mut self, data: &mut [T], op: ReduceOp) -> Result<(), Error> {
        self.allreduce_scaled(data, op, Scale::NONE)
    }

    /// As [`Communicator::allreduce`], with factors. All members pass the same ones.
    pub fn allreduce_scaled<T: Element>(&mut self, data: &mut [T], op: ReduceOp, scale: Scale) -> Result<(), Error> {
        let bytes = bytes_of_mut(data);
        let at = bytes.as_mut_ptr();
        // SAFETY: one slice, for both.
        unsafe { self.allreduce_checked(Buffers { src: at, dst: at }, bytes.len(), T::DTYPE, op, scale) }
    }

    /// As [`Communicator::allreduce`], leaving `input` as it is. `output` has its length.
    pub fn allreduce_into<T: Element>(&mut self, input: &[T], output: &mut [T], op: ReduceOp) -> Result<(), Error> {
        let (input, output) = (bytes_of(input), bytes_of_mut(output));
        if input.len() != output.len() {
            return Err(InvalidArgument::LengthMismatch { input: input.len(), output: output.len() }.into());
        }
        let buffers = Buffers { src: input.as_ptr(), dst: output.as_mut_ptr() };
        // SAFETY: slices of one length, apart.
        unsafe { self.allreduce_checked(buffers, output.len(), T::DTYPE, op, Scale::NONE) }
    }

    /// As [`Communicator::allreduce`], with values that travel in half precision, through a buffer that is kept. All members compress
    /// alike.
    pub fn allreduce_compressed(
        &mut self,
        data: &mut [f32],
        op: ReduceOp,
        compression: Compression,
    ) -> Result<(), Error> {
        let Some(dtype) = compression.wire_dtype(self.size()) else {
            return self.allreduce(data, op);
        };
        let mut short = std::mem::take(&mut self.fused);
        narrow(data, dtype, &mut short);
        let at = short.as_mut_ptr();
        // SAFETY: one vector, of elements of that type.
        let outcome =
            unsafe { self.allreduce_checked(Buffers { src: at, dst: at }, short.len(), dtype, op, Scale::NONE) };
        if outcome.is_ok() {
            widen(&short, dtype, data);
        }
        self.fused = short;
        outcome
    }

    /// Everybody's `data`, one after the other in the order of ranks. They may be of different lengths.
    pub fn allgather<T: Element>(&mut self, data: &[T]) -> Result<Vec<T>, Error> {
        let counts = self.all_counts(&[data.len()])?;
        self.allgather_counts(data, &counts)
    }

    /// So many elements from each; `data` is ours.
    pub(super) fn allgather_counts<T: Element>(&mut self, data: &[T], counts: &[usize]) -> Result<Vec<T>, Error> {
        let parts = contiguous_ranges(counts, size_of::<T>());
        let n_elements: usize = counts.iter().sum();
        let mut output: Vec<T> = Vec::with_capacity(n_elements);
        let dst: *mut u8 = output.as_mut_ptr().cast();
        let src = bytes_of(data).as_ptr().wrapping_sub(parts[self.rank()].start);
        // SAFETY: the output has room for all parts, the input is the own one, and what is gathered are elements of `T`.
        unsafe {
            self.allgather_raw(Buffers { src, dst }, &parts)?;
            output.set_len(n_elements);
        }
        Ok(output)
    }

    /// Everybody gets `root`'s `data`. All members pass the same number of elements.
    pub fn broadcast<T: Element>(&mut self, data: &mut [T], root: usize) -> Result<(), Error> {
        if root >= self.size() {
            return Err(InvalidArgument::Root { root, size: self.size() }.into());
        }
        let bytes = bytes_of_mut(data);
        // SAFETY: one slice.
        unsafe { self.broadcast_raw(bytes.as_mut_ptr(), bytes.len(), root) }
    }

    /// Sends `counts[i]` elements to member `i`, taken from `data` one after the other; returns what came, in the order of
    /// ranks, and how many elements from each. Counts need not agree between members.
    pub fn alltoall<T: Element>(&mut self, data: &[T], counts: &[usize]) -> Result<(Vec<T>, Vec<usize>), Error> {
        if counts.len() != self.size() {
            return Err(InvalidArgument::CountsLength { given: counts.len(), size: self.size() }.into());
        }
        let counted: usize = counts.iter().sum();
        if counted > data.len() {
            let counted = counted * size_of::<T>();
            return Err(InvalidArgument::CountsSum { counted, held: size_of_val(data) }.into());
        }
        let words: Vec<i64> = counts.iter().map(|count| *count as i64).collect();
        let mut theirs = vec![0i64; self.size()];
        let each = contiguous_ranges(&vec![1; self.size()], 8);
        // SAFETY: one number for each member on both sides.
        unsafe { self.alltoall_raw(words.as_ptr().cast(), &each, theirs.as_mut_ptr().cast(), &each)? };
        let theirs: Vec<usize> = theirs.into_iter().map(|count| count as usize).collect();
        let n_elements = theirs.iter().sum();
        let mut output: Vec<T> = Vec::with_capacity(n_elements);
        let (sent, received) = (contiguous_ranges(counts, size_of::<T>()), contiguous_ranges(&theirs, size_of::<T>()));
        // SAFETY: the input holds what is sent, the output has room for what comes, which are elements of `T`.
        unsafe {
            self.alltoall_raw(bytes_of(data).as_ptr(), &sent, output.as_mut_ptr().cast(), &received)?;
            output.set_len(n_elements);
        }
        Ok((output, theirs))
    }

    /// Combines everybody's `data` and gives each rank its rows, of `row` elements each: the first ranks get one more when
    /// they do not divide evenly. All members pass the same number of elements.
    pub fn reducescatter<T: Element>(&mut self, data: &[T], row: usize, op: ReduceOp) -> Result<Vec<T>, Error> {
        let reduction = self.reduction(T::DTYPE, op, 1.0)?;
        let shares = self.row_ranges(data, row)?;
        self.reducescatter_ranges(data, &shares, reduction)
    }

    /// Which bytes each rank gets of so many rows.
    pub(super) fn row_ranges<T: Element>(&self, data: &[T], row: usize) -> Result<Vec<Range<usize>>, InvalidArgument> {
        let row_bytes = row * size_of::<T>();
        let n_rows = data.len().checked_div(row).unwrap_or(0);
        if n_rows * row != data.len() {
            return Err(InvalidArgument::CountsSum { counted: n_rows * row_bytes, held: size_of_val(data) });
        }
        let rows = (0..self.size()).map(|rank| partition::split_rows(n_rows, self.size(), rank));
        Ok(rows.map(|rows| rows.start * row_bytes..rows.end * row_bytes).collect())
    }

    /// Everybody's share of `data`, in bytes.
    pub(super) fn reducescatter_ranges<T: Element>(
        &mut self,
        data: &[T],
        parts: &[Range<usize>],
        reduction: Reduction,
    ) -> Result<Vec<T>, Error> {
        let n_elements = parts[self.rank()].len() / size_of::<T>();
        let mut output: Vec<T> = Vec::with_capacity(n_elements);
        // SAFETY: the input holds all parts, the output has room for ours, which is elements of `T`.
        unsafe {
            self.reducescatter_raw(bytes_of(data).as_ptr(), output.as_mut_ptr().cast(), parts, reduction)?;
            output.set_len(n_elements);
        }
        Ok(output)
    }

    /// Returns when all members have called it.
    pub fn barrier(&mut self) -> Result<(), Error> {
        self.barrier_raw()
    }

    /// Allreduce of bytes that were not checked yet.
    ///
    /// # Safety
    /// `buffers` must hold `n_bytes`, in the same memory or apart.
    pub unsafe fn allreduce_checked(
        &mut self,
        buffers: Buffers,
        n_bytes: usize,
        dtype: Dtype,
        op: ReduceOp,
        scale: Scale,
    ) -> Result<(), Error> {
        if !n_bytes.is_multiple_of(dtype.size()) {
            return Err(InvalidArgument::PartialElement { bytes: n_bytes, dtype: dtype.name() }.into());
        }
        if op == ReduceOp::Adasum {
            self.check_adasum(dtype)?;
        } else {
            self.reduction(dtype, op, scale.after)?;
        }
        let mut buffers = buffers;
        // SAFETY: the caller's.
        unsafe {
            if scale.before != 1.0 {
                buffers.copy_input_to_output(n_bytes);
                buffers.src = buffers.dst;
                let data = std::slice::from_raw_parts_mut(buffers.dst, n_bytes);
                reduce::scale(dtype, scale.before, data).map_err(|_| unscalable(dtype))?;
            }
            if op != ReduceOp::Adasum {
                let reduction = self.reduction(dtype, op, scale.after)?;
                return self.allreduce_raw(buffers, n_bytes, reduction);
            }
            buffers.copy_input_to_output(n_bytes);
            self.adasum_raw(buffers.dst, std::slice::from_ref(&(0..n_bytes)), dtype)?;
            let data = std::slice::from_raw_parts_mut(buffers.dst, n_bytes);
            Ok(reduce::scale(dtype, scale.after, data).map_err(|_| unscalable(dtype))?)
        }
    }

    /// Whether Adasum can be done: floats only, and a power of two of members.
    pub fn check_adasum(&self, dtype: Dtype) -> Result<(), InvalidArgument> {
        if !dtype.is_float() {
            return Err(InvalidArgument::Unsupported { op: "Adasum", dtype: dtype.name() });
        }
        if !self.size().is_power_of_two() {
            return Err(InvalidArgument::AdasumSize { size: self.size() });
        }
        Ok(())
    }

    /// What is done to the elements for `op`, with the division of an average in it.
    pub fn reduction(&self, dtype: Dtype, op: ReduceOp, after: f64) -> Result<Reduction, InvalidArgument> {
        let combine: Combine =
            op.combine().ok_or(InvalidArgument::Unsupported { op: "Adasum", dtype: dtype.name() })?;
        let factor = if op == ReduceOp::Average { after / self.size() as f64 } else { after };
        if factor != 1.0 && dtype == Dtype::Bool {
            return Err(unscalable(dtype));
        }
        Ok(Reduction { dtype, combine, factor })
    }

    /// How many elements of each tensor everybody brings: by rank, then by tensor.
    pub(super) fn all_counts(&mut self, mine: &[usize]) -> Result<Vec<usize>, Error> {
        let mut counts = vec![0u64; self.size() * mine.len()];
        let own = counts.iter_mut().skip(self.rank() * mine.len());
        own.zip(mine).for_each(|(count, mine)| *count = *mine as u64);
        let parts = contiguous_ranges(&vec![mine.len(); self.size()], 8);
        let at: *mut u8 = counts.as_mut_ptr().cast();
        // SAFETY: so many numbers for each member.
        unsafe { self.allgather_raw(Buffers { src: at, dst: at }, &parts)? };
        Ok(counts.into_iter().map(|count| count as usize).collect())
    }
}

fn unscalable(dtype: Dtype) -> InvalidArgument {
    InvalidArgument::Unsupported { op: "scaling", dtype: dtype.name() }
}

/// Ranges of so many elements each, without gaps.
pub fn contiguous_ranges(counts: &[usize], element: usize) -> Vec<Range<usize>> {
    let mut end = 0;
    let next = |count: &usize| {
        let start = end;
        end += count * element;
        start..end
    };
    counts.iter().map(next).collect()
}
