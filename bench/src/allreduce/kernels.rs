//! Throughput of each reduction kernel of the engine next to a plain copy. Measured once per run, before any rank starts.

use std::time::Duration;

use corro_collectives::reduce::measure::{LARGE, Row, SMALL, kernels};

use super::cases::format_size;

/// Prints one line per kernel, in cache and in memory; each measurement takes `budget`.
pub fn print(budget: Duration) {
    let (small, large) = (kernels(SMALL, budget), kernels(LARGE, budget));
    println!("\n{:<28}{:>10}{:>10}  GB/s of the result, one thread", "kernel", format_size(SMALL), format_size(LARGE));
    let copies = [&small, &large].map(|rows| rows.first().map_or(0.0, |row| row.copy_bytes_per_second));
    print_line("plain copy", copies);
    let rate = |row: &Row| row.bytes_per_second;
    small.iter().zip(&large).for_each(|(one, other)| print_line(&one.kernel, [rate(one), rate(other)]));
}

fn print_line(kernel: &str, rates: [f64; 2]) {
    println!("{kernel:<28}{:>10.1}{:>10.1}", rates[0] / 1e9, rates[1] / 1e9);
}
