//! How a collective is done over what `transport` offers. Each file explains one way, and is tested alone; `choice` says which is
//! taken. No algorithm allocates while it works.

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

/// What is done to the elements.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reduction {
    pub dtype: Dtype,
    pub combine: Combine,
    /// What each result is multiplied with, by whoever finishes it: an average costs one rank's part of a pass, not a pass.
    pub factor: f64,
}

impl Reduction {
    /// Scales finished results.
    ///
    /// # Safety
    /// `at` must hold `n_bytes` of whole elements that nobody else looks at yet.
    #[inline]
    pub unsafe fn apply_factor(&self, at: *mut u8, n_bytes: usize) {
        if self.factor != 1.0 {
            // SAFETY: the caller's.
            let data = unsafe { std::slice::from_raw_parts_mut(at, n_bytes) };
            reduce::scale(self.dtype, self.factor, data).expect("the door refused what cannot be scaled");
        }
    }
}

/// A collective of which every member owns one part of the buffer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Collective {
    /// Every member ends with its own part, reduced over all members.
    ReduceScatter(Reduction),
    /// Every member begins with its own part and ends with all parts. A broadcast, if one part is everything.
    Allgather,
    /// Every member ends with all parts, reduced over all members.
    Allreduce(Reduction),
}

/// Where an operation reads and writes: raw, because in place they are the same memory.
#[derive(Clone, Copy, Debug)]
pub struct Buffers {
    pub src: *const u8,
    pub dst: *mut u8,
}

impl Buffers {
    /// Brings the input to where the output goes.
    ///
    /// # Safety
    /// Both must hold `n_bytes`, the same or apart.
    pub unsafe fn copy_input_to_output(self, n_bytes: usize) {
        if !std::ptr::eq(self.src, self.dst) {
            // SAFETY: the caller's.
            unsafe { std::ptr::copy_nonoverlapping(self.src, self.dst, n_bytes) };
        }
    }
}
