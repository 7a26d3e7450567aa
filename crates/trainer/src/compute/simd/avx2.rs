//! AVX2: vectors of 8 `f32`, 16 registers.

use std::arch::x86_64::*;

use super::{Simd, SimdKernel};

#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct Avx2(__m256);

// SAFETY: the methods use AVX2 and FMA only; memory is accessed in `load` and `store` alone.
unsafe impl Simd for Avx2 {
    const LANES: usize = 8;

    #[target_feature(enable = "avx2,fma")]
    unsafe fn dispatch<W: SimdKernel>(kernel: W) {
        // SAFETY: the caller guarantees that the CPU has AVX2 and FMA; the kernel has checked its operands.
        unsafe { kernel.run::<Avx2>() }
    }

    #[inline(always)]
    unsafe fn load(from: *const f32) -> Avx2 {
        // SAFETY: the caller guarantees that the CPU has AVX2 and FMA, and that `LANES` values can be read at `from`.
        Avx2(unsafe { _mm256_loadu_ps(from) })
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        // SAFETY: the caller guarantees that the CPU has AVX2 and FMA, and that `LANES` values can be written at `to`.
        unsafe { _mm256_storeu_ps(to, self.0) }
    }

    #[inline(always)]
    unsafe fn splat(value: f32) -> Avx2 {
        // SAFETY: the caller guarantees that the CPU has AVX2 and FMA; only registers are used.
        Avx2(unsafe { _mm256_set1_ps(value) })
    }

    #[inline(always)]
    unsafe fn add(self, other: Avx2) -> Avx2 {
        // SAFETY: the caller guarantees that the CPU has AVX2 and FMA; only registers are used.
        Avx2(unsafe { _mm256_add_ps(self.0, other.0) })
    }

    #[inline(always)]
    unsafe fn mul(self, other: Avx2) -> Avx2 {
        // SAFETY: the caller guarantees that the CPU has AVX2 and FMA; only registers are used.
        Avx2(unsafe { _mm256_mul_ps(self.0, other.0) })
    }

    #[inline(always)]
    unsafe fn mul_add(self, factor: Avx2, summand: Avx2) -> Avx2 {
        // SAFETY: the caller guarantees that the CPU has AVX2 and FMA; only registers are used.
        Avx2(unsafe { _mm256_fmadd_ps(self.0, factor.0, summand.0) })
    }

    #[inline(always)]
    unsafe fn max(self, other: Avx2) -> Avx2 {
        // SAFETY: the caller guarantees that the CPU has AVX2 and FMA; only registers are used.
        Avx2(unsafe { _mm256_max_ps(self.0, other.0) })
    }

    #[inline(always)]
    unsafe fn gt_mask(self, other: Avx2) -> u16 {
        // SAFETY: the caller guarantees that the CPU has AVX2 and FMA; only registers are used.
        unsafe { _mm256_movemask_ps(_mm256_cmp_ps::<_CMP_GT_OQ>(self.0, other.0)) as u16 }
    }

    #[inline(always)]
    unsafe fn mask_lanes(self, lanes: u16) -> Avx2 {
        // SAFETY: the caller guarantees that the CPU has AVX2 and FMA; only registers are used.
        unsafe {
            let bits = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
            let set = _mm256_and_si256(_mm256_set1_epi32(i32::from(lanes)), bits);
            let lanes = _mm256_castsi256_ps(_mm256_cmpeq_epi32(set, bits));
            Avx2(_mm256_and_ps(self.0, lanes))
        }
    }
}
