//! Writes to a file that the server does not have yet. Pure: which ranges exist, in which order they may be sent, and
//! what a reader sees. No byte is in flight twice, so an older write can never overtake a newer one.

use std::collections::BTreeMap;

use bytes::{Bytes, BytesMut};
use corro_client::files::MAX_RANGES;

/// Largest range that the file service accepts in one request.
pub const MAX_RANGE_BYTES: usize = 4 << 20;

/// Written ranges of a file: buffered and in flight.
#[derive(Debug, Default)]
pub struct DirtyRanges {
    /// Ranges not sent yet, by offset. They do not overlap.
    buffered: BTreeMap<u64, BytesMut>,
    /// Ranges in flight, by offset. They do not overlap.
    in_flight: BTreeMap<u64, Bytes>,
    bytes: usize,
    /// Whether a buffered range may have the maximum size. Avoids a search after every write.
    may_have_full_range: bool,
}

/// A range to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirtyRange {
    pub offset: u64,
    pub content: Bytes,
}

/// Groups ranges into requests: long ranges alone, many short ones together.
pub fn batches(ranges: Vec<DirtyRange>) -> Vec<Vec<DirtyRange>> {
    let mut batches: Vec<Vec<DirtyRange>> = Vec::new();
    let (mut bytes, mut last): (usize, Vec<DirtyRange>) = (0, Vec::new());
    for range in ranges {
        if last.len() == MAX_RANGES || bytes + range.content.len() > MAX_RANGE_BYTES {
            batches.push(std::mem::take(&mut last));
            bytes = 0;
        }
        bytes += range.content.len();
        last.push(range);
    }
    batches.push(last);
    batches.retain(|batch| !batch.is_empty());
    batches
}

impl DirtyRanges {
    pub fn write(&mut self, offset: u64, content: &[u8]) {
        if content.is_empty() {
            return;
        }
        let end = offset + content.len() as u64;
        // Common case: a sequential write.
        if let Some((start, run)) = self.buffered.range_mut(..=offset).next_back()
            && start + run.len() as u64 == offset
            && run.len() + content.len() <= 2 * MAX_RANGE_BYTES
        {
            let start = *start;
            run.extend_from_slice(content);
            self.may_have_full_range |= run.len() >= MAX_RANGE_BYTES;
            self.bytes += content.len();
            self.remove_range_except(offset, end, start);
            return;
        }
        self.remove_range(offset, end);
        // Large writes are usually sequential: allocating a full range at once saves copies as it grows.
        let capacity =
            if content.len() >= MAX_RANGE_BYTES / 64 { content.len().max(MAX_RANGE_BYTES) } else { content.len() };
        let mut run = BytesMut::with_capacity(capacity);
        run.extend_from_slice(content);
        self.may_have_full_range |= run.len() >= MAX_RANGE_BYTES;
        self.buffered.insert(offset, run);
        self.bytes += content.len();
    }

    /// Bytes not sent yet.
    pub fn buffered_bytes(&self) -> usize {
        self.bytes
    }

    pub fn n_buffered(&self) -> usize {
        self.buffered.len()
    }

    pub fn is_clean(&self) -> bool {
        self.buffered.is_empty() && self.in_flight.is_empty()
    }

    /// Takes ranges of the maximum size, which are worth sending before more is written.
    pub fn take_full(&mut self) -> Vec<DirtyRange> {
        if !self.may_have_full_range {
            return Vec::new();
        }
        let ranges = self.take_ranges(MAX_RANGE_BYTES);
        self.may_have_full_range = self.buffered.values().any(|run| run.len() >= MAX_RANGE_BYTES);
        ranges
    }

    /// Takes everything that may be sent now. A range that overlaps one in flight must wait for it.
    pub fn take_all(&mut self) -> Vec<DirtyRange> {
        self.take_ranges(1)
    }

