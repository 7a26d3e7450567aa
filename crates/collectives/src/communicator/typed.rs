//! Operations on slices (groups are in [`super::grouped`]). Arguments are checked before anything is sent.
//!
//! Every operation is collective: all members call the same ones in the same order, with compatible inputs, as the
//! documentation of each says. Ranks and roots count within the communicator, lengths are in elements. Inputs may be empty.
//!
//! Errors are the same for all operations. [`Error::InvalidArgument`]: the arguments of this rank are invalid; nothing was sent and the
//! communicator stays usable (members whose arguments are valid now wait). Any other error: a member died, left or broke
//! its connection; the operation has no result, the content of the buffers is undefined, and the communicator is unusable.
//!
//! Integers wrap in sums and products, and their averages are truncated toward zero; `bool` is logical ("or" for sum and max, "and" for product
//! and min) and has no average. All ranks get the same bits.

use std::ops::Range;

use crate::algorithm::{Buffers, Reduction, partition};
use crate::communicator::Communicator;
use crate::compression::{Compression, narrow, widen};
use crate::dtype::{Dtype, Element, bytes_of, bytes_of_mut};
use crate::error::{Error, InvalidArgument};
use crate::op::{Combine, ReduceOp};
use crate::reduce;

/// Horovod's scale factors of a reduction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scale {
    /// Factor of each rank's input, before the reduction.
    pub prescale: f64,
    /// Factor of the result, in addition to the division of an average.
    pub postscale: f64,
}

impl Scale {
    /// No scaling.
    pub const NONE: Scale = Scale { prescale: 1.0, postscale: 1.0 };
}

impl Communicator {
    /// Reduces the `data` of all members elementwise, in place. All members pass the same number of elements.
    pub fn allreduce<T: Element>(&mut self, data: &mut [T], op: ReduceOp) -> Result<(), Error> {
        self.allreduce_scaled(data, op, Scale::NONE)
    }

    /// As [`Communicator::allreduce`], with scale factors. All members pass the same ones.
    pub fn allreduce_scaled<T: Element>(&mut self, data: &mut [T], op: ReduceOp, scale: Scale) -> Result<(), Error> {
        let bytes = bytes_of_mut(data);
        let at = bytes.as_mut_ptr();
        // SAFETY: `at` is valid for the bytes of the slice, as input and output.
        unsafe { self.allreduce_checked(Buffers { src: at, dst: at }, bytes.len(), T::DTYPE, op, scale) }
    }

    /// As [`Communicator::allreduce`] with a separate `output` of the same length.
    pub fn allreduce_into<T: Element>(&mut self, input: &[T], output: &mut [T], op: ReduceOp) -> Result<(), Error> {
        let (input, output) = (bytes_of(input), bytes_of_mut(output));
        if input.len() != output.len() {
            return Err(InvalidArgument::LengthMismatch { input: input.len(), output: output.len() }.into());
        }
        let buffers = Buffers { src: input.as_ptr(), dst: output.as_mut_ptr() };
        // SAFETY: slices of the same length that do not overlap.
        unsafe { self.allreduce_checked(buffers, output.len(), T::DTYPE, op, Scale::NONE) }
    }

