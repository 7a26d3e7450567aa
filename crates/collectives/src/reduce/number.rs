//! What combining two elements means, for each dtype: the semantics of every kernel that reduces, in one place.
//! Entered by the loops, which hand over short arrays so that the compiler makes vectors of them.
//!
//! - Integers wrap.
//! - bool is logic: sum and max are "or", product and min are "and". The result is 0 or 1 whatever came in.
//! - f16 and bf16 are computed in f32 and rounded to nearest even at each step.
//! - min and max keep a NaN from either side (of two, the right one): a training run that has gone wrong must show
//!   it on every rank. Zeros of different sign are equal, and the left one stays.
//! - The sum or product of two NaNs is a NaN, and which one is not said.

use half::{bf16, f16};

use super::isa::Machine;

/// An element as kernels see it: loaded and stored as `Stored`, combined as `Wide`, several lanes at a time.
pub(super) trait Number {
    type Stored: Copy;
    type Wide: Copy;

    fn widen<M: Machine, const N: usize>(machine: M, narrow: [Self::Stored; N]) -> [Self::Wide; N];
    fn narrow<M: Machine, const N: usize>(machine: M, wide: [Self::Wide; N]) -> [Self::Stored; N];

    fn sum<M: Machine, const N: usize>(_: M, left: [Self::Wide; N], right: [Self::Wide; N]) -> [Self::Wide; N];
    fn product<M: Machine, const N: usize>(_: M, left: [Self::Wide; N], right: [Self::Wide; N]) -> [Self::Wide; N];
    fn min<M: Machine, const N: usize>(_: M, left: [Self::Wide; N], right: [Self::Wide; N]) -> [Self::Wide; N];
    fn max<M: Machine, const N: usize>(_: M, left: [Self::Wide; N], right: [Self::Wide; N]) -> [Self::Wide; N];
}

/// One of [`crate::Combine`], as a type.
pub(super) trait Operation {
    /// `left` op `right`, lane by lane.
    fn apply<M: Machine, T: Number, const N: usize>(
        machine: M,
        left: [T::Stored; N],
        right: [T::Stored; N],
    ) -> [T::Stored; N];
}

macro_rules! operations {
    ($($name:ident => $method:ident),*) => {$(
        pub(super) struct $name;
        impl Operation for $name {
            #[inline(always)]
            fn apply<M: Machine, T: Number, const N: usize>(machine: M, left: [T::Stored; N], right: [T::Stored; N]) -> [T::Stored; N] {
                let (left, right) = (T::widen(machine, left), T::widen(machine, right));
                T::narrow(machine, T::$method(machine, left, right))
            }
        }
    )*};
}

operations! { Sum => sum, Product => product, Min => min, Max => max }

/// A NaN on the right is the answer; one on the left is, because no comparison with it holds.
#[inline(always)]
pub(super) fn min_f32(left: f32, right: f32) -> f32 {
    if right < left || right.is_nan() { right } else { left }
}

#[inline(always)]
pub(super) fn max_f32(left: f32, right: f32) -> f32 {
    if right > left || right.is_nan() { right } else { left }
}

/// Methods that do to each lane what a function of two elements does.
macro_rules! lane_by_lane {
    ($wide:ty: $($method:ident = $one:expr;)*) => {$(
        #[inline(always)]
        fn $method<M: Machine, const N: usize>(_: M, mut left: [$wide; N], right: [$wide; N]) -> [$wide; N] {
            for lane in 0..N {
                left[lane] = $one(left[lane], right[lane]);
            }
            left
        }
    )*};
}

macro_rules! as_it_is {
    () => {
        type Stored = Self;
        type Wide = Self;
        #[inline(always)]
        fn widen<M: Machine, const N: usize>(_: M, narrow: [Self; N]) -> [Self; N] {
            narrow
        }
        #[inline(always)]
        fn narrow<M: Machine, const N: usize>(_: M, wide: [Self; N]) -> [Self; N] {
            wide
        }
    };
}

macro_rules! integers {
    ($($rust:ident)*) => {$(
        impl Number for $rust {
            as_it_is!();
            lane_by_lane! { $rust: sum = $rust::wrapping_add; product = $rust::wrapping_mul; min = Ord::min; max = Ord::max; }
        }
    )*};
}

integers! { u8 i8 u16 i16 i32 i64 }

impl Number for f64 {
    as_it_is!();
    lane_by_lane! {
        f64:
        sum = |left, right| left + right;
        product = |left, right| left * right;
        min = |left: f64, right: f64| if right < left || right.is_nan() { right } else { left };
        max = |left: f64, right: f64| if right > left || right.is_nan() { right } else { left };
    }
}

macro_rules! arithmetic_of_f32 {
    () => {
        lane_by_lane! { f32: sum = |left, right| left + right; product = |left, right| left * right; }
        #[inline(always)]
        fn min<M: Machine, const N: usize>(machine: M, left: [f32; N], right: [f32; N]) -> [f32; N] {
            machine.min_f32(left, right)
        }
        #[inline(always)]
        fn max<M: Machine, const N: usize>(machine: M, left: [f32; N], right: [f32; N]) -> [f32; N] {
            machine.max_f32(left, right)
        }
    };
}

impl Number for f32 {
    as_it_is!();
    arithmetic_of_f32!();
}

impl Number for f16 {
    type Stored = u16;
    type Wide = f32;
    arithmetic_of_f32!();

    #[inline(always)]
    fn widen<M: Machine, const N: usize>(machine: M, narrow: [u16; N]) -> [f32; N] {
        machine.widen_f16(narrow)
    }
    #[inline(always)]
    fn narrow<M: Machine, const N: usize>(machine: M, wide: [f32; N]) -> [u16; N] {
        machine.narrow_f16(wide)
    }
}

impl Number for bf16 {
    type Stored = u16;
    type Wide = f32;
    arithmetic_of_f32!();

    #[inline(always)]
    fn widen<M: Machine, const N: usize>(machine: M, narrow: [u16; N]) -> [f32; N] {
        machine.widen_bf16(narrow)
    }
    #[inline(always)]
    fn narrow<M: Machine, const N: usize>(machine: M, wide: [f32; N]) -> [u16; N] {
        machine.narrow_bf16(wide)
    }
}

/// A bool that came from elsewhere: any byte, of which only zero is false.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(super) struct Truth(u8);

impl Truth {
    #[inline(always)]
    fn or(left: Truth, right: Truth) -> Truth {
        Truth(u8::from(left.0 | right.0 != 0))
    }
    #[inline(always)]
    fn and(left: Truth, right: Truth) -> Truth {
        Truth(u8::from(left.0 != 0) & u8::from(right.0 != 0))
    }
}

impl Number for Truth {
    as_it_is!();
    lane_by_lane! { Truth: sum = Truth::or; product = Truth::and; min = Truth::and; max = Truth::or; }
}
