//! Work stealing between the ranks of a host: each rank owns a task queue in shared memory, and idle ranks claim tasks from the others. The
//! users of the pool define what a task is, what it reads and where it writes; this module only hands out task numbers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::shared_params::agree_on_region;
use crate::engine::Engine;
use crate::error::Error;
use crate::transport::peer_table::PeerTable;
use crate::transport::shm::segment::SharedRegion;
use crate::transport::wait_policy::WaitPolicy;

/// Bytes at the start of each rank's part that hold its task queue.
const QUEUE_BYTES: usize = 4096;
/// Interval between checks for the completion of stolen tasks, after spinning.
const POLL_INTERVAL: Duration = Duration::from_micros(200);

/// Shared memory of the ranks of a host: for each rank a task queue and bytes for the tasks' data.
pub struct TaskPool {
    region: Arc<SharedRegion>,
    /// Bytes of one rank's part, including its queue.
    rank_bytes: usize,
    rank: usize,
    n_ranks: usize,
    wait_policy: WaitPolicy,
    peer_table: Arc<PeerTable>,
}

impl TaskPool {
    /// Creates a pool with `n_bytes` of data per rank. Collective. `None` if not all ranks share memory, or if they ask for different sizes.
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

    /// Address of `n_bytes` at offset `first` of a rank's data. Initially zeros.
    pub fn slice_ptr(&self, rank: usize, first: usize, n_bytes: usize) -> *mut u8 {
        assert!(
            rank < self.n_ranks
                && first <= self.rank_bytes - QUEUE_BYTES
                && n_bytes <= self.rank_bytes - QUEUE_BYTES - first
        );
        self.region.at(rank * self.rank_bytes + QUEUE_BYTES + first, n_bytes)
    }

    /// Task queue of a rank.
    pub fn tasks(&self, rank: usize) -> &TaskQueue {
        assert!(rank < self.n_ranks);
        // SAFETY: `region.at` checks the bounds, each part starts on a page, so the queue is aligned, and it is made of atomics for which
        // zeros are the valid state "no tasks".
        unsafe { &*self.region.at(rank * self.rank_bytes, size_of::<TaskQueue>()).cast::<TaskQueue>() }
    }

    /// Waits until all of this rank's tasks are done, including stolen ones.
    ///
    /// # Errors
    /// If a rank died: a task that it claimed may never be done.
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
            std::thread::sleep(POLL_INTERVAL);
        }
        Ok(())
    }
}

/// Task queue of one rank, from which it and other ranks claim tasks.
#[repr(C, align(128))]
#[derive(Debug, Default)]
pub struct TaskQueue {
    /// Tag of the tasks (24 bits), number of tasks and number of claimed tasks (20 bits each), in one word so that a claim is one CAS.
    state: AtomicU64,
    /// Number of finished tasks.
    done: AtomicU64,
}

/// Bits of a task count in [`TaskQueue::state`].
const COUNT_BITS: u32 = 20;
/// Largest number of tasks; also the mask of a count.
const MAX_TASKS: u64 = (1 << COUNT_BITS) - 1;

/// Claimed task. The claimer runs it and then calls [`TaskQueue::finish`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Task {
    pub number: usize,
    /// Value passed to [`TaskQueue::publish`].
    pub tag: u32,
}

impl TaskQueue {
    /// Publishes `n` tasks. Called by the owner when all earlier tasks are done and the input of the new ones is written. `tag` has at most 24
    /// bits. Release ordering makes the input visible to claimers.
    pub fn publish(&self, n: usize, tag: u32) {
        assert!(n as u64 <= MAX_TASKS && tag < 1 << 24);
        self.done.store(0, Ordering::Relaxed);
        self.state.store(u64::from(tag) << (2 * COUNT_BITS) | (n as u64) << COUNT_BITS, Ordering::Release);
    }

    /// Claims the next task if its number is below `below`.
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

    /// Number of unclaimed tasks.
    pub fn remaining(&self) -> usize {
        let state = self.state.load(Ordering::Relaxed);
        ((state >> COUNT_BITS & MAX_TASKS) - (state & MAX_TASKS)) as usize
    }

    /// Marks a claimed task as done. Release ordering makes its output visible to a thread that sees [`TaskQueue::is_done`].
    pub fn finish(&self) {
        self.done.fetch_add(1, Ordering::Release);
    }

    /// True if all published tasks are done. For the owner.
    pub fn is_done(&self) -> bool {
        self.done.load(Ordering::Acquire) == self.state.load(Ordering::Relaxed) >> COUNT_BITS & MAX_TASKS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_task_is_claimed_once() {
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