    /// As [`Communicator::allreduce`], with values that are sent in half precision. All members use the same compression.
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
        // SAFETY: `at` is valid for the vector, which holds whole elements of `dtype`.
        let outcome =
            unsafe { self.allreduce_checked(Buffers { src: at, dst: at }, short.len(), dtype, op, Scale::NONE) };
        if outcome.is_ok() {
            widen(&short, dtype, data);
        }
        self.fused = short;
        outcome
    }

    /// Concatenates the `data` of all members in rank order. Lengths may differ.
    pub fn allgather<T: Element>(&mut self, data: &[T]) -> Result<Vec<T>, Error> {
        let counts = self.all_counts(&[data.len()])?;
        self.allgather_counts(data, &counts)
    }

    /// Allgather with known element counts of all members; `data` is this rank's input.
    pub(super) fn allgather_counts<T: Element>(&mut self, data: &[T], counts: &[usize]) -> Result<Vec<T>, Error> {
        let parts = contiguous_ranges(counts, size_of::<T>());
        let n_elements: usize = counts.iter().sum();
        let mut output: Vec<T> = Vec::with_capacity(n_elements);
        let dst: *mut u8 = output.as_mut_ptr().cast();
        let src = bytes_of(data).as_ptr().wrapping_sub(parts[self.rank()].start);
        // SAFETY: the output has capacity for all parts, `data` is the own part, and every gathered part holds valid elements of `T`.
        unsafe {
            self.allgather_raw(Buffers { src, dst }, &parts)?;
            output.set_len(n_elements);
        }
        Ok(output)
    }

    /// Copies `root`'s `data` to all members. All members pass the same number of elements.
    pub fn broadcast<T: Element>(&mut self, data: &mut [T], root: usize) -> Result<(), Error> {
        if root >= self.size() {
            return Err(InvalidArgument::Root { root, size: self.size() }.into());
        }
        let bytes = bytes_of_mut(data);
        // SAFETY: the pointer is valid for the bytes of the slice.
        unsafe { self.broadcast_raw(bytes.as_mut_ptr(), bytes.len(), root) }
    }

    /// Sends `counts[i]` elements to member `i`, taken from `data` in order; returns the received elements in rank order,
    /// and how many came from each member. Counts need not be equal on all members.
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
        // SAFETY: both vectors have one 8-byte number for each member.
        unsafe { self.alltoall_raw(words.as_ptr().cast(), &each, theirs.as_mut_ptr().cast(), &each)? };
        let theirs: Vec<usize> = theirs.into_iter().map(|count| count as usize).collect();
        let n_elements = theirs.iter().sum();
        let mut output: Vec<T> = Vec::with_capacity(n_elements);
        let (sent, received) = (contiguous_ranges(counts, size_of::<T>()), contiguous_ranges(&theirs, size_of::<T>()));
        // SAFETY: `data` is valid for `sent`, the output has capacity for `received`, and received parts hold valid elements of `T`.
        unsafe {
            self.alltoall_raw(bytes_of(data).as_ptr(), &sent, output.as_mut_ptr().cast(), &received)?;
            output.set_len(n_elements);
        }
        Ok((output, theirs))
    }

    /// Reduces the `data` of all members and returns this rank's rows, of `row` elements each. The first ranks get one more row if
    /// they do not divide evenly. All members pass the same number of elements.
    pub fn reducescatter<T: Element>(&mut self, data: &[T], row: usize, op: ReduceOp) -> Result<Vec<T>, Error> {
        let reduction = self.reduction(T::DTYPE, op, 1.0)?;
        let ranges = self.row_ranges(data, row)?;
        self.reducescatter_ranges(data, &ranges, reduction)
    }

    /// The byte range of each rank's rows.
    pub(super) fn row_ranges<T: Element>(&self, data: &[T], row: usize) -> Result<Vec<Range<usize>>, InvalidArgument> {
        let row_bytes = row * size_of::<T>();
        let n_rows = data.len().checked_div(row).unwrap_or(0);
        if n_rows * row != data.len() {
            return Err(InvalidArgument::CountsSum { counted: n_rows * row_bytes, held: size_of_val(data) });
        }
        let rows = (0..self.size()).map(|rank| partition::split_rows(n_rows, self.size(), rank));
        Ok(rows.map(|rows| rows.start * row_bytes..rows.end * row_bytes).collect())
    }

    /// Reduce-scatter with given byte ranges of all members; returns this rank's.
    pub(super) fn reducescatter_ranges<T: Element>(
        &mut self,
        data: &[T],
        parts: &[Range<usize>],
        reduction: Reduction,
    ) -> Result<Vec<T>, Error> {
        let n_elements = parts[self.rank()].len() / size_of::<T>();
        let mut output: Vec<T> = Vec::with_capacity(n_elements);
        // SAFETY: `data` is valid for all parts, the output has capacity for the own part, and reduced parts hold valid elements of `T`.
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

    /// Allreduce of bytes. Checks length, dtype and operation.
    ///
    /// # Safety
    /// `src` must be readable and `dst` writable for `n_bytes`; they are equal or do not overlap.
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
            self.reduction(dtype, op, scale.postscale)?;
        }
        let mut buffers = buffers;
        // SAFETY: `buffers` are valid for `n_bytes`, by the function's contract, which are whole elements, as checked above.
        unsafe {
            if scale.prescale != 1.0 {
                buffers.copy_input_to_output(n_bytes);
                buffers.src = buffers.dst;
                let data = std::slice::from_raw_parts_mut(buffers.dst, n_bytes);
                reduce::scale(dtype, scale.prescale, data).map_err(|_| unscalable(dtype))?;
            }
            if op != ReduceOp::Adasum {
                let reduction = self.reduction(dtype, op, scale.postscale)?;
                return self.allreduce_raw(buffers, n_bytes, reduction);
            }
            buffers.copy_input_to_output(n_bytes);
            self.adasum_raw(buffers.dst, std::slice::from_ref(&(0..n_bytes)), dtype)?;
            let data = std::slice::from_raw_parts_mut(buffers.dst, n_bytes);
            Ok(reduce::scale(dtype, scale.postscale, data).map_err(|_| unscalable(dtype))?)
        }
    }

    /// Checks that Adasum is possible: floats only, and a power of two of members.
    pub fn check_adasum(&self, dtype: Dtype) -> Result<(), InvalidArgument> {
        if !dtype.is_float() {
            return Err(InvalidArgument::Unsupported { op: "Adasum", dtype: dtype.name() });
        }
        if !self.size().is_power_of_two() {
            return Err(InvalidArgument::AdasumSize { size: self.size() });
        }
        Ok(())
    }

    /// The reduction of `op`, with the division of an average in its factor.
    pub fn reduction(&self, dtype: Dtype, op: ReduceOp, postscale: f64) -> Result<Reduction, InvalidArgument> {
        let combine: Combine =
            op.combine().ok_or(InvalidArgument::Unsupported { op: "Adasum", dtype: dtype.name() })?;
        let factor = if op == ReduceOp::Average { postscale / self.size() as f64 } else { postscale };
        if factor != 1.0 && dtype == Dtype::Bool {
            return Err(unscalable(dtype));
        }
        Ok(Reduction { dtype, combine, factor })
    }

    /// Exchanges the element counts of all members: by rank, then by tensor.
    pub(super) fn all_counts(&mut self, own_counts: &[usize]) -> Result<Vec<usize>, Error> {
        let mut counts = vec![0u64; self.size() * own_counts.len()];
        let own = counts.iter_mut().skip(self.rank() * own_counts.len());
        own.zip(own_counts).for_each(|(count, own)| *count = *own as u64);
        let parts = contiguous_ranges(&vec![own_counts.len(); self.size()], 8);
        let at: *mut u8 = counts.as_mut_ptr().cast();
        // SAFETY: the vector has `own_counts.len()` numbers for each member.
        unsafe { self.allgather_raw(Buffers { src: at, dst: at }, &parts)? };
        Ok(counts.into_iter().map(|count| count as usize).collect())
    }
}

fn unscalable(dtype: Dtype) -> InvalidArgument {
    InvalidArgument::Unsupported { op: "scaling", dtype: dtype.name() }
}

/// Consecutive byte ranges of `counts` elements each.
pub fn contiguous_ranges(counts: &[usize], element: usize) -> Vec<Range<usize>> {
    let mut end = 0;
    let next = |count: &usize| {
        let start = end;
        end += count * element;
        start..end
    };
    counts.iter().map(next).collect()
}
