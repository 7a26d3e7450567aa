//! SIMD backends for AVX2 and AVX-512. Each operation gives, lane by lane, the bits of the portable functions in `half_bits` and
//! `simd_backend`, which also process lanes that do not fill a vector.

use std::arch::x86_64::*;

use super::{
    half_bits,
    simd_backend::{self, Kernel, SimdBackend},
};

#[inline(never)]
#[target_feature(enable = "avx2,f16c")]
pub(super) fn with_avx2<K: Kernel>(kernel: K) -> K::Output {
    kernel.run(Avx2(()))
}

#[inline(never)]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,f16c")]
pub(super) fn with_avx512<K: Kernel>(kernel: K) -> K::Output {
    kernel.run(Avx512(()))
}

/// Created only in [`with_avx2`]: a value proves that AVX2 and F16C are available.
#[derive(Clone, Copy)]
pub(super) struct Avx2(());

/// Created only in [`with_avx512`]: a value proves that AVX-512 F, BW, DQ and VL, AVX2 and F16C are available.
#[derive(Clone, Copy)]
pub(super) struct Avx512(());

/// Round to nearest, ties to even, independent of the control register.
const NEAREST: i32 = _MM_FROUND_TO_NEAREST_INT;

/// Computes an array: `$wide` lanes at a time with `$vector`, which gets the lane number and a pointer to the output, and the
/// remaining lanes with `$one`.
macro_rules! by_lanes {
    ($zero:expr, $wide:literal, |$lane:ident, $out:ident| $vector:expr, $one:expr) => {{
        let mut filled = [$zero; N];
        let mut $lane = 0;
        while $lane + $wide <= N {
            // SAFETY: `$wide` lanes from `lane` are within each of the arrays, which all have `N` lanes; `self` proves
            // that the processor has the instructions. The loads and stores need no alignment.
            unsafe {
                let $out = filled.as_mut_ptr().add($lane);
                $vector
            }
            $lane += $wide;
        }
        while $lane < N {
            filled[$lane] = $one;
            $lane += 1;
        }
        filled
    }};
}

impl SimdBackend for Avx2 {
    #[inline(always)]
    fn widen_f16<const N: usize>(self, halves: [u16; N]) -> [f32; N] {
        by_lanes!(
            0.0f32,
            8,
            |lane, out| _mm256_storeu_ps(out, _mm256_cvtph_ps(_mm_loadu_si128(halves.as_ptr().add(lane).cast()))),
            half_bits::widen_f16(halves[lane])
        )
    }

    #[inline(always)]
    fn narrow_f16<const N: usize>(self, singles: [f32; N]) -> [u16; N] {
        by_lanes!(
            0u16,
            8,
            |lane, out| {
                let packed = _mm256_cvtps_ph::<NEAREST>(_mm256_loadu_ps(singles.as_ptr().add(lane)));
                _mm_storeu_si128(out.cast(), packed);
            },
            half_bits::narrow_f16(singles[lane])
        )
    }

    #[inline(always)]
    fn widen_bf16<const N: usize>(self, bf16s: [u16; N]) -> [f32; N] {
        by_lanes!(
            0.0f32,
            8,
            |lane, out| {
                let low = _mm256_cvtepu16_epi32(_mm_loadu_si128(bf16s.as_ptr().add(lane).cast()));
                _mm256_storeu_ps(out, _mm256_castsi256_ps(_mm256_slli_epi32::<16>(low)));
            },
            half_bits::widen_bf16(bf16s[lane])
        )
    }

    #[inline(always)]
    fn narrow_bf16<const N: usize>(self, singles: [f32; N]) -> [u16; N] {
        by_lanes!(
            0u16,
            8,
            |lane, out| {
                let single = _mm256_loadu_ps(singles.as_ptr().add(lane));
                let bits = _mm256_castps_si256(single);
                let high = _mm256_srli_epi32::<16>(bits);
                let even = _mm256_and_si256(high, _mm256_set1_epi32(1));
                let carry = _mm256_add_epi32(even, _mm256_set1_epi32(0x7fff));
                let rounded = _mm256_srli_epi32::<16>(_mm256_add_epi32(bits, carry));
                let quiet = _mm256_or_si256(high, _mm256_set1_epi32(0x40));
                let nan = _mm256_castps_si256(_mm256_cmp_ps::<_CMP_UNORD_Q>(single, single));
                let chosen = _mm256_blendv_epi8(rounded, quiet, nan);
                let packed = _mm_packus_epi32(_mm256_castsi256_si128(chosen), _mm256_extracti128_si256::<1>(chosen));
                _mm_storeu_si128(out.cast(), packed);
            },
            half_bits::narrow_bf16(singles[lane])
        )
    }

