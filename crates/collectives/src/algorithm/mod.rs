//! Algorithms of collectives over `transport`. Each file explains one algorithm; `select` chooses between them. No algorithm allocates per
//! operation once its scratch buffers have grown.

pub mod cma_collectives;
pub mod one_shot;
pub mod pairwise;
pub mod partition;
pub mod pipelined_shm;
pub mod ring;
pub mod select;

use crate::dtype::Dtype;
use crate::op::Combine;
use crate::reduce;

/// A reduction: element type, operation and factor.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reduction {
    pub dtype: Dtype,
    pub combine: Combine,
    /// Factor of each result. The rank that computes the final result of a part applies it, so an average needs no extra pass.
    pub factor: f64,
}

impl Reduction {
    /// Multiplies final results by the factor.
    ///
    /// # Safety
    /// `at` must be valid for reads and writes of `n_bytes`, which are whole elements of the dtype, and not accessed by others during the call.
    #[inline]
    pub unsafe fn apply_factor(&self, at: *mut u8, n_bytes: usize) {
        if self.factor != 1.0 {
            // SAFETY: `at` is valid for `n_bytes` and accessed by no other, by the function's contract.
            let data = unsafe { std::slice::from_raw_parts_mut(at, n_bytes) };
            reduce::scale(self.dtype, self.factor, data).expect("the caller has checked that the dtype can be scaled");
        }
    }
}

/// A collective in which every member owns one part of the buffer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Collective {
    /// Every member ends with its own part, reduced over all members.
    ReduceScatter(Reduction),
    /// Every member begins with its own part and ends with all parts. A broadcast, if one part is everything.
    Allgather,
    /// Every member ends with all parts, reduced over all members.
    Allreduce(Reduction),
}

/// Input and output of an operation. Raw pointers, because they are equal for an operation in place.
#[derive(Clone, Copy, Debug)]
pub struct Buffers {
    pub src: *const u8,
    pub dst: *mut u8,
}

impl Buffers {
    /// Copies the input to the output, unless they are the same memory.
    ///
    /// # Safety
    /// `src` must be readable and `dst` writable for `n_bytes`; they are equal or do not overlap.
    pub unsafe fn copy_input_to_output(self, n_bytes: usize) {
        if !std::ptr::eq(self.src, self.dst) {
            // SAFETY: both are valid for `n_bytes`, and do not overlap because they are not equal, by the function's contract.
            unsafe { std::ptr::copy_nonoverlapping(self.src, self.dst, n_bytes) };
        }
    }
}
