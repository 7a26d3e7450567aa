//! Every instruction set of this machine against a scalar reference, bit for bit: all dtypes, all
//! operations, odd lengths and alignments. Only the choice between two NaNs in a sum or product is free.

use half::{bf16, f16};
use proptest::prelude::*;

use super::{adasum, convert, fold, isa::Isa, scale, *};

/// The reference: one element at a time.
fn combined(dtype: Dtype, op: Combine, a: &[u8], b: &[u8]) -> Vec<u8> {
    macro_rules! each {
        ($rust:ty, |$x:ident, $y:ident| $sum:expr, $product:expr, $less:expr) => {{
            let elements = a.chunks_exact(size_of::<$rust>()).zip(b.chunks_exact(size_of::<$rust>()));
            elements
                .flat_map(|(x, y)| {
                    let $x = <$rust>::from_ne_bytes(x.try_into().expect("a whole element"));
                    let $y = <$rust>::from_ne_bytes(y.try_into().expect("a whole element"));
                    let less: fn($rust, $rust) -> bool = $less;
                    let is_nan = |value: $rust| value.partial_cmp(&value).is_none();
                    <$rust>::to_ne_bytes(match op {
                        Combine::Sum => $sum,
                        Combine::Product => $product,
                        Combine::Min | Combine::Max if is_nan($y) => $y,
                        Combine::Min => {
                            if less($y, $x) {
                                $y
                            } else {
                                $x
                            }
                        }
                        Combine::Max => {
                            if less($x, $y) {
                                $y
                            } else {
                                $x
                            }
                        }
                    })
                })
                .collect()
        }};
    }
    macro_rules! integer {
        ($rust:ty) => {
            each!($rust, |x, y| x.wrapping_add(y), x.wrapping_mul(y), |x, y| x < y)
        };
    }
    macro_rules! half {
        ($rust:ty) => {{
            let wide = |bytes: &[u8]| -> Vec<u8> {
                let elements = bytes.chunks_exact(2).map(|x| <$rust>::from_ne_bytes([x[0], x[1]]));
                elements.flat_map(|x| x.to_f32().to_ne_bytes()).collect()
            };
            let result = combined(Dtype::F32, op, &wide(a), &wide(b));
            let elements = result.chunks_exact(4).map(|x| f32::from_ne_bytes(x.try_into().expect("four")));
            elements.flat_map(|x| <$rust>::from_f32(x).to_ne_bytes()).collect()
        }};
    }
    match dtype {
        Dtype::U8 => integer!(u8),
        Dtype::I8 => integer!(i8),
        Dtype::U16 => integer!(u16),
        Dtype::I16 => integer!(i16),
        Dtype::I32 => integer!(i32),
        Dtype::I64 => integer!(i64),
        Dtype::F32 => each!(f32, |x, y| x + y, x * y, |x, y| x < y),
        Dtype::F64 => each!(f64, |x, y| x + y, x * y, |x, y| x < y),
        Dtype::F16 => half!(f16),
        Dtype::Bf16 => half!(bf16),
        Dtype::Bool => {
            let logic = |x: bool, y: bool| if matches!(op, Combine::Sum | Combine::Max) { x || y } else { x && y };
            a.iter().zip(b).map(|(x, y)| u8::from(logic(*x != 0, *y != 0))).collect()
        }
    }
}

/// The bits of each element; all NaNs are equal if `any_nan`.
fn bits(dtype: Dtype, any_nan: bool, bytes: &[u8]) -> Vec<u64> {
    let element = |bytes: &[u8]| {
        let mut padded = [0; 8];
        padded[..bytes.len()].copy_from_slice(bytes);
        u64::from_ne_bytes(padded)
    };
    let is_nan = |bits: u64| match dtype {
        Dtype::F16 => f16::from_bits(bits as u16).is_nan(),
        Dtype::Bf16 => bf16::from_bits(bits as u16).is_nan(),
        Dtype::F32 => f32::from_bits(bits as u32).is_nan(),
        Dtype::F64 => f64::from_bits(bits).is_nan(),
        _ => false,
    };
    let elements = bytes.chunks_exact(dtype.size()).map(element);
    elements.map(|bits| if any_nan && is_nan(bits) { u64::MAX } else { bits }).collect()
}

