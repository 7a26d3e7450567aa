//! Synchronisation of the ranks of one communicator on one host by step counters in shared memory.
//!
//! Every operation is a sequence of *steps*, the same on every rank. A rank publishes the number of its last step in its slot (release); a rank that has
//! seen the step (acquire) sees everything that was written before it. A rank's own buffers (inline payload, small slots, stages) may be written again once
//! all others have reached the step that follows their reading: a later step of a rank always means that all its reads of earlier steps are done.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustix::thread::futex;

use crate::error::Error;
use crate::transport::peer_table::PeerTable;
use crate::transport::shm::segment::{CommRegion, INLINE_BYTES, InlinePayload, N_STAGES, SMALL_BYTES, STAGE_BYTES};
use crate::transport::wait_policy::WaitPolicy;

pub struct StepSync {
    region: Arc<CommRegion>,
    /// Members of the communicator on this host, as ranks of the world, ascending.
    ranks: Vec<usize>,
    me: usize,
    /// Steps made by this rank. Wraps.
    step: u32,
    /// Small operations so far; they alternate between two slots.
    n_smalls: u32,
    /// Uses of the stages so far, and for each stage the step that all must have reached before it is written again.
    n_stages: u64,
    guards: [u32; N_STAGES],
    wait_policy: WaitPolicy,
    /// How often this rank found another one on its core.
    steps_aside: AtomicU32,
    peer_table: Arc<PeerTable>,
}

impl StepSync {
    pub fn new(
        region: Arc<CommRegion>,
        ranks: Vec<usize>,
        me: usize,
        wait_policy: WaitPolicy,
        peer_table: Arc<PeerTable>,
    ) -> StepSync {
        StepSync {
            region,
            ranks,
            me,
            step: 0,
            n_smalls: 0,
            n_stages: 0,
            guards: [0; N_STAGES],
            wait_policy,
            steps_aside: AtomicU32::new(0),
            peer_table,
        }
    }

    pub fn n(&self) -> usize {
        self.ranks.len()
    }

    pub fn me(&self) -> usize {
        self.me
    }

    pub fn step(&self) -> u32 {
        self.step
    }

    pub fn region(&self) -> &Arc<CommRegion> {
        &self.region
    }

    /// Publishes this rank's next step, and wakes ranks that sleep on it.
    #[inline]
    pub fn advance(&mut self) {
        self.step = self.step.wrapping_add(1);
        let slot = self.region.slot(self.me);
        // A full barrier: either a sleeper sees the step, or this rank sees the sleeper.
        slot.step.swap(self.step, Ordering::SeqCst);
        if slot.sleepers.load(Ordering::SeqCst) != 0 {
            wake(&slot.step);
        }
    }

    /// Waits until `member` has reached `step`.
    #[inline]
    pub fn wait(&self, member: usize, step: u32) -> Result<(), Error> {
        self.wait_doing(member, step, || {})
    }

    /// As [`StepSync::wait`]; calls `something` before each check.
    #[inline]
    fn wait_doing(&self, member: usize, step: u32, mut something: impl FnMut()) -> Result<(), Error> {
        let slot = self.region.slot(member);
        let reached_it = || reached(slot.step.load(Ordering::Acquire), step);
        if reached_it() {
            return Ok(());
        }
        let mut ready = || {
            something();
            reached_it()
        };
        if self.wait_policy.spin(&mut ready) {
            return Ok(());
        }
        self.leave_shared_core();
        self.wait_policy.wait(&self.peer_table, self.ranks[member], ready, |nap| {
            slot.sleepers.fetch_add(1, Ordering::SeqCst);
            let seen = slot.step.load(Ordering::SeqCst);
            if !reached(seen, step) {
                sleep(&slot.step, seen, nap);
            }
            slot.sleepers.fetch_sub(1, Ordering::SeqCst);
        })
    }

    /// Moves this rank to another core when a lower rank waits on the same one: two ranks on one core wait for each other's time slices, and the
    /// kernel takes long to balance them. Does nothing where ranks outnumber cores.
    #[cold]
    fn leave_shared_core(&self) {
        if self.wait_policy.spins == 0 {
            return;
        }
        let here = rustix::thread::sched_getcpu() as u32 + 1;
        self.region.slot(self.me).processor.store(here, Ordering::Relaxed);
        let shared = (0..self.me).any(|lower| self.region.slot(lower).processor.load(Ordering::Relaxed) == here);
        if shared && self.steps_aside.fetch_add(1, Ordering::Relaxed) % 16 == 15 {
            step_aside(here as usize - 1);
        }
    }

    #[inline]
    pub fn wait_all(&self, step: u32) -> Result<(), Error> {
        (0..self.n()).filter(|member| *member != self.me).try_for_each(|member| self.wait(member, step))
    }

    pub fn wait_all_doing(&self, step: u32, mut something: impl FnMut()) -> Result<(), Error> {
        let others = (0..self.n()).filter(|member| *member != self.me);
        others.into_iter().try_for_each(|member| self.wait_doing(member, step, &mut something))
    }

    /// Whether all have reached `step`. Never blocks.
    pub fn all_reached(&self, step: u32) -> bool {
        (0..self.n()).all(|member| reached(self.region.slot(member).step.load(Ordering::Acquire), step))
    }

    /// The slot, 0 or 1, of the next small operation.
    pub fn next_small(&mut self) -> usize {
        self.n_smalls = self.n_smalls.wrapping_add(1);
        self.n_smalls as usize % 2
    }