    fn take_ranges(&mut self, min_bytes: usize) -> Vec<DirtyRange> {
        let starts: Vec<u64> =
            self.buffered.iter().filter(|(_, run)| run.len() >= min_bytes).map(|(start, _)| *start).collect();
        let mut ranges = Vec::new();
        for start in starts {
            let mut offset = start;
            while let Some(run) = self.buffered.get(&offset).filter(|run| run.len() >= min_bytes) {
                let length = run.len().min(MAX_RANGE_BYTES);
                if self.is_in_flight(offset, offset + length as u64) {
                    break;
                }
                let mut run = self.buffered.remove(&offset).expect("looked at above");
                let content = run.split_to(length).freeze();
                self.bytes -= length;
                let next = offset + length as u64;
                if !run.is_empty() {
                    self.buffered.insert(next, run);
                }
                self.in_flight.insert(offset, content.clone());
                ranges.push(DirtyRange { offset, content });
                offset = next;
            }
        }
        ranges
    }

    /// The range in flight was uploaded or has failed.
    pub fn on_uploaded(&mut self, offset: u64) {
        self.in_flight.remove(&offset);
    }

    /// Drops everything that is not sent yet.
    pub fn discard(&mut self) {
        self.buffered.clear();
        self.bytes = 0;
    }

    pub fn overlaps(&self, start: u64, end: u64) -> bool {
        let is_buffered = self.buffered.range(..end).next_back().is_some_and(|(at, run)| at + run.len() as u64 > start);
        is_buffered || self.is_in_flight(start, end)
    }

    /// The bytes of a range, if all of them are buffered or in flight.
    pub fn read(&self, start: u64, end: u64) -> Option<Vec<u8>> {
        if start >= end || !self.overlaps(start, end) {
            return None;
        }
        let mut content = vec![0; (end - start) as usize];
        let mut covered: Vec<(u64, u64)> = Vec::new();
        let in_flight = self.in_flight.range(..end).map(|(at, range)| (*at, range.as_ref()));
        // Newer bytes over older ones.
        let buffered = self.buffered.range(..end).map(|(at, run)| (*at, run.as_ref()));
        for (at, bytes) in in_flight.chain(buffered) {
            let (from, to) = (at.max(start), (at + bytes.len() as u64).min(end));
            if from < to {
                let source = &bytes[(from - at) as usize..(to - at) as usize];
                content[(from - start) as usize..(to - start) as usize].copy_from_slice(source);
                covered.push((from, to));
            }
        }
        covered.sort_unstable();
        let reached =
            covered.iter().fold(start, |reached, (from, to)| if *from <= reached { reached.max(*to) } else { reached });
        (reached >= end).then_some(content)
    }

    fn is_in_flight(&self, start: u64, end: u64) -> bool {
        self.in_flight.range(..end).next_back().is_some_and(|(at, range)| at + range.len() as u64 > start)
    }

    /// Removes `start..end` from the buffered ranges.
    fn remove_range(&mut self, start: u64, end: u64) {
        self.remove_range_except(start, end, u64::MAX);
    }

