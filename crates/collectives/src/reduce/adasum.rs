//! Adasum, the adaptive sum of two vectors: (1 − a·b/2‖a‖²)·a + (1 − a·b/2‖b‖²)·b. Parallel vectors are averaged, orthogonal ones are added.
//!
//! Dot products are computed in f64, in sixteen partial sums that are added in a fixed order, so that every machine gets the same bits.
//! The result is computed in f64 for f32 and f64, in f32 for f16 and bf16.

use std::{marker::PhantomData, ops::AddAssign};

use half::{bf16, f16};

use super::{
    float::Float,
    isa::{Isa, dispatch},
    simd_backend::{Kernel, SimdBackend},
};
use crate::Dtype;

/// The dot products of two vectors, or sums over their parts.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Dots {
    pub ab: f64,
    pub aa: f64,
    pub bb: f64,
}

impl AddAssign for Dots {
    fn add_assign(&mut self, other: Dots) {
        self.ab += other.ab;
        self.aa += other.aa;
        self.bb += other.bb;
    }
}

impl Dots {
    /// The factors of a and b. 1 for a vector whose squared norm is too small to divide by.
    pub fn weights(self) -> (f64, f64) {
        let tiny = f64::MIN_POSITIVE.sqrt();
        let weight = |square: f64| if square < tiny { 1.0 } else { 1.0 - self.ab / (2.0 * square) };
        (weight(self.aa), weight(self.bb))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AdasumError {
    #[error("Adasum is not defined for elements of type {}", .0.name())]
    NotFloat(Dtype),
}

/// The dot products of `a` and `b`.
///
/// # Panics
/// If the lengths differ.
pub fn dots(dtype: Dtype, a: &[u8], b: &[u8]) -> Result<Dots, AdasumError> {
    dots_with(Isa::best(), dtype, a, b)
}

/// Replaces `a` by the adaptive sum of `a` and `b`. `dots` are those of the whole vectors, if `a` and `b` are parts.
///
/// # Panics
/// If the lengths differ.
pub fn adasum_into(dtype: Dtype, dots: Dots, a: &mut [u8], b: &[u8]) -> Result<(), AdasumError> {
    adasum_with(Isa::best(), dtype, dots, a, b)
}

pub(super) fn dots_with(isa: Isa, dtype: Dtype, a: &[u8], b: &[u8]) -> Result<Dots, AdasumError> {
    assert_eq!(a.len(), b.len(), "vectors of different lengths");
    Ok(match dtype {
        Dtype::F16 => dispatch(isa, DotKernel::<f16>(a, b, PhantomData)),
        Dtype::Bf16 => dispatch(isa, DotKernel::<bf16>(a, b, PhantomData)),
        Dtype::F32 => dispatch(isa, DotKernel::<f32>(a, b, PhantomData)),
        Dtype::F64 => dispatch(isa, DotKernel::<f64>(a, b, PhantomData)),
        other => return Err(AdasumError::NotFloat(other)),
    })
}

pub(super) fn adasum_with(isa: Isa, dtype: Dtype, dots: Dots, a: &mut [u8], b: &[u8]) -> Result<(), AdasumError> {
    assert_eq!(a.len(), b.len(), "vectors of different lengths");
    let weights = dots.weights();
    match dtype {
        Dtype::F16 => dispatch(isa, WeightedSumKernel::<f16>(weights, a, b, PhantomData)),
        Dtype::Bf16 => dispatch(isa, WeightedSumKernel::<bf16>(weights, a, b, PhantomData)),
        Dtype::F32 => dispatch(isa, WeightedSumKernel::<f32>(weights, a, b, PhantomData)),
        Dtype::F64 => dispatch(isa, WeightedSumKernel::<f64>(weights, a, b, PhantomData)),
        other => return Err(AdasumError::NotFloat(other)),
    }
    Ok(())
}

const LANES: usize = 16;

struct DotKernel<'a, T>(&'a [u8], &'a [u8], PhantomData<T>);

impl<T: Float> Kernel for DotKernel<'_, T> {
    type Output = Dots;

    #[inline(always)]
    fn run<M: SimdBackend>(self, simd: M) -> Dots {
        let n_elements = self.0.len() / size_of::<T::Stored>();
        let (a, b) = (self.0.as_ptr().cast::<T::Stored>(), self.1.as_ptr().cast::<T::Stored>());
        let (mut ab, mut aa, mut bb) = ([0.0; LANES], [0.0; LANES], [0.0; LANES]);
        let mut at = 0;
        while at + LANES <= n_elements {
            // SAFETY: the next `LANES` elements are within both slices, which have the same length; `read` needs no alignment.
            let (a, b) = unsafe { (read::<T, LANES>(a.add(at)), read::<T, LANES>(b.add(at))) };
            let (a, b) = (T::to_f64::<M, LANES>(simd, a), T::to_f64::<M, LANES>(simd, b));
            for lane in 0..LANES {
                ab[lane] += a[lane] * b[lane];
                aa[lane] += a[lane] * a[lane];
                bb[lane] += b[lane] * b[lane];
            }
            at += LANES;
        }
        for lane in 0..n_elements - at {
            // SAFETY: the element is within both slices; `read` needs no alignment.
            let (a, b) = unsafe { (read::<T, 1>(a.add(at + lane)), read::<T, 1>(b.add(at + lane))) };
            let ([a], [b]) = (T::to_f64::<M, 1>(simd, a), T::to_f64::<M, 1>(simd, b));
            ab[lane] += a * b;
            aa[lane] += a * a;
            bb[lane] += b * b;
        }
        Dots { ab: total(ab), aa: total(aa), bb: total(bb) }
    }
}

/// # Safety
/// `elements` must be readable for `N` elements; it may be unaligned.
#[inline(always)]
unsafe fn read<T: Float, const N: usize>(elements: *const T::Stored) -> [T::Stored; N] {
    // SAFETY: readable for `N` elements by the function's contract; all byte patterns are valid.
    unsafe { elements.cast::<[T::Stored; N]>().read_unaligned() }
}

/// Sums the lanes as a tree: adds the upper half to the lower half until one lane is left.
#[inline(always)]
pub(super) fn total(mut lanes: [f64; LANES]) -> f64 {
    let mut half = LANES / 2;
    while half > 0 {
        for lane in 0..half {
            lanes[lane] += lanes[lane + half];
        }
        half /= 2;
    }
    lanes[0]
}

struct WeightedSumKernel<'a, T>((f64, f64), &'a mut [u8], &'a [u8], PhantomData<T>);

impl<T: Float> Kernel for WeightedSumKernel<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<M: SimdBackend>(self, simd: M) {
        let n_elements = self.1.len() / size_of::<T::Stored>();
        let (a, b) = (self.1.as_mut_ptr().cast::<T::Stored>(), self.2.as_ptr().cast::<T::Stored>());
        let mut at = 0;
        // SAFETY: each step stays within both slices, which have the same length.
        unsafe {
            while at + LANES <= n_elements {
                weighted_sum::<M, T, LANES>(simd, self.0, a.add(at).cast(), b.add(at).cast());
                at += LANES;
            }
            while at < n_elements {
                weighted_sum::<M, T, 1>(simd, self.0, a.add(at).cast(), b.add(at).cast());
                at += 1;
            }
        }
    }
}