/// A buffer of pseudorandom bytes at an offset of `shift` bytes in its allocation.
#[derive(Clone)]
struct Buffer {
    memory: Vec<u8>,
    shift: usize,
}

impl Buffer {
    fn new(seed: u64, shift: usize, n_bytes: usize) -> Buffer {
        // Marsaglia's xorshift, which produces all exponents and NaNs.
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 32) as u8
        };
        Buffer { memory: (0..shift + n_bytes + 64).map(|_| next()).collect(), shift }
    }

    fn bytes(&self, n_bytes: usize) -> &[u8] {
        &self.memory[self.shift..][..n_bytes]
    }

    fn ptr(&mut self) -> *mut u8 {
        self.memory[self.shift..].as_mut_ptr()
    }
}

fn is_arithmetic(op: Combine) -> bool {
    matches!(op, Combine::Sum | Combine::Product)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// Also checks that no byte outside of the output is written, in place or not, with and without `also`.
    #[test]
    fn folds_equal_the_reference(
        seed: u64, n_sources in 1..12usize, n_elements in 0..700usize, shifts in prop::array::uniform4(0..64usize),
        in_place in prop::option::of(0..12usize), with_also: bool,
    ) {
        for (dtype, op) in Dtype::ALL.into_iter().flat_map(|dtype| Combine::ALL.map(|op| (dtype, op))) {
            let n_bytes = n_elements * dtype.size();
            let buffer = |idx: usize| Buffer::new(seed.wrapping_add(idx as u64), shifts[idx % 4], n_bytes);
            let sources: Vec<Buffer> = (0..n_sources).map(buffer).collect();
            let mut expected = sources[0].bytes(n_bytes).to_vec();
            for source in &sources[1..] {
                expected = combined(dtype, op, &expected, source.bytes(n_bytes));
            }
            for isa in Isa::available() {
                let mut sources = sources.clone();
                let (mut out, mut also) = (buffer(100), buffer(101));
                let mut pointers: Vec<*const u8> = sources.iter_mut().map(|source| source.ptr().cast_const()).collect();
                if let Some(idx) = in_place {
                    let idx = idx % n_sources;
                    out = sources[idx].clone();
                    pointers[idx] = out.ptr();
                }
                let before = out.memory.clone();
                let second = with_also.then(|| also.ptr());
                // SAFETY: buffers of `n_bytes` that do not overlap, except that `out` may be a source.
                unsafe { fold::fold(*isa, dtype, op, out.ptr(), second, &pointers, n_bytes) };
                let any_nan = is_arithmetic(op);
                let what = format!("{isa:?} {dtype:?} {op:?} of {n_sources}");
                prop_assert_eq!(bits(dtype, any_nan, out.bytes(n_bytes)), bits(dtype, any_nan, &expected), "{}", what);
                prop_assert_eq!(&out.memory[out.shift + n_bytes..], &before[out.shift + n_bytes..], "{}", what);
                prop_assert_eq!(&out.memory[..out.shift], &before[..out.shift], "{}", what);
                if with_also {
                    prop_assert_eq!(also.bytes(n_bytes), out.bytes(n_bytes), "{}", what);
                }
            }
        }
    }

    #[test]
    fn scales_equal_the_reference(seed: u64, n_elements in 0..300usize, shift in 0..64usize, factor in -3.0..3.0f64) {
        macro_rules! check {
            ($rust:ty, $dtype:expr, $product:expr) => {{
                let n_bytes = n_elements * $dtype.size();
                let buffer = Buffer::new(seed, shift, n_bytes);
                let product: fn($rust, f64) -> $rust = $product;
                let elements = buffer.bytes(n_bytes).chunks_exact($dtype.size());
                let expected: Vec<u8> = elements
                    .flat_map(|x| product(<$rust>::from_ne_bytes(x.try_into().expect("whole")), factor).to_ne_bytes())
                    .collect();
                for isa in Isa::available() {
                    let mut scaled = buffer.clone();
                    let data = &mut scaled.memory[shift..][..n_bytes];
                    scale::scale_with(*isa, $dtype, factor, data).expect("a number can be scaled");
                    prop_assert_eq!(bits($dtype, true, data), bits($dtype, true, &expected), "{:?} {:?}", isa, $dtype);
                }
            }};
        }
        check!(u8, Dtype::U8, |x, factor| (x as f64 * factor).trunc() as u8);
        check!(i8, Dtype::I8, |x, factor| (x as f64 * factor).trunc() as i8);
        check!(u16, Dtype::U16, |x, factor| (x as f64 * factor).trunc() as u16);
        check!(i16, Dtype::I16, |x, factor| (x as f64 * factor).trunc() as i16);
        check!(i32, Dtype::I32, |x, factor| (x as f64 * factor).trunc() as i32);
        check!(i64, Dtype::I64, |x, factor| (x as f64 * factor).trunc() as i64);
        check!(f32, Dtype::F32, |x, factor| x * factor as f32);
        check!(f64, Dtype::F64, |x, factor| x * factor);
        check!(f16, Dtype::F16, |x, factor| f16::from_f32(x.to_f32() * factor as f32));
        check!(bf16, Dtype::Bf16, |x, factor| bf16::from_f32(x.to_f32() * factor as f32));
    }

    #[test]
    fn conversions_equal_the_reference(seed: u64, n_elements in 0..300usize, shift in 0..64usize) {
        let floats = Dtype::ALL.into_iter().filter(|dtype| dtype.is_float());
        for (from, to) in floats.clone().flat_map(|from| floats.clone().map(move |to| (from, to))) {
            let source = Buffer::new(seed, shift, n_elements * from.size());
            let elements = source.bytes(n_elements * from.size()).chunks_exact(from.size());
            let expected: Vec<u8> = elements.flat_map(|x| converted(from, to, x)).collect();
            for isa in Isa::available() {
                let mut dst = Buffer::new(seed, shift / 2, n_elements * to.size());
                let data = &mut dst.memory[shift / 2..][..n_elements * to.size()];
                convert::convert_with(*isa, from, to, source.bytes(n_elements * from.size()), data).expect("floats");
                // The payload of a NaN is kept as far as it fits; whether it becomes quiet is free.
                prop_assert_eq!(bits(to, from != to, data), bits(to, from != to, &expected), "{:?} {:?} {:?}", isa, from, to);
            }
        }
    }

    #[test]
    fn adasum_is_the_same_with_every_instruction_set(seed: u64, n_elements in 0..300usize, shift in 0..64usize) {
        for dtype in Dtype::ALL.into_iter().filter(|dtype| dtype.is_float()) {
            let n_bytes = n_elements * dtype.size();
            let (a, b) = (gradient_like(dtype, seed, shift, n_elements), gradient_like(dtype, seed ^ 7, 3, n_elements));
            let numbers = |buffer: &Buffer| -> Vec<f64> {
                let elements = buffer.bytes(n_bytes).chunks_exact(dtype.size());
                let wide = elements.map(|x| converted(dtype, Dtype::F64, x).try_into().expect("eight bytes"));
                wide.map(f64::from_ne_bytes).collect()
            };
            let dot = |a: &[f64], b: &[f64]| {
                let mut lanes = [0.0; 16];
                a.iter().zip(b).enumerate().for_each(|(idx, (x, y))| lanes[idx % 16] += x * y);
                adasum::total(lanes)
            };
            let (wide_a, wide_b) = (numbers(&a), numbers(&b));
            let expected = Dots { ab: dot(&wide_a, &wide_b), aa: dot(&wide_a, &wide_a), bb: dot(&wide_b, &wide_b) };
            let (x, y) = expected.weights();
            let sums = wide_a.iter().zip(&wide_b).flat_map(|(a, b)| match dtype {
                Dtype::F16 | Dtype::Bf16 => {
                    let sum = x as f32 * *a as f32 + y as f32 * *b as f32;
                    converted(Dtype::F32, dtype, &sum.to_ne_bytes())
                }
                _ => converted(Dtype::F64, dtype, &(x * a + y * b).to_ne_bytes()),
            });
            let sums: Vec<u8> = sums.collect();
            for isa in Isa::available() {
                let dots = adasum::dots_with(*isa, dtype, a.bytes(n_bytes), b.bytes(n_bytes)).expect("floats");
                prop_assert_eq!(dots, expected, "{:?} {:?}", isa, dtype);
                let mut sum = a.bytes(n_bytes).to_vec();
                adasum::adasum_with(*isa, dtype, dots, &mut sum, b.bytes(n_bytes)).expect("floats");
                prop_assert_eq!(bits(dtype, false, &sum), bits(dtype, false, &sums), "{:?} {:?}", isa, dtype);
            }
        }
    }
}

