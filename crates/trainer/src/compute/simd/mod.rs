//! Vectors of single precision numbers, so that every kernel is written once and runs on each instruction set. Entered by kernels only.
//!
//! A kernel is a [`SimdKernel`]: its numbers and pointers in a struct, its loops in `run`. [`Simd::dispatch`] runs it as code of that instruction set.
//! For that, all it calls must be `#[inline(always)]`, down to the methods here: what is not inlined would be compiled for the oldest
//! processor, and pass vectors through memory.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod portable;

#[cfg(target_arch = "x86_64")]
pub use avx2::Avx2;
#[cfg(target_arch = "x86_64")]
pub use avx512::Avx512;
pub use portable::Portable;

/// A vector.
///
/// # Safety
///
/// All methods need a processor with the instruction set of the implementing type; `load` and `store` reach over `LANES` numbers.
pub unsafe trait Simd: Copy + Send + Sync + 'static {
    /// Numbers in a vector: 16 or 8.
    const LANES: usize;

    unsafe fn dispatch<W: SimdKernel>(kernel: W);

    unsafe fn load(from: *const f32) -> Self;
    unsafe fn store(self, to: *mut f32);
    unsafe fn splat(value: f32) -> Self;
    unsafe fn add(self, other: Self) -> Self;
    unsafe fn mul(self, other: Self) -> Self;
    /// `self * factor + summand`.
    unsafe fn mul_add(self, factor: Self, summand: Self) -> Self;
    /// The greater ones; where one is no number, that of `other`.
    unsafe fn max(self, other: Self) -> Self;
    /// A bit for each lane, from the lowest, where `self` is greater.
    unsafe fn gt_mask(self, other: Self) -> u16;
    /// Zero in the lanes whose bit is not set.
    unsafe fn mask_lanes(self, lanes: u16) -> Self;
}

/// What runs as code of one instruction set.
pub trait SimdKernel {
    /// # Safety
    ///
    /// To be called by [`Simd::dispatch`] only. What else must hold is what the maker of the work has checked.
    unsafe fn run<S: Simd>(self);
}
