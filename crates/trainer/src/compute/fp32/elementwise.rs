//! Elementwise operations on hidden units.

use super::pooling::{DropoutMask, keep_lanes};
use crate::compute::simd::{Simd, SimdKernel};

/// ReLU and dropout, in place.
pub struct ReluDropout<'a> {
    pub values: &'a mut [f32],
    pub dropout: Option<DropoutMask>,
}

impl ReluDropout<'_> {
    pub fn run<S: Simd>(self) {
        assert!(self.values.len().is_multiple_of(S::LANES));
        // SAFETY: the engine is created only if the CPU supports `S`; the length is a multiple of `S::LANES`.
        unsafe { S::dispatch(self) }
    }
}

impl SimdKernel for ReluDropout<'_> {
    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let scale = self.dropout.map_or(1.0, |dropout| dropout.scale);
        for first in (0..self.values.len()).step_by(S::LANES) {
            // SAFETY: a whole vector starting at `first` is in bounds.
            unsafe {
                let ptr = self.values.as_mut_ptr().add(first);
                let value = S::splat(0.0).max(S::load(ptr)).mul(S::splat(scale));
                let lanes = self.dropout.map_or(u16::MAX, |dropout| keep_lanes::<S>(dropout, first));
                value.mask_lanes(lanes).store(ptr);
            }
        }
    }
}

/// Gradient of both: passes the gradient where the activation is positive.
pub struct ReluDropoutBackward<'a> {
    pub gradient: &'a mut [f32],
    pub activations: &'a [f32],
    pub scale: f32,
}

impl ReluDropoutBackward<'_> {
    pub fn run<S: Simd>(self) {
        assert!(self.gradient.len().is_multiple_of(S::LANES) && self.gradient.len() == self.activations.len());
        // SAFETY: the engine is created only if the CPU supports `S`; the lengths are equal and a multiple of
        // `S::LANES`.
        unsafe { S::dispatch(self) }
    }
}

impl SimdKernel for ReluDropoutBackward<'_> {
    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        for first in (0..self.gradient.len()).step_by(S::LANES) {
            // SAFETY: a whole vector starting at `first` is in bounds of both slices.
            unsafe {
                let ptr = self.gradient.as_mut_ptr().add(first);
                let lanes = S::load(self.activations.as_ptr().add(first)).gt_mask(S::splat(0.0));
                S::load(ptr).mul(S::splat(self.scale)).mask_lanes(lanes).store(ptr);
            }
        }
    }
}
