//! The adaptive sum of two vectors: (1 − a·b/2‖a‖²)·a + (1 − a·b/2‖b‖²)·b. Vectors that point the same way are averaged,
//! orthogonal ones are added. Entered by the Adasum algorithm, which adds up the dots of the ranks that share a vector.
//!
//! Dots are in f64, each in sixteen partial sums that are added in a fixed order, so that every machine gets the same.
//! The result is computed in f64 for f32 and f64, in f32 for the halves.

use std::{marker::PhantomData, ops::AddAssign};

use half::{bf16, f16};

use super::{
    float::Float,
    isa::{Isa, Kernel, Machine, dispatch},
};
use crate::Dtype;

/// The dot products of two vectors, or the sum of those of their pieces.
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
    /// What a and b are multiplied with. One where a vector is so short that its square tells nothing.
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

/// `a` = the adaptive sum of `a` and `b`, whose dots (of the whole vectors, if these are pieces) are given.
///
/// # Panics
/// If the lengths differ.
pub fn adasum_into(dtype: Dtype, dots: Dots, a: &mut [u8], b: &[u8]) -> Result<(), AdasumError> {
    adasum_with(Isa::best(), dtype, dots, a, b)
}

pub(super) fn dots_with(isa: Isa, dtype: Dtype, a: &[u8], b: &[u8]) -> Result<Dots, AdasumError> {
    assert_eq!(a.len(), b.len(), "vectors of different lengths");
    Ok(match dtype {
        Dtype::F16 => dispatch(isa, Multiply::<f16>(a, b, PhantomData)),
        Dtype::Bf16 => dispatch(isa, Multiply::<bf16>(a, b, PhantomData)),
        Dtype::F32 => dispatch(isa, Multiply::<f32>(a, b, PhantomData)),
        Dtype::F64 => dispatch(isa, Multiply::<f64>(a, b, PhantomData)),
        other => return Err(AdasumError::NotFloat(other)),
    })
}

pub(super) fn adasum_with(isa: Isa, dtype: Dtype, dots: Dots, a: &mut [u8], b: &[u8]) -> Result<(), AdasumError> {
    assert_eq!(a.len(), b.len(), "vectors of different lengths");
    let weights = dots.weights();
    match dtype {
        Dtype::F16 => dispatch(isa, Weigh::<f16>(weights, a, b, PhantomData)),
        Dtype::Bf16 => dispatch(isa, Weigh::<bf16>(weights, a, b, PhantomData)),
        Dtype::F32 => dispatch(isa, Weigh::<f32>(weights, a, b, PhantomData)),
        Dtype::F64 => dispatch(isa, Weigh::<f64>(weights, a, b, PhantomData)),
        other => return Err(AdasumError::NotFloat(other)),
    }
    Ok(())
}

const LANES: usize = 16;

struct Multiply<'a, T>(&'a [u8], &'a [u8], PhantomData<T>);

impl<T: Float> Kernel for Multiply<'_, T> {
    type Output = Dots;

    #[inline(always)]
    fn run<M: Machine>(self, machine: M) -> Dots {
        let n_elements = self.0.len() / size_of::<T::Stored>();
        let (a, b) = (self.0.as_ptr().cast::<T::Stored>(), self.1.as_ptr().cast::<T::Stored>());
        let (mut ab, mut aa, mut bb) = ([0.0; LANES], [0.0; LANES], [0.0; LANES]);
        let mut at = 0;
        while at + LANES <= n_elements {
            // SAFETY: the next elements are within both slices, which have the same length; no alignment is asked.
            let (a, b) = unsafe { (read::<T, LANES>(a.add(at)), read::<T, LANES>(b.add(at))) };
            let (a, b) = (T::to_f64::<M, LANES>(machine, a), T::to_f64::<M, LANES>(machine, b));
            for lane in 0..LANES {
                ab[lane] += a[lane] * b[lane];
                aa[lane] += a[lane] * a[lane];
                bb[lane] += b[lane] * b[lane];
            }
            at += LANES;
        }
        for lane in 0..n_elements - at {
            // SAFETY: as above, one element.
            let (a, b) = unsafe { (read::<T, 1>(a.add(at + lane)), read::<T, 1>(b.add(at + lane))) };
            let ([a], [b]) = (T::to_f64::<M, 1>(machine, a), T::to_f64::<M, 1>(machine, b));
            ab[lane] += a * b;
            aa[lane] += a * a;
            bb[lane] += b * b;
        }
        Dots { ab: total(ab), aa: total(aa), bb: total(bb) }
    }
}

/// # Safety
/// The elements, aligned or not, can be read.
#[inline(always)]
unsafe fn read<T: Float, const N: usize>(elements: *const T::Stored) -> [T::Stored; N] {
    // SAFETY: the caller's promise.
    unsafe { elements.cast::<[T::Stored; N]>().read_unaligned() }
}

/// Adds the upper half of the lanes to the lower, until one is left.
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

struct Weigh<'a, T>((f64, f64), &'a mut [u8], &'a [u8], PhantomData<T>);

impl<T: Float> Kernel for Weigh<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<M: Machine>(self, machine: M) {
        let n_elements = self.1.len() / size_of::<T::Stored>();
        let (a, b) = (self.1.as_mut_ptr().cast::<T::Stored>(), self.2.as_ptr().cast::<T::Stored>());
        let mut at = 0;
        // SAFETY: each step stays within both slices, which have the same length.
        unsafe {
            while at + LANES <= n_elements {
                weigh::<M, T, LANES>(machine, self.0, a.add(at).cast(), b.add(at).cast());
                at += LANES;
            }
            while at < n_elements {
                weigh::<M, T, 1>(machine, self.0, a.add(at).cast(), b.add(at).cast());
                at += 1;
            }
        }
    }
}

/// # Safety
/// The elements, aligned or not, can be read at both and written at `a`.
#[inline(always)]
unsafe fn weigh<M: Machine, T: Float, const N: usize>(
    machine: M,
    weights: (f64, f64),
    a: *mut [T::Stored; N],
    b: *const [T::Stored; N],
) {
    // SAFETY: the caller's promise.
    unsafe { a.write_unaligned(T::weigh(machine, weights, a.read_unaligned(), b.read_unaligned())) }
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
        // a·b = 2, ‖a‖² = 1, ‖b‖² = 4: a is not counted at all, b for three quarters.
        assert_eq!(adasum(vec![1.0, 0.0], vec![2.0, 0.0]), [1.5, 0.0]);
    }

    #[test]
    fn a_vector_of_nothing_leaves_the_other_as_it_is() {
        assert_eq!(adasum(vec![0.0, 0.0], vec![1.0, -2.0]), [1.0, -2.0]);
        assert_eq!(Dots { ab: 1.0, aa: 1e-160, bb: 1.0 }.weights(), (1.0, 0.5));
    }

    #[test]
    fn integers_are_refused() {
        assert_eq!(dots(Dtype::I32, &[], &[]), Err(AdasumError::NotFloat(Dtype::I32)));
        assert_eq!(adasum_into(Dtype::Bool, Dots::default(), &mut [], &[]), Err(AdasumError::NotFloat(Dtype::Bool)));
    }
}
