//! Read-ahead for sequentially read files: decides which chunks to fetch. Pure.

use std::ops::Range;

/// Size of the chunks in which sequentially read files are fetched.
pub const CHUNK_BYTES: u64 = 2 << 20;
/// Number of chunks that are fetched ahead.
const READAHEAD_CHUNKS: u64 = 4;
/// Tolerance for the kernel's parallel requests, which arrive slightly out of order.
const REORDER_SLACK_BYTES: u64 = 1 << 20;

/// Access pattern of one open file.
#[derive(Debug, Default)]
pub struct ReadPattern {
    /// End of the furthest sequential read.
    reached: u64,
    /// Number of consecutive reads near it.
    in_order: u32,
}

/// How to serve a read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadPlan {
    /// Fetch exactly the requested range.
    Direct,
    /// Read from the chunks `now` and fetch the chunks `ahead`. Chunks before `past` are no longer needed.
    Chunks { now: Range<u64>, ahead: Range<u64>, past: u64 },
}

impl ReadPattern {
    /// Plan for a read of `length` bytes at `offset` in a file that is known to have `end` bytes.
    pub fn plan(&mut self, offset: u64, length: u64, end: u64) -> ReadPlan {
        let near =
            offset <= self.reached + REORDER_SLACK_BYTES && offset + length + REORDER_SLACK_BYTES >= self.reached;
        if near {
            self.in_order = self.in_order.saturating_add(1);
            self.reached = self.reached.max(offset + length);
        } else {
            self.in_order = 0;
            self.reached = offset + length;
        }
        // A read at the beginning of a file usually means that the rest is read too.
        let is_sequential = self.in_order >= 3 || (near && offset < CHUNK_BYTES && self.reached <= 2 * CHUNK_BYTES);
        if !is_sequential || length == 0 || offset >= end {
            return ReadPlan::Direct;
        }
        let first = offset / CHUNK_BYTES;
        let last = (offset + length).min(end).div_ceil(CHUNK_BYTES);
        let n_ahead = if self.in_order >= 3 { READAHEAD_CHUNKS } else { 0 };
        let until = (last + n_ahead).min(end.div_ceil(CHUNK_BYTES));
        ReadPlan::Chunks {
            now: first..last,
            ahead: last..until,
            past: self.reached.saturating_sub(REORDER_SLACK_BYTES) / CHUNK_BYTES,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use corro_test_support::rng::SplitMix64;

    const MIB: u64 = 1 << 20;

    #[test]
    fn sequential_reads_are_fetched_ahead_and_small_files_at_once() {
        let mut pattern = ReadPattern::default();
        assert_eq!(pattern.plan(0, 4096, 10_000), ReadPlan::Chunks { now: 0..1, ahead: 1..1, past: 0 });
        let mut pattern = ReadPattern::default();
        let mut plans = Vec::new();
        for at in 0..32 {
            plans.push(pattern.plan(at * MIB, MIB, 100 * MIB));
        }
        assert_eq!(plans[0], ReadPlan::Chunks { now: 0..1, ahead: 1..1, past: 0 });
        assert_eq!(plans[31], ReadPlan::Chunks { now: 15..16, ahead: 16..20, past: 15 });
        // Never beyond the end.
        let plan = pattern.plan(32 * MIB, MIB, 33 * MIB);
        assert_eq!(plan, ReadPlan::Chunks { now: 16..17, ahead: 17..17, past: 16 });
        assert_eq!(pattern.plan(33 * MIB, MIB, 33 * MIB), ReadPlan::Direct);
    }

    #[test]
    fn random_reads_fetch_only_the_requested_range() {
        let (mut pattern, mut rng) = (ReadPattern::default(), SplitMix64::new(1));
        let n_chunks = (0..1000)
            .filter(|_| {
                let at = rng.below(1 << 18) * 4096;
                pattern.plan(at, 4096, 1 << 30) != ReadPlan::Direct
            })
            .count();
        assert!(n_chunks < 5, "{n_chunks} of 1000 random reads fetched a chunk");
    }
}
