//! Conversion of the four float dtypes to f32 and f64 and back, several lanes at a time. f64 goes to half precision through f32, rounding twice, as
//! in PyTorch and TensorFlow.

use half::{bf16, f16};

use super::{number::Number, simd_backend::SimdBackend};

pub(super) trait Float: Number {
    fn to_f32<M: SimdBackend, const N: usize>(simd: M, stored: [Self::Stored; N]) -> [f32; N];
    fn from_f32<M: SimdBackend, const N: usize>(simd: M, singles: [f32; N]) -> [Self::Stored; N];

    #[inline(always)]
    fn to_f64<M: SimdBackend, const N: usize>(simd: M, stored: [Self::Stored; N]) -> [f64; N] {
        let singles = Self::to_f32(simd, stored);
        let mut doubles = [0.0; N];
        for lane in 0..N {
            doubles[lane] = singles[lane].into();
        }
        doubles
    }

    /// x·`left` + y·`right`: in f64 for f32 and f64, in f32 for f16 and bf16.
    fn weighted_sum<M: SimdBackend, const N: usize>(
        simd: M,
        weights: (f64, f64),
        left: [Self::Stored; N],
        right: [Self::Stored; N],
    ) -> [Self::Stored; N];
}

macro_rules! through_f32 {
    ($($half:ty)*) => {$(
        impl Float for $half {
            #[inline(always)]
            fn to_f32<M: SimdBackend, const N: usize>(simd: M, stored: [u16; N]) -> [f32; N] {
                Self::widen(simd, stored)
            }
            #[inline(always)]
            fn from_f32<M: SimdBackend, const N: usize>(simd: M, singles: [f32; N]) -> [u16; N] {
                Self::narrow(simd, singles)
            }
            #[inline(always)]
            fn weighted_sum<M: SimdBackend, const N: usize>(m: M, (x, y): (f64, f64), l: [u16; N], r: [u16; N]) -> [u16; N] {
                let (mut left, right) = (Self::widen(m, l), Self::widen(m, r));
                for lane in 0..N {
                    left[lane] = x as f32 * left[lane] + y as f32 * right[lane];
                }
                Self::narrow(m, left)
            }
        }
    )*};
}

through_f32! { f16 bf16 }

impl Float for f32 {
    #[inline(always)]
    fn to_f32<M: SimdBackend, const N: usize>(_: M, stored: [f32; N]) -> [f32; N] {
        stored
    }
    #[inline(always)]
    fn from_f32<M: SimdBackend, const N: usize>(_: M, singles: [f32; N]) -> [f32; N] {
        singles
    }
    #[inline(always)]
    fn weighted_sum<M: SimdBackend, const N: usize>(
        _: M,
        (x, y): (f64, f64),
        mut left: [f32; N],
        right: [f32; N],
    ) -> [f32; N] {
        for lane in 0..N {
            left[lane] = (x * f64::from(left[lane]) + y * f64::from(right[lane])) as f32;
        }
        left
    }
}

impl Float for f64 {
    #[inline(always)]
    fn to_f32<M: SimdBackend, const N: usize>(_: M, stored: [f64; N]) -> [f32; N] {
        let mut singles = [0.0; N];
        for lane in 0..N {
            singles[lane] = stored[lane] as f32;
        }
        singles
    }
    #[inline(always)]
    fn from_f32<M: SimdBackend, const N: usize>(_: M, singles: [f32; N]) -> [f64; N] {
        let mut doubles = [0.0; N];
        for lane in 0..N {
            doubles[lane] = singles[lane].into();
        }
        doubles
    }
    #[inline(always)]
    fn to_f64<M: SimdBackend, const N: usize>(_: M, stored: [f64; N]) -> [f64; N] {
        stored
    }
    #[inline(always)]
    fn weighted_sum<M: SimdBackend, const N: usize>(
        _: M,
        (x, y): (f64, f64),
        mut left: [f64; N],
        right: [f64; N],
    ) -> [f64; N] {
        for lane in 0..N {
            left[lane] = x * left[lane] + y * right[lane];
        }
        left
    }
}
