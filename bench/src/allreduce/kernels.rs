//! Throughput of each reduction kernel of the engine next to a plain copy. Measured once per run, before any rank starts.

use std::time::Duration;

use corro_collectives::reduce::measure::{LARGE, Row, SMALL, kernels};

use super::cases::size;

/// Prints one line per kernel, in cache and in memory.
pub fn print(patience: Duration) {
    let (small, large) = (kernels(SMALL, patience), kernels(LARGE, patience));
    println!("\n{:<28}{:>10}{:>10}  GB/s of the result, one thread", "kernel", size(SMALL), size(LARGE));
    let copies = [&small, &large].map(|rows| rows.first().map_or(0.0, |row| row.copy_bytes_per_second));
    line("plain copy", copies);
    let rate = |row: &Row| row.bytes_per_second;
    small.iter().zip(&large).for_each(|(one, other)| line(&one.kernel, [rate(one), rate(other)]));
}

fn line(kernel: &str, rates: [f64; 2]) {
    println!("{kernel:<28}{:>10.1}{:>10.1}", rates[0] / 1e9, rates[1] / 1e9);
}
