//! Benchmark of every kernel, compared with a copy of the same number of bytes. Reports the best of several rounds.

use std::{
    hint::black_box,
    time::{Duration, Instant},
};

use super::{combine, convert, fold_raw, scale};
use crate::{Combine, Dtype};

/// Buffer size that fits into the L2 cache.
pub const SMALL: usize = 256 << 10;
/// Buffer size that fits into no cache.
pub const LARGE: usize = 64 << 20;

/// One kernel at one size.
#[derive(Clone, Debug)]
pub struct Row {
    pub kernel: String,
    /// Size of each buffer.
    pub n_bytes: usize,
    /// Bytes of the result, or of the source for a conversion.
    pub bytes_per_second: f64,
    /// Rate of a copy between two such buffers.
    pub copy_bytes_per_second: f64,
}

/// Measures all kernels with buffers of `n_bytes` (such as [`SMALL`] and [`LARGE`]). Each is repeated for `min_time`, and at least three times.
pub fn kernels(n_bytes: usize, min_time: Duration) -> Vec<Row> {
    let n_bytes = n_bytes.next_multiple_of(8);
    let mut buffers = Buffers::new(n_bytes);
    let copy_bytes_per_second = {
        let [a, b, _] = buffers.each();
        rate(n_bytes, min_time, || b.copy_from_slice(black_box(a)))
    };
    let mut rows = Vec::new();
    let mut row = |kernel: String, bytes_per_second: f64| {
        rows.push(Row { kernel, n_bytes, bytes_per_second, copy_bytes_per_second });
    };
    for dtype in Dtype::ALL {
        for op in Combine::ALL {
            let [a, b, _] = buffers.each();
            row(format!("{} {op:?}", dtype.name()), rate(n_bytes, min_time, || combine(dtype, op, a, black_box(b))));
        }
        buffers.clear();
    }
    let [a, b, c] = buffers.each();
    let sources = [a.as_ptr(), b.as_ptr()];
    // SAFETY: three buffers of `n_bytes` that do not overlap.
    let fold = || unsafe { fold_raw(Dtype::F32, Combine::Sum, c.as_mut_ptr(), None, black_box(&sources), n_bytes) };
    row("fold of 2, float32 Sum".to_owned(), rate(n_bytes, min_time, fold));
    for dtype in Dtype::ALL.into_iter().filter(|dtype| *dtype != Dtype::Bool) {
        let [a, _, _] = buffers.each();
        // The buffers hold zeros, which scaling does not change.
        let scale = || scale(dtype, black_box(2.0), a).expect("all but bool can be scaled");
        row(format!("{} scale", dtype.name()), rate(n_bytes, min_time, scale));
    }
    for (from, to) in
        [(Dtype::F32, Dtype::F16), (Dtype::F32, Dtype::Bf16), (Dtype::F16, Dtype::F32), (Dtype::Bf16, Dtype::F32)]
    {
        let [a, b, _] = buffers.each();
        let n_elements = n_bytes / 4;
        let (src, dst) = (&a[..n_elements * from.size()], &mut b[..n_elements * to.size()]);
        let convert = || convert(from, to, black_box(src), dst).expect("both are floats");
        row(format!("{} to {}", from.name(), to.name()), rate(src.len(), min_time, convert));
    }
    rows
}

/// Three buffers at different offsets within a page: equal offsets would cause false dependencies between loads and stores (4K aliasing).
struct Buffers {
    memory: Vec<u8>,
    n_bytes: usize,
}

impl Buffers {
    const OFFSET: usize = 192;

    fn new(n_bytes: usize) -> Buffers {
        // Written once, so that the pages exist.
        let mut buffers = Buffers { memory: vec![1; 3 * (n_bytes + Buffers::OFFSET)], n_bytes };
        buffers.clear();
        buffers
    }

    fn clear(&mut self) {
        self.memory.fill(0);
    }

    fn each(&mut self) -> [&mut [u8]; 3] {
        let n_bytes = self.n_bytes;
        let mut parts = self.memory.chunks_exact_mut(n_bytes + Buffers::OFFSET);
        std::array::from_fn(|_| &mut parts.next().expect("three were allocated")[..n_bytes])
    }
}

/// Bytes per second of the best round.
fn rate(n_bytes: usize, min_time: Duration, mut kernel: impl FnMut()) -> f64 {
    // Enough calls for the resolution of the clock.
    let n_calls = ((1 << 20) / n_bytes.max(1)).max(1);
    let start = Instant::now();
    let mut best = Duration::MAX;
    let mut n_rounds = 0;
    while n_rounds < 3 || start.elapsed() < min_time {
        let round = Instant::now();
        for _ in 0..n_calls {
            kernel();
        }
        best = best.min(round.elapsed());
        n_rounds += 1;
    }
    (n_bytes * n_calls) as f64 / best.as_secs_f64().max(1e-9)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kernel_has_a_row() {
        let rows = kernels(4096, Duration::ZERO);
        assert_eq!(rows.len(), Dtype::ALL.len() * Combine::ALL.len() + 1 + 10 + 4);
        assert!(rows.iter().all(|row| row.bytes_per_second > 0.0 && row.copy_bytes_per_second > 0.0));
    }
}
