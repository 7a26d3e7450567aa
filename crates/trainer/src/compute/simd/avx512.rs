//! AVX-512: vectors of 16 `f32`, 32 registers.

use std::arch::x86_64::*;

use super::{Simd, SimdKernel};

#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct Avx512(__m512);

// SAFETY: the methods use AVX-512F only; memory is accessed in `load` and `store` alone.
unsafe impl Simd for Avx512 {
    const LANES: usize = 16;

    #[target_feature(enable = "avx512f,avx2,fma")]
    unsafe fn dispatch<W: SimdKernel>(kernel: W) {
        // SAFETY: the caller guarantees that the CPU has AVX-512F; the kernel has checked its operands.
        unsafe { kernel.run::<Avx512>() }
    }

    #[inline(always)]
    unsafe fn load(from: *const f32) -> Avx512 {
        // SAFETY: the caller guarantees that the CPU has AVX-512F, and that `LANES` values can be read at `from`.
        Avx512(unsafe { _mm512_loadu_ps(from) })
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        // SAFETY: the caller guarantees that the CPU has AVX-512F, and that `LANES` values can be written at `to`.
        unsafe { _mm512_storeu_ps(to, self.0) }
    }

    #[inline(always)]
    unsafe fn splat(value: f32) -> Avx512 {
        // SAFETY: the caller guarantees that the CPU has AVX-512F; only registers are used.
        Avx512(unsafe { _mm512_set1_ps(value) })
    }

    #[inline(always)]
    unsafe fn add(self, other: Avx512) -> Avx512 {
        // SAFETY: the caller guarantees that the CPU has AVX-512F; only registers are used.
        Avx512(unsafe { _mm512_add_ps(self.0, other.0) })
    }

    #[inline(always)]
    unsafe fn mul(self, other: Avx512) -> Avx512 {
        // SAFETY: the caller guarantees that the CPU has AVX-512F; only registers are used.
        Avx512(unsafe { _mm512_mul_ps(self.0, other.0) })
    }

    #[inline(always)]
    unsafe fn mul_add(self, factor: Avx512, summand: Avx512) -> Avx512 {
        // SAFETY: the caller guarantees that the CPU has AVX-512F; only registers are used.
        Avx512(unsafe { _mm512_fmadd_ps(self.0, factor.0, summand.0) })
    }

    #[inline(always)]
    unsafe fn max(self, other: Avx512) -> Avx512 {
        // SAFETY: the caller guarantees that the CPU has AVX-512F; only registers are used.
        Avx512(unsafe { _mm512_max_ps(self.0, other.0) })
    }

    #[inline(always)]
    unsafe fn gt_mask(self, other: Avx512) -> u16 {
        // SAFETY: the caller guarantees that the CPU has AVX-512F; only registers are used.
        unsafe { _mm512_cmp_ps_mask::<_CMP_GT_OQ>(self.0, other.0) }
    }

    #[inline(always)]
    unsafe fn mask_lanes(self, lanes: u16) -> Avx512 {
        // SAFETY: the caller guarantees that the CPU has AVX-512F; only registers are used.
        Avx512(unsafe { _mm512_maskz_mov_ps(lanes, self.0) })
    }
}
