//! Memory copy bandwidth of this machine, the upper bound of every collective within a host. Measured before any rank starts.
//!
//! Model of an allreduce over shared memory with minimal traffic: every rank sums its share of the tensor (reads `n` shares,
//! writes one) and then fetches the others' (reads `n - 1` shares and writes them). With a tensor of `S` bytes a share is `S /
//! n`, so all ranks together read and write `(3 n - 1) S` bytes. A copy reads and writes each byte once. So the lower bound of
//! an allreduce is the time in which `n` threads together copy `(3 n - 1) / 2` times `S` bytes.

use std::hint::black_box;
use std::sync::Barrier;
use std::time::{Duration, Instant};

/// Bytes per second that `threads` threads copy together, each `bytes` between its own two buffers, for `budget`.
pub fn bytes_per_second(threads: usize, bytes: usize, budget: Duration) -> f64 {
    let barrier = Barrier::new(threads);
    let copy = || {
        let (from, mut to) = (vec![1_u8; bytes], vec![2_u8; bytes]);
        to.copy_from_slice(black_box(&from));
        barrier.wait();
        let (began, mut copies) = (Instant::now(), 0_u32);
        while copies == 0 || began.elapsed() < budget {
            black_box(&mut to).copy_from_slice(black_box(&from));
            copies += 1;
        }
        f64::from(copies) * bytes as f64 / began.elapsed().as_secs_f64()
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(copy)).collect();
        threads.into_iter().map(|thread| thread.join().expect("copying does not panic")).sum()
    })
}

/// Lower bound in nanoseconds, given the joint copy rate of the ranks' threads.
pub fn lower_bound_ns(bytes: usize, ranks: usize, bytes_per_second: f64) -> f64 {
    (3 * ranks - 1) as f64 / 2.0 * bytes as f64 / bytes_per_second * 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_ranks_cannot_do_with_less_than_two_copies_and_a_half() {
        assert_eq!(lower_bound_ns(64 << 20, 2, (64 << 20) as f64), 2.5e9);
        assert_eq!(lower_bound_ns(1, 4, 1.0), 5.5e9);
    }

    #[test]
    fn something_is_copied() {
        assert!(bytes_per_second(2, 4096, Duration::from_millis(1)) > 0.0);
    }
}
