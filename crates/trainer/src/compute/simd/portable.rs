//! Portable fallback: arrays of 8 `f32` that the compiler vectorises for any CPU.

use super::{Simd, SimdKernel};

#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct Portable([f32; 8]);

impl Portable {
    #[inline(always)]
    fn zip_with(self, other: Portable, op: impl Fn(f32, f32) -> f32) -> Portable {
        let mut all = self.0;
        for (one, other) in all.iter_mut().zip(other.0) {
            *one = op(*one, other);
        }
        Portable(all)
    }
}

// SAFETY: no method needs a particular instruction set; memory is accessed in `load` and `store` alone.
unsafe impl Simd for Portable {
    const LANES: usize = 8;

    unsafe fn dispatch<W: SimdKernel>(kernel: W) {
        // SAFETY: runs on every CPU; the kernel has checked its operands.
        unsafe { kernel.run::<Portable>() }
    }

    #[inline(always)]
    unsafe fn load(from: *const f32) -> Portable {
        // SAFETY: the caller guarantees that `LANES` values can be read at `from`, whose alignment is that of `f32`.
        Portable(unsafe { from.cast::<[f32; 8]>().read() })
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        // SAFETY: the caller guarantees that `LANES` values can be written at `to`, whose alignment is that of `f32`.
        unsafe { to.cast::<[f32; 8]>().write(self.0) }
    }

    #[inline(always)]
    unsafe fn splat(value: f32) -> Portable {
        Portable([value; 8])
    }

    #[inline(always)]
    unsafe fn add(self, other: Portable) -> Portable {
        self.zip_with(other, |a, b| a + b)
    }

    #[inline(always)]
    unsafe fn mul(self, other: Portable) -> Portable {
        self.zip_with(other, |a, b| a * b)
    }

    #[inline(always)]
    unsafe fn mul_add(self, factor: Portable, summand: Portable) -> Portable {
        self.zip_with(factor, |a, b| a * b).zip_with(summand, |a, b| a + b)
    }

    #[inline(always)]
    unsafe fn max(self, other: Portable) -> Portable {
        self.zip_with(other, |a, b| if a > b { a } else { b })
    }

    #[inline(always)]
    unsafe fn gt_mask(self, other: Portable) -> u16 {
        (0..8).fold(0, |lanes, lane| lanes | (u16::from(self.0[lane] > other.0[lane]) << lane))
    }

    #[inline(always)]
    unsafe fn mask_lanes(mut self, lanes: u16) -> Portable {
        for lane in 0..8 {
            self.0[lane] = if lanes >> lane & 1 == 1 { self.0[lane] } else { 0.0 };
        }
        self
    }
}
