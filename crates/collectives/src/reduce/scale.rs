//! Multiplies a buffer by a number: prescale, postscale, and the division of an average. Entered by the engine before
//! and after a reduction.
//!
//! Integers are multiplied in f64 and truncated toward zero (past the ends of the type they stay at its end); f16 and
//! bf16 in f32, rounded to nearest even; f32 by the factor as f32; f64 as it is. A factor of exactly 1 does nothing.

use std::marker::PhantomData;

use half::{bf16, f16};

use super::{
    float::Float,
    isa::{Isa, Kernel, Machine, dispatch},
};
use crate::Dtype;

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScaleError {
    #[error("elements of type {} cannot be scaled", .0.name())]
    Refused(Dtype),
}

/// `data` = `data` · `factor`. Refused for bool.
pub fn scale(dtype: Dtype, factor: f64, data: &mut [u8]) -> Result<(), ScaleError> {
    scale_with(Isa::best(), dtype, factor, data)
}

pub(super) fn scale_with(isa: Isa, dtype: Dtype, factor: f64, data: &mut [u8]) -> Result<(), ScaleError> {
    if factor == 1.0 {
        return Ok(());
    }
    match dtype {
        Dtype::Bool => return Err(ScaleError::Refused(dtype)),
        Dtype::U8 => dispatch(isa, Elements::<u8>(data, factor, PhantomData)),
        Dtype::I8 => dispatch(isa, Elements::<i8>(data, factor, PhantomData)),
        Dtype::U16 => dispatch(isa, Elements::<u16>(data, factor, PhantomData)),
        Dtype::I16 => dispatch(isa, Elements::<i16>(data, factor, PhantomData)),
        Dtype::I32 => dispatch(isa, Elements::<i32>(data, factor, PhantomData)),
        Dtype::I64 => dispatch(isa, Elements::<i64>(data, factor, PhantomData)),
        Dtype::F32 => dispatch(isa, Elements::<f32>(data, factor, PhantomData)),
        Dtype::F64 => dispatch(isa, Elements::<f64>(data, factor, PhantomData)),
        Dtype::F16 => dispatch(isa, Halves::<f16>(data, factor as f32, PhantomData)),
        Dtype::Bf16 => dispatch(isa, Halves::<bf16>(data, factor as f32, PhantomData)),
    }
    Ok(())
}

/// Elements that are replaced one by one: a loop over one buffer, which compilers turn into vectors.
struct Elements<'a, T>(&'a mut [u8], f64, PhantomData<T>);

macro_rules! elements {
    ($($rust:ty: |$element:ident, $factor:ident| $product:expr;)*) => {$(
        impl Kernel for Elements<'_, $rust> {
            type Output = ();

            #[inline(always)]
            fn run<M: Machine>(self, _: M) {
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

/// `product as T` for a type that i32 holds, in steps that compilers turn into vectors, which `as` itself is not.
#[inline(always)]
fn truncated(product: f64, min: i32, max: i32) -> i32 {
    let (min, max) = (f64::from(min), f64::from(max));
    let product = if product.is_nan() { 0.0 } else { product };
    let product = if product < min { min } else { product };
    let product = if product > max { max } else { product };
    // SAFETY: a number between two i32.
    unsafe { product.to_int_unchecked() }
}

/// `product as i64`, likewise. The end of i64 is no f64: what is beyond the last one before it is chosen afterwards.
#[inline(always)]
fn truncated_long(product: f64) -> i64 {
    const END: f64 = i64::MAX as f64;
    let inside = if product.is_nan() { 0.0 } else { product };
    let inside = if inside < -END { -END } else { inside };
    let inside = if inside > END.next_down() { END.next_down() } else { inside };
    // SAFETY: a number from -2^63 to the last f64 below 2^63.
    let truncated = unsafe { inside.to_int_unchecked() };
    if product >= END { i64::MAX } else { truncated }
}

/// Elements of two bytes that are multiplied in f32.
struct Halves<'a, T>(&'a mut [u8], f32, PhantomData<T>);

impl<T: Float<Stored = u16>> Kernel for Halves<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<M: Machine>(self, machine: M) {
        let Halves(data, factor, _) = self;
        let (packs, rest) = data.as_chunks_mut::<64>();
        for pack in packs {
            // SAFETY: 32 elements of two bytes.
            unsafe { multiply::<M, T, 32>(machine, factor, pack.as_mut_ptr().cast()) };
        }
        for element in rest.as_chunks_mut::<2>().0 {
            // SAFETY: one element of two bytes.
            unsafe { multiply::<M, T, 1>(machine, factor, element.as_mut_ptr().cast()) };
        }
    }
}

/// # Safety
/// The elements at `place`, aligned or not, can be read and written.
#[inline(always)]
unsafe fn multiply<M: Machine, T: Float<Stored = u16>, const N: usize>(machine: M, factor: f32, place: *mut [u16; N]) {
    // SAFETY: the caller's promise.
    let mut singles = T::to_f32(machine, unsafe { place.read_unaligned() });
    for single in &mut singles {
        *single *= factor;
    }
    // SAFETY: the caller's promise.
    unsafe { place.write_unaligned(T::from_f32(machine, singles)) };
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
        assert_eq!(scale(Dtype::Bool, 0.5, bytes_of_mut(&mut [true])), Err(ScaleError::Refused(Dtype::Bool)));
    }
}
