//! How a collective is done over what `transport` offers. Each file explains one way, and is tested alone; `choice` says which is
//! taken. No algorithm allocates while it works.

pub mod choice;
pub mod direct;
pub mod flat;
pub mod pairwise;
pub mod parts;
pub mod ring;
pub mod staged;

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
    pub unsafe fn finish(&self, at: *mut u8, n_bytes: usize) {
        if self.factor != 1.0 {
            // SAFETY: the caller's.
            let data = unsafe { std::slice::from_raw_parts_mut(at, n_bytes) };
            reduce::scale(self.dtype, self.factor, data).expect("the door refused what cannot be scaled");
        }
    }
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
    pub unsafe fn bring(self, n_bytes: usize) {
        if !std::ptr::eq(self.src, self.dst) {
            // SAFETY: the caller's.
            unsafe { std::ptr::copy_nonoverlapping(self.src, self.dst, n_bytes) };
        }
    }
}
