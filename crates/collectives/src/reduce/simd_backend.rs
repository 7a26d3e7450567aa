//! SIMD operations that kernels use and compilers do not vectorise well by themselves: conversion of half-precision floats, and min and max with NaN. The
//! portable versions here are the reference; each instruction set must give the same bits.

use super::half_bits;

/// A loop that is compiled once for each instruction set. `run` and everything it calls must be `#[inline(always)]`: only
/// code that is inlined into a function with `#[target_feature]` uses its instructions.
pub(super) trait Kernel {
    type Output;
    fn run<M: SimdBackend>(self, simd: M) -> Self::Output;
}

/// Lane operations of an instruction set. A value of an implementing type proves that its instructions are available. The default methods are the
/// portable loops.
pub(super) trait SimdBackend: Copy {
    #[inline(always)]
    fn widen_f16<const N: usize>(self, halves: [u16; N]) -> [f32; N] {
        let mut out = [0.0; N];
        for lane in 0..N {
            out[lane] = half_bits::widen_f16(halves[lane]);
        }
        out
    }

    #[inline(always)]
    fn narrow_f16<const N: usize>(self, singles: [f32; N]) -> [u16; N] {
        let mut out = [0; N];
        for lane in 0..N {
            out[lane] = half_bits::narrow_f16(singles[lane]);
        }
        out
    }

    #[inline(always)]
    fn widen_bf16<const N: usize>(self, bf16s: [u16; N]) -> [f32; N] {
        let mut out = [0.0; N];
        for lane in 0..N {
            out[lane] = half_bits::widen_bf16(bf16s[lane]);
        }
        out
    }

    #[inline(always)]
    fn narrow_bf16<const N: usize>(self, singles: [f32; N]) -> [u16; N] {
        let mut out = [0; N];
        for lane in 0..N {
            out[lane] = half_bits::narrow_bf16(singles[lane]);
        }
        out
    }

    /// The smaller of each pair of lanes, as [`min_f32`].
    #[inline(always)]
    fn min_f32<const N: usize>(self, left: [f32; N], right: [f32; N]) -> [f32; N] {
        let mut out = left;
        for lane in 0..N {
            out[lane] = min_f32(left[lane], right[lane]);
        }
        out
    }

    /// The larger of each pair of lanes, as [`max_f32`].
    #[inline(always)]
    fn max_f32<const N: usize>(self, left: [f32; N], right: [f32; N]) -> [f32; N] {
        let mut out = left;
        for lane in 0..N {
            out[lane] = max_f32(left[lane], right[lane]);
        }
        out
    }
}

/// The portable backend.
#[derive(Clone, Copy)]
pub(super) struct Portable;

impl SimdBackend for Portable {}

/// The smaller operand; NaN if either is. A NaN on the right is returned explicitly, one on the left because no comparison with it holds.
#[inline(always)]
pub(super) fn min_f32(left: f32, right: f32) -> f32 {
    if right < left || right.is_nan() { right } else { left }
}

/// The larger operand; NaN if either is.
#[inline(always)]
pub(super) fn max_f32(left: f32, right: f32) -> f32 {
    if right > left || right.is_nan() { right } else { left }
}
