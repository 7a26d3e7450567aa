//! What may be believed without asking the server, and what is worth fetching before anybody asks. Pure; time is told to it.
//!
//! Close-to-open: whoever opens a file sees what everyone had written who closed it before, so an `open` always asks. Between that, what
//! was said about a name is believed for a second, as other network file systems do.

use std::collections::HashMap;
use std::ops::Range;
use std::time::{Duration, Instant};

use crate::remote::Status;

/// How long what was said about a thing is believed, here and by the kernel.
pub const BELIEVED: Duration = Duration::from_secs(1);
/// More than a page of a large listing; older ones go first.
const MOST: usize = 20_000;

/// What is known of things, by inode.
#[derive(Debug, Default)]
pub struct Attributes {
    known: HashMap<u64, (Status, Instant)>,
}

impl Attributes {
    pub fn fresh(&self, inode: u64, now: Instant) -> Option<&Status> {
        let (status, at) = self.known.get(&inode)?;
        (now.saturating_duration_since(*at) < BELIEVED).then_some(status)
    }

    /// Also when it is old.
    pub fn last(&self, inode: u64) -> Option<&Status> {
        self.known.get(&inode).map(|(status, _)| status)
    }

    pub fn learn(&mut self, inode: u64, status: Status, now: Instant) {
        if self.known.len() >= MOST {
            self.known.retain(|_, (_, at)| now.saturating_duration_since(*at) < BELIEVED);
            if self.known.len() >= MOST {
                self.known.clear();
            }
        }
        self.known.insert(inode, (status, now));
    }

    pub fn forget(&mut self, inode: u64) {
        self.known.remove(&inode);
    }
}

/// Files are fetched in chunks of this size when they are read in order.
pub const CHUNK: u64 = 2 << 20;
/// How many chunks are on their way before they are asked for.
const AHEAD: u64 = 4;
/// The kernel's own requests come several at a time, not quite in order.
const SLACK: u64 = 1 << 20;

/// How one file is being read.
#[derive(Debug, Default)]
pub struct Reading {
    /// Where the furthest read in a row ended.
    reached: u64,
    /// How many reads in a row were near it.
    in_order: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Plan {
    /// Fetch just what was asked for.
    Direct,
    /// Take it from these chunks; the second are wanted soon. What lies before the first is not needed any more.
    Chunks { now: Range<u64>, ahead: Range<u64>, past: u64 },
}

impl Reading {
    /// What to do for a read of `length` bytes at `offset`, in a file that has `end` bytes as far as is known.
    pub fn plan(&mut self, offset: u64, length: u64, end: u64) -> Plan {
        let near = offset <= self.reached + SLACK && offset + length + SLACK >= self.reached;
        if near {
            self.in_order = self.in_order.saturating_add(1);
            self.reached = self.reached.max(offset + length);
        } else {
            self.in_order = 0;
            self.reached = offset + length;
        }
        // A file's beginning is mostly read because the rest will be.
        let streams = self.in_order >= 3 || (near && offset < CHUNK && self.reached <= 2 * CHUNK);
        if !streams || length == 0 || offset >= end {
            return Plan::Direct;
        }
        let first = offset / CHUNK;
        let last = (offset + length).min(end).div_ceil(CHUNK);
        let n_ahead = if self.in_order >= 3 { AHEAD } else { 0 };
        let until = (last + n_ahead).min(end.div_ceil(CHUNK));
        Plan::Chunks { now: first..last, ahead: last..until, past: self.reached.saturating_sub(SLACK) / CHUNK }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inodes::Kind;
    use corro_test_support::rng::SplitMix64;

    const MIB: u64 = 1 << 20;

    #[test]
    fn a_stream_is_fetched_ahead_and_a_small_file_at_once() {
        let mut reading = Reading::default();
        assert_eq!(reading.plan(0, 4096, 10_000), Plan::Chunks { now: 0..1, ahead: 1..1, past: 0 });
        let mut reading = Reading::default();
        let mut plans = Vec::new();
        for at in 0..32 {
            plans.push(reading.plan(at * MIB, MIB, 100 * MIB));
        }
        assert_eq!(plans[0], Plan::Chunks { now: 0..1, ahead: 1..1, past: 0 });
        assert_eq!(plans[31], Plan::Chunks { now: 15..16, ahead: 16..20, past: 15 });
        // Never beyond the end.
        let plan = reading.plan(32 * MIB, MIB, 33 * MIB);
        assert_eq!(plan, Plan::Chunks { now: 16..17, ahead: 17..17, past: 16 });
        assert_eq!(reading.plan(33 * MIB, MIB, 33 * MIB), Plan::Direct);
    }

    #[test]
    fn jumping_around_fetches_what_was_asked_for() {
        let (mut reading, mut rng) = (Reading::default(), SplitMix64::new(1));
        let n_chunks = (0..1000)
            .filter(|_| {
                let at = rng.below(1 << 18) * 4096;
                reading.plan(at, 4096, 1 << 30) != Plan::Direct
            })
            .count();
        assert!(n_chunks < 5, "{n_chunks} of 1000 random reads fetched a chunk");
    }

    #[test]
    fn what_was_said_is_believed_for_a_while() {
        let (mut attributes, now) = (Attributes::default(), Instant::now());
        let status = Status { kind: Kind::File, length: 3, modified: std::time::UNIX_EPOCH, etag: "e".into() };
        attributes.learn(5, status.clone(), now);
        assert_eq!(attributes.fresh(5, now + BELIEVED / 2), Some(&status));
        assert_eq!(attributes.fresh(5, now + BELIEVED), None);
        assert_eq!(attributes.last(5), Some(&status));
        for inode in 0..2 * MOST as u64 {
            attributes.learn(inode, status.clone(), now);
        }
        assert!(attributes.known.len() <= MOST);
        attributes.forget(7);
        assert!(attributes.last(7).is_none());
    }
}
