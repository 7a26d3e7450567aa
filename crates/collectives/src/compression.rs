//! Half precision for the way: `f32` values are made half as long, travel, and come back. Both doors and the optimizer enter. Never
//! decides who compresses: all ranks must do alike.

use crate::dtype::{Dtype, bytes_of, bytes_of_mut};
use crate::reduce;

/// How `f32` values travel. Half precision halves the bytes; sums are then rounded to it too, as with Horovod's `Compression.fp16`. A
/// rank alone compresses nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// As they are.
    None,
    /// Of 11 significant bits; overflows beyond 65504.
    Fp16,
    /// Of 8 significant bits, with the range of `f32`. Not in Horovod.
    Bf16,
}

impl Compression {
    /// What travels in their place, among so many ranks.
    pub(crate) fn wire_dtype(self, n_ranks: usize) -> Option<Dtype> {
        match self {
            _ if n_ranks == 1 => None,
            Compression::None => None,
            Compression::Fp16 => Some(Dtype::F16),
            Compression::Bf16 => Some(Dtype::Bf16),
        }
    }
}

/// Fills `short`, whose memory is used again, with the values as the half-precision `dtype`.
pub(crate) fn narrow(values: &[f32], dtype: Dtype, short: &mut Vec<u8>) {
    short.resize(values.len() * dtype.size(), 0);
    reduce::convert(Dtype::F32, dtype, bytes_of(values), short).expect("both are floats");
}

/// What [`narrow`] did, backwards.
pub(crate) fn widen(short: &[u8], dtype: Dtype, values: &mut [f32]) {
    reduce::convert(dtype, Dtype::F32, short, bytes_of_mut(values)).expect("both are floats");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_rounded_and_come_back() {
        let values = [1.0f32, 1.0 + 1.0 / 512.0, 1.0 + 1.0 / 4096.0, 1e6, -2.5];
        let check = |compression: Compression, expected: [f32; 5]| {
            let dtype = compression.wire_dtype(2).expect("it compresses");
            let (mut short, mut back) = (vec![7; 100], [0.0; 5]);
            narrow(&values, dtype, &mut short);
            assert_eq!(short.len(), 10);
            widen(&short, dtype, &mut back);
            assert_eq!(back, expected);
        };
        check(Compression::Fp16, [1.0, 1.0 + 1.0 / 512.0, 1.0, f32::INFINITY, -2.5]);
        check(Compression::Bf16, [1.0, 1.0, 1.0, 999_424.0, -2.5]);
    }

    #[test]
    fn nobody_compresses_alone_or_unasked() {
        assert_eq!(
            (Compression::None.wire_dtype(4), Compression::Fp16.wire_dtype(1), Compression::Bf16.wire_dtype(1)),
            (None, None, None)
        );
    }
}
