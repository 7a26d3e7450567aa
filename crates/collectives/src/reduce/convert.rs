//! Conversion between float dtypes, for gradient compression.
//!
//! All conversions go through f32, so f64 to half precision rounds twice, as in PyTorch and TensorFlow.

use std::marker::PhantomData;

use half::{bf16, f16};

use super::{
    float::Float,
    isa::{Isa, dispatch},
    simd_backend::{Kernel, SimdBackend},
};
use crate::Dtype;

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConvertError {
    #[error("elements of type {} are not floating-point numbers", .0.name())]
    NotFloat(Dtype),
}

/// Converts every element of `src` into `dst`, rounding to nearest, ties to even.
///
/// # Panics
/// If the slices do not hold the same number of whole elements.
pub fn convert(from: Dtype, to: Dtype, src: &[u8], dst: &mut [u8]) -> Result<(), ConvertError> {
    convert_with(Isa::best(), from, to, src, dst)
}

pub(super) fn convert_with(isa: Isa, from: Dtype, to: Dtype, src: &[u8], dst: &mut [u8]) -> Result<(), ConvertError> {
    assert!(src.len().is_multiple_of(from.size()), "{} bytes are not whole elements of {}", src.len(), from.name());
    assert_eq!(src.len() / from.size(), dst.len() / to.size(), "different numbers of elements");
    assert!(dst.len().is_multiple_of(to.size()), "{} bytes are not whole elements of {}", dst.len(), to.name());
    match from {
        _ if from == to && from.is_float() => dst.copy_from_slice(src),
        Dtype::F16 => convert_from::<f16>(isa, to, src, dst)?,
        Dtype::Bf16 => convert_from::<bf16>(isa, to, src, dst)?,
        Dtype::F32 => convert_from::<f32>(isa, to, src, dst)?,
        Dtype::F64 => convert_from::<f64>(isa, to, src, dst)?,
        other => return Err(ConvertError::NotFloat(other)),
    }
    Ok(())
}

fn convert_from<F: Float>(isa: Isa, to: Dtype, src: &[u8], dst: &mut [u8]) -> Result<(), ConvertError> {
    match to {
        Dtype::F16 => dispatch(isa, ConvertKernel::<F, f16> { src, dst, types: PhantomData }),
        Dtype::Bf16 => dispatch(isa, ConvertKernel::<F, bf16> { src, dst, types: PhantomData }),
        Dtype::F32 => dispatch(isa, ConvertKernel::<F, f32> { src, dst, types: PhantomData }),
        Dtype::F64 => dispatch(isa, ConvertKernel::<F, f64> { src, dst, types: PhantomData }),
        other => return Err(ConvertError::NotFloat(other)),
    }
    Ok(())
}

struct ConvertKernel<'a, F, T> {
    src: &'a [u8],
    dst: &'a mut [u8],
    types: PhantomData<(F, T)>,
}

impl<F: Float, T: Float> Kernel for ConvertKernel<'_, F, T> {
    type Output = ();

    #[inline(always)]
    fn run<M: SimdBackend>(self, simd: M) {
        const PACK: usize = 32;
        let n_elements = (self.src.len() / size_of::<F::Stored>()).min(self.dst.len() / size_of::<T::Stored>());
        let (src, dst) = (self.src.as_ptr().cast::<F::Stored>(), self.dst.as_mut_ptr().cast::<T::Stored>());
        let mut at = 0;
        // SAFETY: each step is within `n_elements`, which both slices have.
        unsafe {
            while at + PACK <= n_elements {
                step::<M, F, T, PACK>(simd, src.add(at).cast(), dst.add(at).cast());
                at += PACK;
            }
            while at < n_elements {
                step::<M, F, T, 1>(simd, src.add(at).cast(), dst.add(at).cast());
                at += 1;
            }
        }
    }
}

/// # Safety
/// `src` must be readable and `dst` writable for `N` elements; they may be unaligned.
#[inline(always)]
unsafe fn step<M: SimdBackend, F: Float, T: Float, const N: usize>(
    simd: M,
    src: *const [F::Stored; N],
    dst: *mut [T::Stored; N],
) {
    // SAFETY: both are valid for `N` elements by the function's contract.
    unsafe { dst.write_unaligned(T::from_f32(simd, F::to_f32(simd, src.read_unaligned()))) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::{Element, bytes_of, bytes_of_mut};

    fn check<F: Element, T: Element + PartialEq + std::fmt::Debug>(src: &[F], zero: T, expected: &[T]) {
        let mut dst = vec![zero; expected.len()];
        convert(F::DTYPE, T::DTYPE, bytes_of(src), bytes_of_mut(&mut dst)).expect("both are floats");
        assert_eq!(dst, expected);
    }

    #[test]
    fn half_precision_is_rounded_to_nearest_and_converted_back() {
        let (one, next) = (f16::from_bits(0x3c00), f16::from_bits(0x3c01));
        check(&[1.0f32, 1.000_488_3, 1.000_488_4, 1e9], f16::ZERO, &[one, one, next, f16::INFINITY]);
        check(&[one, next], 0.0f64, &[1.0, 1.0 + 1.0 / 1024.0]);
        check(&[1.0f32, 1.003_906_3], bf16::ZERO, &[bf16::ONE, bf16::ONE]);
        check(&[bf16::ONE], f16::ZERO, &[one]);
    }

    #[test]
    fn integers_are_refused_on_either_side() {
        let refused = Err(ConvertError::NotFloat(Dtype::I32));
        assert_eq!(convert(Dtype::I32, Dtype::F16, &[0; 4], &mut [0; 2]), refused);
        assert_eq!(convert(Dtype::F16, Dtype::I32, &[0; 2], &mut [0; 4]), refused);
        assert_eq!(convert(Dtype::I32, Dtype::I32, &[0; 4], &mut [0; 4]), refused);
    }
}
