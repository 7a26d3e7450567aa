//! Element types of tensors. The numbers are those of Horovod's engine and are part of the wire format.

use half::{bf16, f16};

/// Element types that the engine can reduce.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Dtype {
    U8 = 0,
    I8 = 1,
    U16 = 2,
    I16 = 3,
    I32 = 4,
    I64 = 5,
    F16 = 6,
    F32 = 7,
    F64 = 8,
    Bool = 9,
    /// Not in Horovod.
    Bf16 = 10,
}

impl Dtype {
    /// All types, by number.
    pub const ALL: [Dtype; 11] = [
        Dtype::U8,
        Dtype::I8,
        Dtype::U16,
        Dtype::I16,
        Dtype::I32,
        Dtype::I64,
        Dtype::F16,
        Dtype::F32,
        Dtype::F64,
        Dtype::Bool,
        Dtype::Bf16,
    ];

    /// Size of one element in bytes.
    pub const fn size(self) -> usize {
        match self {
            Dtype::U8 | Dtype::I8 | Dtype::Bool => 1,
            Dtype::U16 | Dtype::I16 | Dtype::F16 | Dtype::Bf16 => 2,
            Dtype::I32 | Dtype::F32 => 4,
            Dtype::I64 | Dtype::F64 => 8,
        }
    }

    /// The NumPy name, as errors and timelines print it.
    pub const fn name(self) -> &'static str {
        match self {
            Dtype::U8 => "uint8",
            Dtype::I8 => "int8",
            Dtype::U16 => "uint16",
            Dtype::I16 => "int16",
            Dtype::I32 => "int32",
            Dtype::I64 => "int64",
            Dtype::F16 => "float16",
            Dtype::F32 => "float32",
            Dtype::F64 => "float64",
            Dtype::Bool => "bool",
            Dtype::Bf16 => "bfloat16",
        }
    }

    /// Whether it is a floating-point type of any precision.
    pub const fn is_float(self) -> bool {
        matches!(self, Dtype::F16 | Dtype::Bf16 | Dtype::F32 | Dtype::F64)
    }

    /// `None` for an unknown number.
    pub fn from_number(number: u8) -> Option<Dtype> {
        Dtype::ALL.into_iter().find(|dtype| *dtype as u8 == number)
    }
}

/// A Rust type that can be an element. Sealed, because the engine accesses its bytes.
pub trait Element: Copy + Send + Sync + 'static + sealed::Plain {
    /// The corresponding element type.
    const DTYPE: Dtype;
}

mod sealed {
    /// # Safety
    /// The type has no padding, and every byte pattern that a kernel of the same [`super::Dtype`] writes is a valid value.
    pub unsafe trait Plain {}
}

macro_rules! elements {
    ($($rust:ty => $dtype:ident),* $(,)?) => {$(
        // SAFETY: a number without padding, for which all byte patterns are valid; kernels write only 0 and 1 for `bool`.
        unsafe impl sealed::Plain for $rust {}
        impl Element for $rust {
            const DTYPE: Dtype = Dtype::$dtype;
        }
    )*};
}

elements! {
    u8 => U8, i8 => I8, u16 => U16, i16 => I16, i32 => I32, i64 => I64,
    f16 => F16, f32 => F32, f64 => F64, bool => Bool, bf16 => Bf16,
}

/// The bytes of a slice of elements.
pub fn bytes_of<T: Element>(elements: &[T]) -> &[u8] {
    // SAFETY: `Element` types have no padding, and bytes need no alignment.
    unsafe { std::slice::from_raw_parts(elements.as_ptr().cast(), size_of_val(elements)) }
}

/// The bytes of a slice of elements. Only operations of the same dtype may write them.
pub fn bytes_of_mut<T: Element>(elements: &mut [T]) -> &mut [u8] {
    // SAFETY: `Element` types have no padding, bytes need no alignment, and kernels of the same dtype write valid values.
    unsafe { std::slice::from_raw_parts_mut(elements.as_mut_ptr().cast(), size_of_val(elements)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_horovod_and_round_trip() {
        for (number, dtype) in Dtype::ALL.into_iter().enumerate() {
            assert_eq!(dtype as usize, number);
            assert_eq!(Dtype::from_number(number as u8), Some(dtype));
        }
        assert_eq!(Dtype::from_number(11), None);
    }

    #[test]
    fn bytes_are_those_of_the_elements() {
        let mut elements = [1u16, 0x0203];
        assert_eq!(bytes_of(&elements), [1, 0, 3, 2]);
        bytes_of_mut(&mut elements)[0] = 7;
        assert_eq!(elements[0], 7);
        assert_eq!(bytes_of::<f64>(&[]), [0u8; 0]);
    }
}
