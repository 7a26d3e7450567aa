//! Compression of `f32` values to half precision for transfer. All ranks must use the same compression.

use crate::dtype::{Dtype, bytes_of, bytes_of_mut};
use crate::reduce;

/// Format of `f32` values on the wire. Half precision halves the bytes; sums are rounded to it too, as with Horovod's `Compression.fp16`. A
/// single rank compresses nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// Unchanged.
    None,
    /// IEEE half precision: 11 significant bits, overflow beyond 65504.
    Fp16,
    /// bfloat16: 8 significant bits, the range of `f32`. Not in Horovod.
    Bf16,
}

impl Compression {
    /// The dtype on the wire between `n_ranks` ranks; `None` if values are sent unchanged.
    pub(crate) fn wire_dtype(self, n_ranks: usize) -> Option<Dtype> {
        match self {
            _ if n_ranks == 1 => None,
            Compression::None => None,
            Compression::Fp16 => Some(Dtype::F16),
            Compression::Bf16 => Some(Dtype::Bf16),
        }
    }
}

/// Converts `values` to the half-precision `dtype` into `short`, whose allocation is reused.
pub(crate) fn narrow(values: &[f32], dtype: Dtype, short: &mut Vec<u8>) {
    short.resize(values.len() * dtype.size(), 0);
    reduce::convert(Dtype::F32, dtype, bytes_of(values), short).expect("both are floats");
}

/// Converts back what [`narrow`] wrote.
pub(crate) fn widen(short: &[u8], dtype: Dtype, values: &mut [f32]) {
    reduce::convert(dtype, Dtype::F32, short, bytes_of_mut(values)).expect("both are floats");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_rounded_and_converted_back() {
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
    fn a_single_rank_and_no_compression_send_values_unchanged() {
        assert_eq!(
            (Compression::None.wire_dtype(4), Compression::Fp16.wire_dtype(1), Compression::Bf16.wire_dtype(1)),
            (None, None, None)
        );
    }
}