    /// Like [`Self::remove_range`], but leaves the range that begins at `except` alone.
    fn remove_range_except(&mut self, start: u64, end: u64, except: u64) {
        let touched: Vec<u64> = (self.buffered.range(..end))
            .rev()
            .take_while(|(at, run)| **at + run.len() as u64 > start || **at == except)
            .map(|(at, _)| *at)
            .filter(|at| *at != except)
            .collect();
        for at in touched {
            let mut run = self.buffered.remove(&at).expect("just found");
            self.bytes -= run.len();
            let run_end = at + run.len() as u64;
            if run_end > end {
                let tail = run.split_off((end - at) as usize);
                self.bytes += tail.len();
                self.buffered.insert(end, tail);
            }
            if at < start {
                run.truncate((start - at) as usize);
                self.bytes += run.len();
                self.buffered.insert(at, run);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use corro_test_support::rng::SplitMix64;

    #[test]
    fn sequential_writes_become_full_ranges() {
        let mut dirty = DirtyRanges::default();
        for number in 0..9u64 {
            dirty.write(number << 20, &vec![number as u8; 1 << 20]);
        }
        let full = dirty.take_full();
        assert_eq!(
            full.iter().map(|range| (range.offset, range.content.len())).collect::<Vec<_>>(),
            [(0, MAX_RANGE_BYTES), (MAX_RANGE_BYTES as u64, MAX_RANGE_BYTES)]
        );
        assert_eq!(dirty.buffered_bytes(), 1 << 20);
        let rest = dirty.take_all();
        assert_eq!(
            rest.iter().map(|range| (range.offset, range.content.len())).collect::<Vec<_>>(),
            [(8 << 20, 1 << 20)]
        );
        full.iter().chain(&rest).for_each(|range| dirty.on_uploaded(range.offset));
        assert!(dirty.is_clean());
    }

    #[test]
    fn short_ranges_share_a_request() {
        let range = |length: usize| DirtyRange { offset: 0, content: Bytes::from(vec![0; length]) };
        let check = |lengths: &[usize], expected: &[usize]| {
            let batches = batches(lengths.iter().map(|length| range(*length)).collect());
            assert_eq!(batches.iter().map(Vec::len).collect::<Vec<_>>(), expected);
        };
        check(&[], &[]);
        check(&[5], &[1]);
        check(&[MAX_RANGE_BYTES, MAX_RANGE_BYTES, 1, 1, MAX_RANGE_BYTES], &[1, 1, 2, 1]);
        check(&[MAX_RANGE_BYTES - 1, 1, 1], &[2, 1]);
        check(&[1; 2 * MAX_RANGES + 1], &[MAX_RANGES, MAX_RANGES, 1]);
    }

    #[test]
    fn ranges_overlapping_those_in_flight_wait() {
        let mut dirty = DirtyRanges::default();
        dirty.write(0, b"old");
        let first = dirty.take_all();
        dirty.write(1, b"EW!");
        assert_eq!(dirty.read(0, 4).as_deref(), Some(&b"oEW!"[..]));
        assert!(dirty.take_all().is_empty());
        dirty.on_uploaded(first[0].offset);
        assert_eq!(dirty.take_all(), [DirtyRange { offset: 1, content: Bytes::from_static(b"EW!") }]);
        assert_eq!(dirty.read(0, 4), None);
    }

    /// Random writes, sent and uploaded in any order, end with the content of plain writes.
    #[test]
    fn random_steps_end_like_plain_writes() {
        const SIZE: u64 = 64;
        for seed in 0..500 {
            let mut rng = SplitMix64::new(seed);
            let (mut dirty, mut on_way) = (DirtyRanges::default(), Vec::<DirtyRange>::new());
            let (mut expected, mut server) = (vec![0u8; SIZE as usize], vec![0u8; SIZE as usize]);
            for step in 0..80u8 {
                match rng.below(4) {
                    0 | 1 => {
                        let start = rng.below(SIZE);
                        let length = 1 + rng.below((SIZE - start).min(12));
                        let content = vec![step + 1; length as usize];
                        expected[start as usize..(start + length) as usize].copy_from_slice(&content);
                        dirty.write(start, &content);
                    }
                    2 => on_way.extend(dirty.take_all()),
                    _ if !on_way.is_empty() => {
                        let range = on_way.swap_remove(rng.below(on_way.len() as u64) as usize);
                        let at = range.offset as usize;
                        server[at..at + range.content.len()].copy_from_slice(&range.content);
                        dirty.on_uploaded(range.offset);
                    }
                    _ => {}
                }
                let buffered_bytes: usize = dirty.buffered.values().map(BytesMut::len).sum();
                assert_eq!(buffered_bytes, dirty.buffered_bytes(), "seed {seed}");
                // A reader sees what was written, wherever it is.
                let start = rng.below(SIZE);
                let end = start + 1 + rng.below(SIZE - start);
                let seen = match dirty.read(start, end) {
                    Some(seen) => seen,
                    None if dirty.overlaps(start, end) => continue,
                    None => server[start as usize..end as usize].to_vec(),
                };
                assert_eq!(seen, expected[start as usize..end as usize], "seed {seed}");
            }
            while !dirty.is_clean() {
                on_way.extend(dirty.take_all());
                for range in on_way.drain(..) {
                    let at = range.offset as usize;
                    server[at..at + range.content.len()].copy_from_slice(&range.content);
                    dirty.on_uploaded(range.offset);
                }
            }
            assert_eq!(server, expected, "seed {seed}");
        }
    }
}
