//! Multiplication of a buffer by a factor: prescale, postscale, and the division of an average.
//!
//! Integers are multiplied in f64, truncated toward zero and saturated; f16 and
//! bf16 are multiplied in f32 and rounded to nearest even; f32 by the factor as f32; f64 by the factor. A factor of exactly 1 does nothing.

use std::marker::PhantomData;

use half::{bf16, f16};

use super::{
    float::Float,
    isa::{Isa, dispatch},
    simd_backend::{Kernel, SimdBackend},
};
use crate::Dtype;

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScaleError {
    #[error("elements of type {} cannot be scaled", .0.name())]
    Unsupported(Dtype),
}

/// Computes `data` = `data` · `factor`. An error for bool.
pub fn scale(dtype: Dtype, factor: f64, data: &mut [u8]) -> Result<(), ScaleError> {
    scale_with(Isa::best(), dtype, factor, data)
}

pub(super) fn scale_with(isa: Isa, dtype: Dtype, factor: f64, data: &mut [u8]) -> Result<(), ScaleError> {
    if factor == 1.0 {
        return Ok(());
    }
    match dtype {
        Dtype::Bool => return Err(ScaleError::Unsupported(dtype)),
        Dtype::U8 => dispatch(isa, ElementKernel::<u8>(data, factor, PhantomData)),
        Dtype::I8 => dispatch(isa, ElementKernel::<i8>(data, factor, PhantomData)),
        Dtype::U16 => dispatch(isa, ElementKernel::<u16>(data, factor, PhantomData)),
        Dtype::I16 => dispatch(isa, ElementKernel::<i16>(data, factor, PhantomData)),
        Dtype::I32 => dispatch(isa, ElementKernel::<i32>(data, factor, PhantomData)),
        Dtype::I64 => dispatch(isa, ElementKernel::<i64>(data, factor, PhantomData)),
        Dtype::F32 => dispatch(isa, ElementKernel::<f32>(data, factor, PhantomData)),
        Dtype::F64 => dispatch(isa, ElementKernel::<f64>(data, factor, PhantomData)),
        Dtype::F16 => dispatch(isa, HalfKernel::<f16>(data, factor as f32, PhantomData)),
        Dtype::Bf16 => dispatch(isa, HalfKernel::<bf16>(data, factor as f32, PhantomData)),
    }
    Ok(())
}

/// Scaling one element at a time: a loop that compilers vectorise.
struct ElementKernel<'a, T>(&'a mut [u8], f64, PhantomData<T>);

macro_rules! elements {
    ($($rust:ty: |$element:ident, $factor:ident| $product:expr;)*) => {$(
        impl Kernel for ElementKernel<'_, $rust> {
            type Output = ();

            #[inline(always)]
            fn run<M: SimdBackend>(self, _: M) {
                let $factor = self.1;
                for bytes in self.0.as_chunks_mut::<{ size_of::<$rust>() }>().0 {
                    let $element = <$rust>::from_ne_bytes(*bytes);
                    *bytes = <$rust>::to_ne_bytes($product);
                }
            }
        }
    )*};
}

elements! {
    u8: |x, factor| truncated(f64::from(x) * factor, u8::MIN.into(), u8::MAX.into()) as u8;
    i8: |x, factor| truncated(f64::from(x) * factor, i8::MIN.into(), i8::MAX.into()) as i8;
    u16: |x, factor| truncated(f64::from(x) * factor, u16::MIN.into(), u16::MAX.into()) as u16;
    i16: |x, factor| truncated(f64::from(x) * factor, i16::MIN.into(), i16::MAX.into()) as i16;
    i32: |x, factor| truncated(f64::from(x) * factor, i32::MIN, i32::MAX);
    i64: |x, factor| truncated_long(x as f64 * factor);
    f32: |x, factor| x * factor as f32;
    f64: |x, factor| x * factor;
}

/// `product as T` for a type in the range of i32, in steps that compilers vectorise, unlike `as` itself.
#[inline(always)]
fn truncated(product: f64, min: i32, max: i32) -> i32 {
    let (min, max) = (f64::from(min), f64::from(max));
    let product = if product.is_nan() { 0.0 } else { product };
    let product = if product < min { min } else { product };
    let product = if product > max { max } else { product };
    // SAFETY: `product` is not NaN and between two i32.
    unsafe { product.to_int_unchecked() }
}

