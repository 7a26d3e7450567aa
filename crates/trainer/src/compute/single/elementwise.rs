//! What happens to each hidden unit by itself.

use super::pooling::{Drops, kept};
use crate::compute::simd::{Simd, Work};

/// ReLU and dropout, in place.
pub struct Activate<'a> {
    pub values: &'a mut [f32],
    pub drops: Option<Drops>,
}

impl Activate<'_> {
    pub fn run<S: Simd>(self) {
        assert!(self.values.len().is_multiple_of(S::LANES));
        // SAFETY: the engine is made only on processors that have `S`; there are whole vectors.
        unsafe { S::enter(self) }
    }
}

impl Work for Activate<'_> {
    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let scale = self.drops.map_or(1.0, |drops| drops.scale);
        for first in (0..self.values.len()).step_by(S::LANES) {
            // SAFETY: a whole vector from `first` on is inside.
            unsafe {
                let place = self.values.as_mut_ptr().add(first);
                let value = S::splat(0.0).max(S::load(place)).mul(S::splat(scale));
                let lanes = self.drops.map_or(u16::MAX, |drops| kept::<S>(drops, first));
                value.keep(lanes).store(place);
            }
        }
    }
}

/// Backward through both: the gradient goes on where the activation is above zero.
pub struct Gate<'a> {
    pub gradient: &'a mut [f32],
    pub activations: &'a [f32],
    pub scale: f32,
}

impl Gate<'_> {
    pub fn run<S: Simd>(self) {
        assert!(self.gradient.len().is_multiple_of(S::LANES) && self.gradient.len() == self.activations.len());
        // SAFETY: the engine is made only on processors that have `S`; there are whole vectors.
        unsafe { S::enter(self) }
    }
}

impl Work for Gate<'_> {
    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        for first in (0..self.gradient.len()).step_by(S::LANES) {
            // SAFETY: a whole vector from `first` on is inside of both.
            unsafe {
                let place = self.gradient.as_mut_ptr().add(first);
                let lanes = S::load(self.activations.as_ptr().add(first)).above(S::splat(0.0));
                S::load(place).mul(S::splat(self.scale)).keep(lanes).store(place);
            }
        }
    }
}
