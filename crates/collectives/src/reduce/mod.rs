//! Arithmetic on buffers: combining, folding, scaling, converting, and Adasum's vectors. Entered by the algorithms and
//! the engine with bytes and a [`Dtype`]; buffers need no alignment and hold whole elements.
//!
//! Never allocates, never waits, and gives the same bits on every machine and for every alignment (which NaN comes
//! of two is the exception), so that all ranks agree. What combining means is said in `number`, instruction sets are
//! chosen in `isa`.

mod adasum;
mod convert;
mod float;
mod fold;
mod half_bits;
mod isa;
pub mod measure;
mod number;
mod scale;
#[cfg(target_arch = "x86_64")]
mod simd_x86;
#[cfg(test)]
mod tests;

pub use adasum::{AdasumError, Dots, adasum_into, dots};
pub use convert::{ConvertError, convert};
pub use isa::Isa;
pub use scale::{ScaleError, scale};

use crate::{Combine, Dtype};

/// `out` = `sources[0]` op `sources[1]` op …, in exactly this order, in one pass; stored in `also` too if given.
/// A fold of one source is a copy.
///
/// # Safety
/// `n_bytes` (whole elements of `dtype`) can be read at each source and written at `out` and `also`, and nobody else
/// writes at any of them meanwhile. `out` and `also` do not overlap each other. Either may be exactly the place of one
/// source, and otherwise overlaps none.
///
/// # Panics
/// Without sources.
#[inline]
pub unsafe fn fold_raw(
    dtype: Dtype,
    op: Combine,
    out: *mut u8,
    also: Option<*mut u8>,
    sources: &[*const u8],
    n_bytes: usize,
) {
    // SAFETY: the caller's promise.
    unsafe { fold::fold(Isa::best(), dtype, op, out, also, sources, n_bytes) }
}

/// `acc` = `acc` op `src`.
///
/// # Safety
/// `n_bytes` (whole elements of `dtype`) can be read and written at `acc` and read at `src`, nobody else writes there
/// meanwhile, and they do not overlap unless they are the same.
#[inline]
pub unsafe fn combine_raw(dtype: Dtype, op: Combine, acc: *mut u8, src: *const u8, n_bytes: usize) {
    // SAFETY: the caller's promise.
    unsafe { fold_raw(dtype, op, acc, None, &[acc, src], n_bytes) }
}

/// `out` = `a` op `b`. Reads nothing at `out`, which may be the place of `a` or of `b`.
///
/// # Safety
/// As [`fold_raw`] of two.
#[inline]
pub unsafe fn combine_into_raw(dtype: Dtype, op: Combine, out: *mut u8, a: *const u8, b: *const u8, n_bytes: usize) {
    // SAFETY: the caller's promise.
    unsafe { fold_raw(dtype, op, out, None, &[a, b], n_bytes) }
}

/// `acc` = `acc` op `src`.
///
/// # Panics
/// If the lengths differ or are not whole elements.
pub fn combine(dtype: Dtype, op: Combine, acc: &mut [u8], src: &[u8]) {
    assert_whole(dtype, acc.len(), src.len());
    // SAFETY: slices of the same length, one of them ours alone.
    unsafe { combine_raw(dtype, op, acc.as_mut_ptr(), src.as_ptr(), src.len()) }
}

/// `out` = `a` op `b`.
///
/// # Panics
/// If the lengths differ or are not whole elements.
pub fn combine_into(dtype: Dtype, op: Combine, out: &mut [u8], a: &[u8], b: &[u8]) {
    assert_whole(dtype, a.len(), b.len());
    assert_eq!(out.len(), a.len(), "buffers of different lengths");
    // SAFETY: slices of the same length, `out` ours alone.
    unsafe { combine_into_raw(dtype, op, out.as_mut_ptr(), a.as_ptr(), b.as_ptr(), a.len()) }
}

fn assert_whole(dtype: Dtype, len: usize, other: usize) {
    assert_eq!(len, other, "buffers of different lengths");
    assert!(len.is_multiple_of(dtype.size()), "{len} bytes are not whole elements of {}", dtype.name());
}
