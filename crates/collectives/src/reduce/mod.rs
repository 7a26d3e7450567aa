//! Arithmetic on buffers of bytes with a [`Dtype`]: reduction, scaling, conversion, and Adasum. Buffers need no alignment and hold whole
//! elements.
//!
//! Never allocates, never blocks, and gives the same bits on every machine and for every alignment (except for the choice between two NaNs),
//! so that all ranks agree. `number` defines the operations, `isa` selects the instruction set.

mod adasum;
mod convert;
mod float;
mod fold;
mod half_bits;
mod isa;
pub mod measure;
mod number;
mod scale;
mod simd_backend;
#[cfg(target_arch = "x86_64")]
mod simd_x86;
#[cfg(test)]
mod tests;

pub use adasum::{AdasumError, Dots, adasum_into, dots};
pub use convert::{ConvertError, convert};
pub use isa::Isa;
pub use scale::{ScaleError, scale};

use crate::{Combine, Dtype};

/// Computes `out` = `sources[0]` op `sources[1]` op …, in exactly this order, in one pass; also stored in `also` if given.
/// A fold of one source is a copy.
///
/// # Safety
/// Each source must be readable, and `out` and `also` writable, for `n_bytes`, which are whole elements of `dtype`; no other thread or process writes
/// to them during the call. `out` and `also` do not overlap. Each of them is equal to one source or overlaps none.
///
/// # Panics
/// If `sources` is empty.
#[inline]
pub unsafe fn fold_raw(
    dtype: Dtype,
    op: Combine,
    out: *mut u8,
    also: Option<*mut u8>,
    sources: &[*const u8],
    n_bytes: usize,
) {
    // SAFETY: this function has the contract of `fold::fold`.
    unsafe { fold::fold(Isa::best(), dtype, op, out, also, sources, n_bytes) }
}

/// Computes `acc` = `acc` op `src`.
///
/// # Safety
/// `acc` must be readable and writable, and `src` readable, for `n_bytes`, which are whole elements of `dtype`; no other thread or process writes to
/// them during the call. They are equal or do not overlap.
#[inline]
pub unsafe fn combine_raw(dtype: Dtype, op: Combine, acc: *mut u8, src: *const u8, n_bytes: usize) {
    // SAFETY: `acc` is one of the sources, and otherwise this is the contract of `fold_raw`.
    unsafe { fold_raw(dtype, op, acc, None, &[acc, src], n_bytes) }
}

/// Computes `out` = `a` op `b`. `out` may be equal to `a` or `b`.
///
/// # Safety
/// As [`fold_raw`] with two sources.
#[inline]
pub unsafe fn combine_into_raw(dtype: Dtype, op: Combine, out: *mut u8, a: *const u8, b: *const u8, n_bytes: usize) {
    // SAFETY: this function has the contract of `fold_raw`.
    unsafe { fold_raw(dtype, op, out, None, &[a, b], n_bytes) }
}

/// Computes `acc` = `acc` op `src`.
///
/// # Panics
/// If the lengths differ or are not whole elements.
pub fn combine(dtype: Dtype, op: Combine, acc: &mut [u8], src: &[u8]) {
    assert_whole(dtype, acc.len(), src.len());
    // SAFETY: slices of the same length, whole elements as checked; `acc` is borrowed exclusively.
    unsafe { combine_raw(dtype, op, acc.as_mut_ptr(), src.as_ptr(), src.len()) }
}

/// Computes `out` = `a` op `b`.
///
/// # Panics
/// If the lengths differ or are not whole elements.
pub fn combine_into(dtype: Dtype, op: Combine, out: &mut [u8], a: &[u8], b: &[u8]) {
    assert_whole(dtype, a.len(), b.len());
    assert_eq!(out.len(), a.len(), "buffers of different lengths");
    // SAFETY: slices of the same length, whole elements as checked; `out` is borrowed exclusively.
    unsafe { combine_into_raw(dtype, op, out.as_mut_ptr(), a.as_ptr(), b.as_ptr(), a.len()) }
}

fn assert_whole(dtype: Dtype, len: usize, other: usize) {
    assert_eq!(len, other, "buffers of different lengths");
    assert!(len.is_multiple_of(dtype.size()), "{len} bytes are not whole elements of {}", dtype.name());
}
