//! Memory of which every rank of a host has a part, where it lays out its tasks: whoever is ahead takes some of another's instead of waiting for
//! it. What a task is, what it reads and where it writes is its users' affair; here is who does which, and when all are done.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::shared_params::agree_on_region;
use crate::engine::Engine;
use crate::error::Error;
use crate::transport::peer_table::PeerTable;
use crate::transport::shm::segment::SharedRegion;
use crate::transport::wait_policy::WaitPolicy;

/// Of each part, for its tasks.
const QUEUE_BYTES: usize = 4096;
/// How long to sleep between two looks for somebody who has one of our last tasks.
const MAX_SLEEP: Duration = Duration::from_micros(200);

pub struct TaskPool {
    region: Arc<SharedRegion>,
    /// Bytes of one part.
    rank_bytes: usize,
    rank: usize,
    n_ranks: usize,
    wait_policy: WaitPolicy,
    peer_table: Arc<PeerTable>,
}

impl TaskPool {
    /// `n_bytes` for every rank. Collective. Nothing where the ranks do not all share memory, or do not want as much.
    pub(super) fn open(engine: &Engine, n_bytes: usize) -> Option<TaskPool> {
        let (rank, n_ranks) = (engine.world.rank_info.rank, engine.world.rank_info.size);
        let rank_bytes = QUEUE_BYTES + n_bytes.next_multiple_of(QUEUE_BYTES);
        let (_, region) = agree_on_region(engine, rank_bytes * n_ranks, &[rank_bytes as i64])?;
        let (wait_policy, peer_table) = (engine.world.wait_policy, engine.world.peer_table.clone());
        Some(TaskPool { region: Arc::new(region), rank_bytes, rank, n_ranks, wait_policy, peer_table })
    }

    pub fn rank(&self) -> usize {
        self.rank
    }

    pub fn n_ranks(&self) -> usize {
        self.n_ranks
    }

    /// The address of some bytes of a rank's part: zeros at first.
    pub fn slice_ptr(&self, rank: usize, first: usize, n_bytes: usize) -> *mut u8 {
        assert!(
            rank < self.n_ranks
                && first <= self.rank_bytes - QUEUE_BYTES
                && n_bytes <= self.rank_bytes - QUEUE_BYTES - first
        );
        self.region.at(rank * self.rank_bytes + QUEUE_BYTES + first, n_bytes)
    }

    pub fn tasks(&self, rank: usize) -> &TaskQueue {
        assert!(rank < self.n_ranks);
        // SAFETY: inside the room, aligned, and zeros are good tasks: none.
        unsafe { &*self.region.at(rank * self.rank_bytes, size_of::<TaskQueue>()).cast::<TaskQueue>() }
    }

    /// Until others have done what they took of this rank's tasks.
    ///
    /// # Errors
    /// When a rank is gone: one of the tasks may never be done.
    pub fn wait(&self) -> Result<(), Error> {
        let tasks = self.tasks(self.rank);
        if self.wait_policy.spin(|| tasks.is_done()) {
            return Ok(());
        }
        for _ in 0..self.wait_policy.yields {
            if tasks.is_done() {
                return Ok(());
            }
            rustix::thread::sched_yield();
        }
        while !tasks.is_done() {
            (0..self.n_ranks).filter(|rank| *rank != self.rank).try_for_each(|rank| self.peer_table.check(rank))?;
            std::thread::sleep(MAX_SLEEP);
        }
        Ok(())
    }
}

/// Tasks of one rank, which it and others take one by one.
#[repr(C, align(128))]
#[derive(Debug, Default)]
pub struct TaskQueue {
    /// What the tasks are about, for whoever takes one (24 bits), how many there are and how many were taken (20 bits each).
    state: AtomicU64,
    done: AtomicU64,
}

const COUNT_BITS: u32 = 20;
const MAX_TASKS: u64 = (1 << COUNT_BITS) - 1;

/// One that was taken: whoever has it does it, and says so with [`Tasks::finish`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Task {
    pub number: usize,
    /// What [`Tasks::lay_out`] was told.
    pub tag: u32,
}

impl TaskQueue {
    /// By their owner, when all that were laid out before are done, and what they need has been written. `about` has 24 bits.
    pub fn publish(&self, n: usize, tag: u32) {
        assert!(n as u64 <= MAX_TASKS && tag < 1 << 24);
        self.done.store(0, Ordering::Relaxed);
        self.state.store(u64::from(tag) << (2 * COUNT_BITS) | (n as u64) << COUNT_BITS, Ordering::Release);
    }

    /// The next one, if its number is below `below`.
    pub fn claim(&self, below: usize) -> Option<Task> {
        let mut state = self.state.load(Ordering::Acquire);
        loop {
            let (tag, n, taken) =
                ((state >> (2 * COUNT_BITS)) as u32, state >> COUNT_BITS & MAX_TASKS, state & MAX_TASKS);
            if taken >= n.min(below as u64) {
                return None;
            }
            match self.state.compare_exchange_weak(state, state + 1, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Some(Task { number: taken as usize, tag }),
                Err(now) => state = now,
            }
        }
    }

    /// How many nobody has taken.
    pub fn remaining(&self) -> usize {
        let state = self.state.load(Ordering::Relaxed);
        ((state >> COUNT_BITS & MAX_TASKS) - (state & MAX_TASKS)) as usize
    }

    /// One that was taken is done: what it wrote is seen by who sees all of them done.
    pub fn finish(&self) {
        self.done.fetch_add(1, Ordering::Release);
    }

    /// For their owner.
    pub fn is_done(&self) -> bool {
        self.done.load(Ordering::Acquire) == self.state.load(Ordering::Relaxed) >> COUNT_BITS & MAX_TASKS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_task_is_taken_once() {
        let tasks = TaskQueue::default();
        assert!(tasks.claim(9).is_none() && tasks.is_done());
        for round in 1..=20u32 {
            tasks.publish(100, round);
            assert!(!tasks.is_done());
            let seen: Vec<Vec<usize>> = std::thread::scope(|scope| {
                let claim = |below: usize| {
                    let mut seen = Vec::new();
                    while let Some(Task { number, tag }) = tasks.claim(below) {
                        assert_eq!(tag, round);
                        seen.push(number);
                        tasks.finish();
                    }
                    seen
                };
                let helpers: Vec<_> = (0..3).map(|_| scope.spawn(move || claim(50))).collect();
                let mut seen: Vec<_> = helpers.into_iter().map(|helper| helper.join().expect("it ends")).collect();
                assert_eq!(tasks.remaining(), 50);
                seen.push(claim(100));
                seen
            });
            let mut all = seen.concat();
            all.sort_unstable();
            assert!(all.into_iter().eq(0..100) && tasks.is_done() && tasks.remaining() == 0);
        }
    }
}