/// Converts one float to another type, through f32.
fn converted(from: Dtype, to: Dtype, element: &[u8]) -> Vec<u8> {
    if from == to {
        return element.to_vec();
    }
    let two = || u16::from_ne_bytes(element.try_into().expect("two bytes"));
    let single = match from {
        Dtype::F16 => f16::from_bits(two()).to_f32(),
        Dtype::Bf16 => bf16::from_bits(two()).to_f32(),
        Dtype::F32 => f32::from_ne_bytes(element.try_into().expect("four bytes")),
        _ => f64::from_ne_bytes(element.try_into().expect("eight bytes")) as f32,
    };
    match to {
        Dtype::F16 => f16::from_f32(single).to_ne_bytes().to_vec(),
        Dtype::Bf16 => bf16::from_f32(single).to_ne_bytes().to_vec(),
        Dtype::F32 => single.to_ne_bytes().to_vec(),
        _ => f64::from(single).to_ne_bytes().to_vec(),
    }
}

/// Numbers between -2 and 2, as typical of gradients.
fn gradient_like(dtype: Dtype, seed: u64, shift: usize, n_elements: usize) -> Buffer {
    let mut buffer = Buffer::new(seed, shift, n_elements * dtype.size());
    let raw = Buffer::new(seed ^ 1, 0, n_elements * 2);
    for (idx, bytes) in raw.bytes(n_elements * 2).chunks_exact(2).enumerate() {
        let value = f32::from(i16::from_ne_bytes([bytes[0], bytes[1]])) / 16384.0;
        let element = converted(Dtype::F32, dtype, &value.to_ne_bytes());
        buffer.memory[shift + idx * dtype.size()..][..dtype.size()].copy_from_slice(&element);
    }
    buffer
}

#[test]
fn combining_slices_is_a_fold_of_two() {
    let (a, b) = ([1i32, -2, i32::MAX], [10, 20, 1]);
    let (bytes_a, bytes_b) = (crate::dtype::bytes_of(&a), crate::dtype::bytes_of(&b));
    let mut out = [0i32; 3];
    combine_into(Dtype::I32, Combine::Sum, crate::dtype::bytes_of_mut(&mut out), bytes_a, bytes_b);
    assert_eq!(out, [11, 18, i32::MIN]);
    combine(Dtype::I32, Combine::Max, crate::dtype::bytes_of_mut(&mut out), bytes_b);
    assert_eq!(out, [11, 20, 1]);
}

#[test]
fn min_and_max_propagate_nan_from_either_side() {
    for op in [Combine::Min, Combine::Max] {
        let mut acc = [f32::NAN, 1.0, -0.0];
        combine(Dtype::F32, op, crate::dtype::bytes_of_mut(&mut acc), crate::dtype::bytes_of(&[1.0f32, f32::NAN, 0.0]));
        assert!(acc[0].is_nan() && acc[1].is_nan());
        assert_eq!(acc[2].to_bits(), (-0.0f32).to_bits());
    }
}
