//! Latency histograms with fixed buckets, cheap enough for every commit and request. Read by the metrics endpoint.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Upper bounds of the buckets, in seconds; a last bucket counts everything slower.
pub const BUCKET_BOUNDS: [f64; 12] = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 2.5, 10.0];

#[derive(Default)]
pub struct LatencyHistogram {
    counts: [AtomicU64; BUCKET_BOUNDS.len() + 1],
    micros: AtomicU64,
}

/// Counters of the writer since start.
#[derive(Default)]
pub struct StoreStats {
    /// Transactions that changed something.
    pub changes: AtomicU64,
    /// Latencies of disk writes, each of one or more transactions.
    pub writes: LatencyHistogram,
    pub failures: AtomicU64,
    /// The last write failed.
    pub is_failing: AtomicBool,
}

impl LatencyHistogram {
    pub fn record(&self, took: Duration) {
        let seconds = took.as_secs_f64();
        let bucket = BUCKET_BOUNDS.iter().position(|bound| seconds <= *bound).unwrap_or(BUCKET_BOUNDS.len());
        self.counts[bucket].fetch_add(1, Ordering::Relaxed);
        self.micros.fetch_add(took.as_micros() as u64, Ordering::Relaxed);
    }

    /// Count per bucket, and the sum of all durations in seconds.
    pub fn read(&self) -> ([u64; BUCKET_BOUNDS.len() + 1], f64) {
        let counts = std::array::from_fn(|idx| self.counts[idx].load(Ordering::Relaxed));
        (counts, self.micros.load(Ordering::Relaxed) as f64 / 1e6)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_duration_is_in_one_bucket() {
        let histogram = LatencyHistogram::default();
        for millis in [0, 1, 2, 99, 60_000] {
            histogram.record(Duration::from_millis(millis));
        }
        let (counts, sum) = histogram.read();
        assert_eq!((counts[0], counts[1], counts[2], counts[7], counts[12]), (1, 1, 1, 1, 1));
        assert_eq!(sum, 60.102);
    }
}