    #[inline(always)]
    fn min_f32<const N: usize>(self, left: [f32; N], right: [f32; N]) -> [f32; N] {
        by_lanes!(
            0.0f32,
            8,
            |lane, out| {
                let (left, right) =
                    (_mm256_loadu_ps(left.as_ptr().add(lane)), _mm256_loadu_ps(right.as_ptr().add(lane)));
                let nan = _mm256_cmp_ps::<_CMP_UNORD_Q>(right, right);
                // min_ps returns the second operand unless the first is less.
                _mm256_storeu_ps(out, _mm256_blendv_ps(_mm256_min_ps(right, left), right, nan));
            },
            simd_backend::min_f32(left[lane], right[lane])
        )
    }

    #[inline(always)]
    fn max_f32<const N: usize>(self, left: [f32; N], right: [f32; N]) -> [f32; N] {
        by_lanes!(
            0.0f32,
            8,
            |lane, out| {
                let (left, right) =
                    (_mm256_loadu_ps(left.as_ptr().add(lane)), _mm256_loadu_ps(right.as_ptr().add(lane)));
                let nan = _mm256_cmp_ps::<_CMP_UNORD_Q>(right, right);
                _mm256_storeu_ps(out, _mm256_blendv_ps(_mm256_max_ps(right, left), right, nan));
            },
            simd_backend::max_f32(left[lane], right[lane])
        )
    }
}

impl SimdBackend for Avx512 {
    #[inline(always)]
    fn widen_f16<const N: usize>(self, halves: [u16; N]) -> [f32; N] {
        by_lanes!(
            0.0f32,
            16,
            |lane, out| _mm512_storeu_ps(out, _mm512_cvtph_ps(_mm256_loadu_si256(halves.as_ptr().add(lane).cast()))),
            half_bits::widen_f16(halves[lane])
        )
    }

    #[inline(always)]
    fn narrow_f16<const N: usize>(self, singles: [f32; N]) -> [u16; N] {
        by_lanes!(
            0u16,
            16,
            |lane, out| {
                let packed = _mm512_cvtps_ph::<NEAREST>(_mm512_loadu_ps(singles.as_ptr().add(lane)));
                _mm256_storeu_si256(out.cast(), packed);
            },
            half_bits::narrow_f16(singles[lane])
        )
    }

    #[inline(always)]
    fn widen_bf16<const N: usize>(self, bf16s: [u16; N]) -> [f32; N] {
        by_lanes!(
            0.0f32,
            16,
            |lane, out| {
                let low = _mm512_cvtepu16_epi32(_mm256_loadu_si256(bf16s.as_ptr().add(lane).cast()));
                _mm512_storeu_ps(out, _mm512_castsi512_ps(_mm512_slli_epi32::<16>(low)));
            },
            half_bits::widen_bf16(bf16s[lane])
        )
    }

    #[inline(always)]
    fn narrow_bf16<const N: usize>(self, singles: [f32; N]) -> [u16; N] {
        by_lanes!(
            0u16,
            16,
            |lane, out| {
                let single = _mm512_loadu_ps(singles.as_ptr().add(lane));
                let bits = _mm512_castps_si512(single);
                let high = _mm512_srli_epi32::<16>(bits);
                let even = _mm512_and_si512(high, _mm512_set1_epi32(1));
                let carry = _mm512_add_epi32(even, _mm512_set1_epi32(0x7fff));
                let rounded = _mm512_srli_epi32::<16>(_mm512_add_epi32(bits, carry));
                let nan = _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(single, single);
                let chosen = _mm512_mask_or_epi32(rounded, nan, high, _mm512_set1_epi32(0x40));
                _mm256_storeu_si256(out.cast(), _mm512_cvtepi32_epi16(chosen));
            },
            half_bits::narrow_bf16(singles[lane])
        )
    }

    #[inline(always)]
    fn min_f32<const N: usize>(self, left: [f32; N], right: [f32; N]) -> [f32; N] {
        by_lanes!(
            0.0f32,
            16,
            |lane, out| {
                let (left, right) =
                    (_mm512_loadu_ps(left.as_ptr().add(lane)), _mm512_loadu_ps(right.as_ptr().add(lane)));
                let nan = _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(right, right);
                // min_ps returns the second operand unless the first is less.
                _mm512_storeu_ps(out, _mm512_mask_mov_ps(_mm512_min_ps(right, left), nan, right));
            },
            simd_backend::min_f32(left[lane], right[lane])
        )
    }

    #[inline(always)]
    fn max_f32<const N: usize>(self, left: [f32; N], right: [f32; N]) -> [f32; N] {
        by_lanes!(
            0.0f32,
            16,
            |lane, out| {
                let (left, right) =
                    (_mm512_loadu_ps(left.as_ptr().add(lane)), _mm512_loadu_ps(right.as_ptr().add(lane)));
                let nan = _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(right, right);
                _mm512_storeu_ps(out, _mm512_mask_mov_ps(_mm512_max_ps(right, left), nan, right));
            },
            simd_backend::max_f32(left[lane], right[lane])
        )
    }
}
