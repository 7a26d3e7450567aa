//! Memory of which every rank of a host has a part, where it lays out its tasks: whoever is ahead takes some of another's instead of waiting for
//! it. What a task is, what it reads and where it writes is its users' affair; here is who does which, and when all are done.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::commons::agree;
use crate::engine::Engine;
use crate::error::Error;
use crate::transport::control::peer_table::PeerTable;
use crate::transport::shm::segment::SharedRegion;
use crate::transport::wait_policy::WaitPolicy;

/// Of each part, for its tasks.
const HEAD: usize = 4096;
/// How long to sleep between two looks for somebody who has one of our last tasks.
const NAP: Duration = Duration::from_micros(200);

pub struct Yard {
    room: Arc<SharedRegion>,
    /// Bytes of one part.
    part: usize,
    rank: usize,
    n_ranks: usize,
    wait_policy: WaitPolicy,
    peer_table: Arc<PeerTable>,
}

impl Yard {
    /// `n_bytes` for every rank. Collective. Nothing where the ranks do not all share memory, or do not want as much.
    pub(super) fn open(engine: &Engine, n_bytes: usize) -> Option<Yard> {
        let (rank, n_ranks) = (engine.world.place.rank, engine.world.place.size);
        let part = HEAD + n_bytes.next_multiple_of(HEAD);
        let (_, room) = agree(engine, part * n_ranks, &[part as i64])?;
        let (wait_policy, peer_table) = (engine.world.wait_policy, engine.world.peer_table.clone());
        Some(Yard { room: Arc::new(room), part, rank, n_ranks, wait_policy, peer_table })
    }

    pub fn rank(&self) -> usize {
        self.rank
    }

    pub fn n_ranks(&self) -> usize {
        self.n_ranks
    }

    /// The address of some bytes of a rank's part: zeros at first.
    pub fn at(&self, rank: usize, first: usize, n_bytes: usize) -> *mut u8 {
        assert!(rank < self.n_ranks && first <= self.part - HEAD && n_bytes <= self.part - HEAD - first);
        self.room.at(rank * self.part + HEAD + first, n_bytes)
    }

    pub fn tasks(&self, rank: usize) -> &Tasks {
        assert!(rank < self.n_ranks);
        // SAFETY: inside the room, aligned, and zeros are good tasks: none.
        unsafe { &*self.room.at(rank * self.part, size_of::<Tasks>()).cast::<Tasks>() }
    }

    /// Until others have done what they took of this rank's tasks.
    ///
    /// # Errors
    /// When a rank is gone: one of the tasks may never be done.
    pub fn wait(&self) -> Result<(), Error> {
        let tasks = self.tasks(self.rank);
        if self.wait_policy.spin(|| tasks.are_done()) {
            return Ok(());
        }
        for _ in 0..self.wait_policy.yields {
            if tasks.are_done() {
                return Ok(());
            }
            rustix::thread::sched_yield();
        }
        while !tasks.are_done() {
            (0..self.n_ranks).filter(|rank| *rank != self.rank).try_for_each(|rank| self.peer_table.check(rank))?;
            std::thread::sleep(NAP);
        }
        Ok(())
    }
}

/// Tasks of one rank, which it and others take one by one.
#[repr(C, align(128))]
#[derive(Debug, Default)]
pub struct Tasks {
    /// What the tasks are about, for whoever takes one (24 bits), how many there are and how many were taken (20 bits each).
    open: AtomicU64,
    done: AtomicU64,
}

const BITS: u32 = 20;
const MOST: u64 = (1 << BITS) - 1;

/// One that was taken: whoever has it does it, and says so with [`Tasks::finish`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Task {
    pub number: usize,
    /// What [`Tasks::lay_out`] was told.
    pub about: u32,
}

impl Tasks {
    /// By their owner, when all that were laid out before are done, and what they need has been written. `about` has 24 bits.
    pub fn lay_out(&self, n: usize, about: u32) {
        assert!(n as u64 <= MOST && about < 1 << 24);
        self.done.store(0, Ordering::Relaxed);
        self.open.store(u64::from(about) << (2 * BITS) | (n as u64) << BITS, Ordering::Release);
    }

    /// The next one, if its number is below `below`.
    pub fn take(&self, below: usize) -> Option<Task> {
        let mut open = self.open.load(Ordering::Acquire);
        loop {
            let (about, n, taken) = ((open >> (2 * BITS)) as u32, open >> BITS & MOST, open & MOST);
            if taken >= n.min(below as u64) {
                return None;
            }
            match self.open.compare_exchange_weak(open, open + 1, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Some(Task { number: taken as usize, about }),
                Err(now) => open = now,
            }
        }
    }

    /// How many nobody has taken.
    pub fn left(&self) -> usize {
        let open = self.open.load(Ordering::Relaxed);
        ((open >> BITS & MOST) - (open & MOST)) as usize
    }

    /// One that was taken is done: what it wrote is seen by who sees all of them done.
    pub fn finish(&self) {
        self.done.fetch_add(1, Ordering::Release);
    }

    /// For their owner.
    pub fn are_done(&self) -> bool {
        self.done.load(Ordering::Acquire) == self.open.load(Ordering::Relaxed) >> BITS & MOST
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_task_is_taken_once() {
        let tasks = Tasks::default();
        assert!(tasks.take(9).is_none() && tasks.are_done());
        for round in 1..=20u32 {
            tasks.lay_out(100, round);
            assert!(!tasks.are_done());
            let seen: Vec<Vec<usize>> = std::thread::scope(|scope| {
                let take = |below: usize| {
                    let mut seen = Vec::new();
                    while let Some(Task { number, about }) = tasks.take(below) {
                        assert_eq!(about, round);
                        seen.push(number);
                        tasks.finish();
                    }
                    seen
                };
                let helpers: Vec<_> = (0..3).map(|_| scope.spawn(move || take(50))).collect();
                let mut seen: Vec<_> = helpers.into_iter().map(|helper| helper.join().expect("it ends")).collect();
                assert_eq!(tasks.left(), 50);
                seen.push(take(100));
                seen
            });
            let mut all = seen.concat();
            all.sort_unstable();
            assert!(all.into_iter().eq(0..100) && tasks.are_done() && tasks.left() == 0);
        }
    }
}
