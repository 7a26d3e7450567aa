//! The elementwise operations of each dtype, on short arrays of lanes that compilers turn into vectors.
//!
//! - Integers wrap.
//! - bool is logical: sum and max are "or", product and min are "and". The result is 0 or 1 for any input bytes.
//! - f16 and bf16 are computed in f32 and rounded to nearest even at each step.
//! - min and max propagate a NaN from either side (of two, the right one), so that a diverged training shows on
//!   every rank. Zeros of different sign are equal, and the left one is returned.
//! - The sum or product of two NaNs is one of them; which one is unspecified.

use half::{bf16, f16};

use super::simd_backend::SimdBackend;

/// An element type of kernels: loaded and stored as `Stored`, combined as `Wide`, `N` lanes at a time.
pub(super) trait Number {
    type Stored: Copy;
    type Wide: Copy;

    fn widen<M: SimdBackend, const N: usize>(simd: M, narrow: [Self::Stored; N]) -> [Self::Wide; N];
    fn narrow<M: SimdBackend, const N: usize>(simd: M, wide: [Self::Wide; N]) -> [Self::Stored; N];

    fn sum<M: SimdBackend, const N: usize>(_: M, left: [Self::Wide; N], right: [Self::Wide; N]) -> [Self::Wide; N];
    fn product<M: SimdBackend, const N: usize>(_: M, left: [Self::Wide; N], right: [Self::Wide; N]) -> [Self::Wide; N];
    fn min<M: SimdBackend, const N: usize>(_: M, left: [Self::Wide; N], right: [Self::Wide; N]) -> [Self::Wide; N];
    fn max<M: SimdBackend, const N: usize>(_: M, left: [Self::Wide; N], right: [Self::Wide; N]) -> [Self::Wide; N];
}

/// One of [`crate::Combine`], as a type.
pub(super) trait Operation {
    /// `left` op `right`, lane by lane.
    fn apply<M: SimdBackend, T: Number, const N: usize>(
        simd: M,
        left: [T::Stored; N],
        right: [T::Stored; N],
    ) -> [T::Stored; N];
}

macro_rules! operations {
    ($($name:ident => $method:ident),*) => {$(
        pub(super) struct $name;
        impl Operation for $name {
            #[inline(always)]
            fn apply<M: SimdBackend, T: Number, const N: usize>(simd: M, left: [T::Stored; N], right: [T::Stored; N]) -> [T::Stored; N] {
                let (left, right) = (T::widen(simd, left), T::widen(simd, right));
                T::narrow(simd, T::$method(simd, left, right))
            }
        }
    )*};
}

operations! { Sum => sum, Product => product, Min => min, Max => max }

/// Defines methods that apply a function of two elements to each lane.
macro_rules! lane_by_lane {
    ($wide:ty: $($method:ident = $one:expr;)*) => {$(
        #[inline(always)]
        fn $method<M: SimdBackend, const N: usize>(_: M, mut left: [$wide; N], right: [$wide; N]) -> [$wide; N] {
            for lane in 0..N {
                left[lane] = $one(left[lane], right[lane]);
            }
            left
        }
    )*};
}

/// Types that are stored and combined as themselves.
macro_rules! identity_conversion {
    () => {
        type Stored = Self;
        type Wide = Self;
        #[inline(always)]
        fn widen<M: SimdBackend, const N: usize>(_: M, narrow: [Self; N]) -> [Self; N] {
            narrow
        }
        #[inline(always)]
        fn narrow<M: SimdBackend, const N: usize>(_: M, wide: [Self; N]) -> [Self; N] {
            wide
        }
    };
}

macro_rules! integers {
    ($($rust:ident)*) => {$(
        impl Number for $rust {
            identity_conversion!();
            lane_by_lane! { $rust: sum = $rust::wrapping_add; product = $rust::wrapping_mul; min = Ord::min; max = Ord::max; }
        }
    )*};
}

integers! { u8 i8 u16 i16 i32 i64 }

impl Number for f64 {
    identity_conversion!();
    lane_by_lane! {
        f64:
        sum = |left, right| left + right;
        product = |left, right| left * right;
        min = |left: f64, right: f64| if right < left || right.is_nan() { right } else { left };
        max = |left: f64, right: f64| if right > left || right.is_nan() { right } else { left };
    }
}

macro_rules! f32_arithmetic {
    () => {
        lane_by_lane! { f32: sum = |left, right| left + right; product = |left, right| left * right; }
        #[inline(always)]
        fn min<M: SimdBackend, const N: usize>(simd: M, left: [f32; N], right: [f32; N]) -> [f32; N] {
            simd.min_f32(left, right)
        }
        #[inline(always)]
        fn max<M: SimdBackend, const N: usize>(simd: M, left: [f32; N], right: [f32; N]) -> [f32; N] {
            simd.max_f32(left, right)
        }
    };
}

impl Number for f32 {
    identity_conversion!();
    f32_arithmetic!();
}

impl Number for f16 {
    type Stored = u16;
    type Wide = f32;
    f32_arithmetic!();

    #[inline(always)]
    fn widen<M: SimdBackend, const N: usize>(simd: M, narrow: [u16; N]) -> [f32; N] {
        simd.widen_f16(narrow)
    }
    #[inline(always)]
    fn narrow<M: SimdBackend, const N: usize>(simd: M, wide: [f32; N]) -> [u16; N] {
        simd.narrow_f16(wide)
    }
}

impl Number for bf16 {
    type Stored = u16;
    type Wide = f32;
    f32_arithmetic!();

    #[inline(always)]
    fn widen<M: SimdBackend, const N: usize>(simd: M, narrow: [u16; N]) -> [f32; N] {
        simd.widen_bf16(narrow)
    }
    #[inline(always)]
    fn narrow<M: SimdBackend, const N: usize>(simd: M, wide: [f32; N]) -> [u16; N] {
        simd.narrow_bf16(wide)
    }
}

/// A bool from another process: any byte; zero is false.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(super) struct BoolByte(u8);

impl BoolByte {
    #[inline(always)]
    fn or(left: BoolByte, right: BoolByte) -> BoolByte {
        BoolByte(u8::from(left.0 | right.0 != 0))
    }
    #[inline(always)]
    fn and(left: BoolByte, right: BoolByte) -> BoolByte {
        BoolByte(u8::from(left.0 != 0) & u8::from(right.0 != 0))
    }
}

impl Number for BoolByte {
    identity_conversion!();
    lane_by_lane! { BoolByte: sum = BoolByte::or; product = BoolByte::and; min = BoolByte::and; max = BoolByte::or; }
}
