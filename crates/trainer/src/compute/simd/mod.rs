//! Portable `f32` vectors: every kernel is written once and compiled for each instruction set.
//!
//! A kernel is a [`SimdKernel`]: a struct with its operands and a `run` method with its loops. [`Simd::dispatch`] runs
//! it inside a function compiled for that instruction set. Everything that `run` calls must be `#[inline(always)]`,
//! down to the methods here: code that is not inlined would be compiled for the baseline CPU and pass vectors through
//! memory.

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

/// A vector of `f32`.
///
/// # Safety
///
/// An implementation uses only instructions that its type names, and accesses no memory except in `load` and `store`.
pub unsafe trait Simd: Copy + Send + Sync + 'static {
    /// Values per vector: 16 or 8.
    const LANES: usize;

    /// Runs a kernel in a function that is compiled for this instruction set.
    ///
    /// # Safety
    ///
    /// The CPU has the instruction set of `Self`. This holds for every other method too.
    unsafe fn dispatch<W: SimdKernel>(kernel: W);

    /// # Safety
    ///
    /// As for `dispatch`; `LANES` consecutive values can be read at `from`.
    unsafe fn load(from: *const f32) -> Self;
    /// # Safety
    ///
    /// As for `dispatch`; `LANES` consecutive values can be written at `to`.
    unsafe fn store(self, to: *mut f32);
    /// # Safety
    ///
    /// As for `dispatch`.
    unsafe fn splat(value: f32) -> Self;
    /// # Safety
    ///
    /// As for `dispatch`.
    unsafe fn add(self, other: Self) -> Self;
    /// # Safety
    ///
    /// As for `dispatch`.
    unsafe fn mul(self, other: Self) -> Self;
    /// `self * factor + summand`.
    ///
    /// # Safety
    ///
    /// As for `dispatch`.
    unsafe fn mul_add(self, factor: Self, summand: Self) -> Self;
    /// Lane-wise maximum; if either value is NaN, the one of `other`.
    ///
    /// # Safety
    ///
    /// As for `dispatch`.
    unsafe fn max(self, other: Self) -> Self;
    /// Bit mask, lowest lane first, of the lanes in which `self` is greater.
    ///
    /// # Safety
    ///
    /// As for `dispatch`.
    unsafe fn gt_mask(self, other: Self) -> u16;
    /// Zeroes the lanes whose bit is not set.
    ///
    /// # Safety
    ///
    /// As for `dispatch`.
    unsafe fn mask_lanes(self, lanes: u16) -> Self;
}

/// Code that is compiled once for each instruction set.
pub trait SimdKernel {
    /// Runs the kernel.
    ///
    /// # Safety
    ///
    /// Only [`Simd::dispatch`] may call it, so that the CPU supports `S`. The constructor of the kernel has checked
    /// that its operands are in bounds.
    unsafe fn run<S: Simd>(self);
}