/// # Safety
/// `a` must be readable and writable, and `b` readable, for `N` elements; they may be unaligned.
#[inline(always)]
unsafe fn weighted_sum<M: SimdBackend, T: Float, const N: usize>(
    simd: M,
    weights: (f64, f64),
    a: *mut [T::Stored; N],
    b: *const [T::Stored; N],
) {
    // SAFETY: both are valid for `N` elements by the function's contract.
    unsafe { a.write_unaligned(T::weighted_sum(simd, weights, a.read_unaligned(), b.read_unaligned())) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::{bytes_of, bytes_of_mut};

    fn adasum(mut a: Vec<f32>, b: Vec<f32>) -> Vec<f32> {
        let dots = dots(Dtype::F32, bytes_of(&a), bytes_of(&b)).expect("floats");
        adasum_into(Dtype::F32, dots, bytes_of_mut(&mut a), bytes_of(&b)).expect("floats");
        a
    }

    #[test]
    fn equal_vectors_are_averaged_and_orthogonal_ones_added() {
        assert_eq!(adasum(vec![2.0, 4.0], vec![2.0, 4.0]), [2.0, 4.0]);
        assert_eq!(adasum(vec![3.0, 0.0], vec![0.0, 5.0]), [3.0, 5.0]);
        // a·b = 2, ‖a‖² = 1, ‖b‖² = 4: the factor of a is 0, that of b is 3/4.
        assert_eq!(adasum(vec![1.0, 0.0], vec![2.0, 0.0]), [1.5, 0.0]);
    }

    #[test]
    fn a_zero_vector_leaves_the_other_unchanged() {
        assert_eq!(adasum(vec![0.0, 0.0], vec![1.0, -2.0]), [1.0, -2.0]);
        assert_eq!(Dots { ab: 1.0, aa: 1e-160, bb: 1.0 }.weights(), (1.0, 0.5));
    }

    #[test]
    fn integers_are_refused() {
        assert_eq!(dots(Dtype::I32, &[], &[]), Err(AdasumError::NotFloat(Dtype::I32)));
        assert_eq!(adasum_into(Dtype::Bool, Dots::default(), &mut [], &[]), Err(AdasumError::NotFloat(Dtype::Bool)));
    }
}