/// `product as i64`, likewise. i64::MAX is not an f64, so values beyond the last f64 below it are saturated afterwards.
#[inline(always)]
fn truncated_long(product: f64) -> i64 {
    const END: f64 = i64::MAX as f64;
    let inside = if product.is_nan() { 0.0 } else { product };
    let inside = if inside < -END { -END } else { inside };
    let inside = if inside > END.next_down() { END.next_down() } else { inside };
    // SAFETY: `inside` is not NaN, and from -2^63 to the last f64 below 2^63.
    let truncated = unsafe { inside.to_int_unchecked() };
    if product >= END { i64::MAX } else { truncated }
}

/// Scaling of f16 and bf16, in f32.
struct HalfKernel<'a, T>(&'a mut [u8], f32, PhantomData<T>);

impl<T: Float<Stored = u16>> Kernel for HalfKernel<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<M: SimdBackend>(self, simd: M) {
        let HalfKernel(data, factor, _) = self;
        let (packs, rest) = data.as_chunks_mut::<64>();
        for pack in packs {
            // SAFETY: the pack is 32 elements of two bytes.
            unsafe { multiply::<M, T, 32>(simd, factor, pack.as_mut_ptr().cast()) };
        }
        for element in rest.as_chunks_mut::<2>().0 {
            // SAFETY: `element` has two bytes.
            unsafe { multiply::<M, T, 1>(simd, factor, element.as_mut_ptr().cast()) };
        }
    }
}

/// # Safety
/// `elements` must be readable and writable for `N` elements; it may be unaligned.
#[inline(always)]
unsafe fn multiply<M: SimdBackend, T: Float<Stored = u16>, const N: usize>(
    simd: M,
    factor: f32,
    elements: *mut [u16; N],
) {
    // SAFETY: readable for `N` elements by the function's contract.
    let mut singles = T::to_f32(simd, unsafe { elements.read_unaligned() });
    for single in &mut singles {
        *single *= factor;
    }
    // SAFETY: writable for `N` elements by the function's contract.
    unsafe { elements.write_unaligned(T::from_f32(simd, singles)) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::{Element, bytes_of_mut};

    fn check<T: Element + PartialEq + std::fmt::Debug>(factor: f64, mut elements: Vec<T>, expected: &[T]) {
        scale(T::DTYPE, factor, bytes_of_mut(&mut elements)).expect("a number can be scaled");
        assert_eq!(elements, expected);
    }

    #[test]
    fn integers_are_truncated_toward_zero_as_upstream_does() {
        check(0.5, vec![-3, 3, 5, -5], &[-1, 1, 2, -2]);
        check(0.5, vec![3i64], &[1]);
        check(2.0, vec![(1i64 << 53) + 1], &[1 << 54]);
        check(2.0, vec![100i8, -100, 7], &[127, -128, 14]);
        check(-1.0, vec![3u8], &[0]);
        check(-2.0, vec![i32::MAX, i32::MIN], &[i32::MIN, i32::MAX]);
        check(-2.0, vec![i64::MAX, i64::MIN, 1 << 61], &[i64::MIN, i64::MAX, -(1 << 62)]);
        check(f64::NAN, vec![7i64, 0], &[0, 0]);
        check(f64::INFINITY, vec![7i16, 0, -7], &[i16::MAX, 0, i16::MIN]);
    }

    #[test]
    fn floats_are_multiplied_in_their_own_precision() {
        check(1.0 / 3.0, vec![1.0f32], &[1.0f32 / 3.0]);
        check(0.1, vec![3.0f64], &[3.0 * 0.1]);
        check(0.1, vec![f16::from_f32(3.0)], &[f16::from_f32(3.0f32 * 0.1)]);
        check(0.1, vec![bf16::from_f32(3.0)], &[bf16::from_f32(3.0f32 * 0.1)]);
    }

    #[test]
    fn one_changes_nothing_and_bool_is_refused() {
        let signalling = 0x7f80_0001u32.to_ne_bytes();
        let mut data = signalling;
        assert_eq!(scale(Dtype::F32, 1.0, &mut data), Ok(()));
        assert_eq!(data, signalling);
        assert_eq!(scale(Dtype::Bool, 1.0, bytes_of_mut(&mut [true])), Ok(()));
        assert_eq!(scale(Dtype::Bool, 0.5, bytes_of_mut(&mut [true])), Err(ScaleError::Unsupported(Dtype::Bool)));
    }
}