    /// Writes the inline payload of the next step.
    ///
    /// # Safety
    /// `bytes` must be readable for `n_bytes`, at most [`INLINE_BYTES`].
    #[inline]
    pub unsafe fn write_inline(&mut self, turn: usize, bytes: *const u8, n_bytes: usize) {
        debug_assert!(n_bytes <= INLINE_BYTES);
        let payload = (&raw const self.region.slot(self.me).inline[turn]).cast_mut().cast::<u8>();
        // SAFETY: `bytes` is readable for `n_bytes` by the function's contract. The payload belongs to this rank and is written before the step is
        // published; no rank reads this slot any more, because all have reached a later step since its last use.
        unsafe { std::ptr::copy_nonoverlapping(bytes, payload, n_bytes) };
    }

    /// The inline payload of `member`, valid once its step has been waited for.
    #[inline]
    pub fn inline(&self, member: usize, turn: usize) -> *const InlinePayload {
        &raw const self.region.slot(member).inline[turn]
    }

    #[inline]
    pub fn small(&self, member: usize, turn: usize) -> *mut u8 {
        self.region.small(member, turn)
    }

    /// The next stage of this rank, once it may be written. `free_at` is the step by which all will have read it.
    pub fn next_stage(&mut self, free_at: u32) -> Result<usize, Error> {
        let turn = (self.n_stages % N_STAGES as u64) as usize;
        if self.n_stages >= N_STAGES as u64 {
            self.wait_all(self.guards[turn])?;
        }
        self.n_stages += 1;
        self.guards[turn] = free_at;
        Ok(turn)
    }

    pub fn stage(&self, member: usize, turn: usize) -> *mut u8 {
        self.region.stage(member, turn)
    }

    pub fn limit_silence(&mut self, limit: Option<Duration>) {
        self.wait_policy.limit = limit;
    }

    pub fn peer_table(&self) -> &Arc<PeerTable> {
        &self.peer_table
    }

    pub fn rank(&self, member: usize) -> usize {
        self.ranks[member]
    }

    pub const SMALL_BYTES: usize = SMALL_BYTES;
    pub const STAGE_BYTES: usize = STAGE_BYTES;
    pub const INLINE_BYTES: usize = INLINE_BYTES;
}

/// Migrates this thread off a core to any other in its affinity mask, which is left as it was.
fn step_aside(processor: usize) {
    let Ok(all) = rustix::thread::sched_getaffinity(None) else { return };
    let mut others = all;
    others.unset(processor);
    if others.count() > 0 && rustix::thread::sched_setaffinity(None, &others).is_ok() {
        let _ = rustix::thread::sched_setaffinity(None, &all);
    }
}

/// Whether a wrapping counter has reached `step`.
#[inline]
pub fn reached(counter: u32, step: u32) -> bool {
    counter.wrapping_sub(step) as i32 >= 0
}

pub fn sleep(word: &AtomicU32, seen: u32, nap: Duration) {
    let nap = futex::Timespec { tv_sec: nap.as_secs() as i64, tv_nsec: i64::from(nap.subsec_nanos()) };
    // Woken, timed out, interrupted or changed meanwhile: the caller checks again in every case.
    let _ = futex::wait(word, futex::Flags::empty(), seen, Some(&nap));
}

#[cold]
pub fn wake(word: &AtomicU32) {
    let _ = futex::wake(word, futex::Flags::empty(), i32::MAX as u32);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Peer;
    use crate::transport::shm::segment::Segment;

    fn boards(n: usize, spins: u32) -> Vec<StepSync> {
        let segment = Segment::create(n).expect("a memory file");
        let peers = (0..n).map(|rank| Peer { rank, host: "here".into() }).collect();
        let peer_table = Arc::new(PeerTable::new(peers));
        let wait_policy = WaitPolicy { spins, yields: 2, limit: None };
        let sync = |me| {
            let region = Arc::new(segment.comm_region(0).expect("an region"));
            StepSync::new(region, (0..n).collect(), me, wait_policy, peer_table.clone())
        };
        (0..n).map(sync).collect()
    }

    #[test]
    fn steps_are_counted_past_the_end_of_the_counter() {
        assert!(reached(5, 5) && reached(6, 5) && !reached(4, 5));
        assert!(reached(2, u32::MAX - 1) && !reached(u32::MAX - 1, 2));
    }

    #[test]
    fn what_was_written_before_a_step_is_read_after_it() {
        for spins in [0, 1000] {
            std::thread::scope(|scope| {
                for mut sync in boards(3, spins) {
                    scope.spawn(move || {
                        for round in 0..2_000u64 {
                            let turn = sync.next_small();
                            let value = [round * 10 + sync.me() as u64; 3];
                            // SAFETY: a local array of that size.
                            unsafe { sync.write_inline(turn, value.as_ptr().cast(), 24) };
                            sync.advance();
                            sync.wait_all(sync.step()).expect("all live");
                            for member in 0..3 {
                                // SAFETY: its step was waited for.
                                let seen = unsafe { *sync.inline(member, turn) };
                                assert_eq!(seen, [round * 10 + member as u64; 3]);
                            }
                        }
                    });
                }
            });
        }
    }

    #[test]
    fn a_wait_ends_when_the_awaited_rank_dies() {
        let boards = boards(2, 0);
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| boards[0].wait(1, 1));
            boards[0].peer_table().on_died(1);
            let error = waits.join().expect("no panic").expect_err("nobody came");
            assert_eq!(error.to_string(), "rank 1 on host here has died");
        });
    }
}
