//! What the ranks of one communicator on one host read and write together. The algorithms enter here.
//!
//! Every operation is a sequence of *steps* that is the same on every rank. A rank that has made a step says so on its line, and
//! whatever it wrote before is then seen by whoever saw the step. A rank's own memory (small slots, stages) may be
//! written again once all others have made the step that comes after their reading; a later step of a rank always means that
//! everything it read in earlier ones is read.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustix::thread::futex;

use crate::error::Error;
use crate::transport::control::peer_table::PeerTable;
use crate::transport::segment::{Area, N_STAGES, NOTE_BYTES, Note, SMALL_BYTES, STAGE_BYTES};
use crate::transport::wait_policy::WaitPolicy;

pub struct Board {
    area: Arc<Area>,
    /// Members of the communicator on this host, as ranks of the world, ascending.
    ranks: Vec<usize>,
    me: usize,
    /// Steps made by this rank. Wraps.
    step: u32,
    /// Small operations so far; they take their slots in turns.
    n_smalls: u32,
    /// Uses of the stages so far, and for each the step that all must have made before it is written again.
    n_stages: u64,
    guards: [u32; N_STAGES],
    wait_policy: WaitPolicy,
    /// How often this rank found another on its processor.
    steps_aside: AtomicU32,
    peer_table: Arc<PeerTable>,
}

impl Board {
    pub fn new(
        area: Arc<Area>,
        ranks: Vec<usize>,
        me: usize,
        wait_policy: WaitPolicy,
        peer_table: Arc<PeerTable>,
    ) -> Board {
        Board {
            area,
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

    pub fn area(&self) -> &Arc<Area> {
        &self.area
    }

    /// Says that this rank has made its next step.
    #[inline]
    pub fn post(&mut self) {
        self.step = self.step.wrapping_add(1);
        let line = self.area.line(self.me);
        // A full barrier: either a sleeper sees the step, or we see the sleeper.
        line.step.swap(self.step, Ordering::SeqCst);
        if line.sleepers.load(Ordering::SeqCst) != 0 {
            wake(&line.step);
        }
    }

    /// Until `member` has made `step`.
    #[inline]
    pub fn wait(&self, member: usize, step: u32) -> Result<(), Error> {
        self.wait_doing(member, step, || {})
    }

    /// The same; until then it does something else, again and again.
    #[inline]
    fn wait_doing(&self, member: usize, step: u32, mut something: impl FnMut()) -> Result<(), Error> {
        let line = self.area.line(member);
        let reached_it = || reached(line.step.load(Ordering::Acquire), step);
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
        self.make_room();
        self.wait_policy.wait(&self.peer_table, self.ranks[member], ready, |nap| {
            line.sleepers.fetch_add(1, Ordering::SeqCst);
            let seen = line.step.load(Ordering::SeqCst);
            if !reached(seen, step) {
                sleep(&line.step, seen, nap);
            }
            line.sleepers.fetch_sub(1, Ordering::SeqCst);
        })
    }

    /// Two ranks on one processor while others are free wait for each other's time slices, and the kernel takes long to notice: the
    /// higher of them steps aside. Not where ranks must share.
    #[cold]
    fn make_room(&self) {
        if self.wait_policy.spins == 0 {
            return;
        }
        let here = rustix::thread::sched_getcpu() as u32 + 1;
        self.area.line(self.me).processor.store(here, Ordering::Relaxed);
        let shared = (0..self.me).any(|lower| self.area.line(lower).processor.load(Ordering::Relaxed) == here);
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

    /// Whether all have made `step`, without waiting.
    pub fn have_all(&self, step: u32) -> bool {
        (0..self.n()).all(|member| reached(self.area.line(member).step.load(Ordering::Acquire), step))
    }

    /// The turn of the next small operation.
    pub fn next_small(&mut self) -> usize {
        self.n_smalls = self.n_smalls.wrapping_add(1);
        self.n_smalls as usize % 2
    }

    /// Writes the few bytes that go with the next step.
    ///
    /// # Safety
    /// `bytes` must be readable for `n_bytes`, at most [`NOTE_BYTES`].
    #[inline]
    pub unsafe fn write_note(&mut self, turn: usize, bytes: *const u8, n_bytes: usize) {
        debug_assert!(n_bytes <= NOTE_BYTES);
        let note = (&raw const self.area.line(self.me).notes[turn]).cast_mut().cast::<u8>();
        // SAFETY: the caller's for the source; the note is ours to write until the step is posted, and nobody reads this turn
        // any more: all have made a step since.
        unsafe { std::ptr::copy_nonoverlapping(bytes, note, n_bytes) };
    }

    /// What `member` wrote with a step that was waited for.
    #[inline]
    pub fn note(&self, member: usize, turn: usize) -> *const Note {
        &raw const self.area.line(member).notes[turn]
    }

    #[inline]
    pub fn small(&self, member: usize, turn: usize) -> *mut u8 {
        self.area.small(member, turn)
    }

    /// The next stage of this rank, free to be written. `free_at` is the step that will mean that everybody has read it.
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
        self.area.stage(member, turn)
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
    pub const NOTE_BYTES: usize = NOTE_BYTES;
}

/// Leaves a processor for another that this thread may use, and takes nothing from where it may run later.
fn step_aside(processor: usize) {
    let Ok(all) = rustix::thread::sched_getaffinity(None) else { return };
    let mut others = all;
    others.unset(processor);
    if others.count() > 0 && rustix::thread::sched_setaffinity(None, &others).is_ok() {
        let _ = rustix::thread::sched_setaffinity(None, &all);
    }
}

/// Whether a counter that wraps has come as far as `step`.
#[inline]
pub fn reached(counter: u32, step: u32) -> bool {
    counter.wrapping_sub(step) as i32 >= 0
}

pub fn sleep(word: &AtomicU32, seen: u32, nap: Duration) {
    let nap = futex::Timespec { tv_sec: nap.as_secs() as i64, tv_nsec: i64::from(nap.subsec_nanos()) };
    // Woken, timed out, interrupted or changed meanwhile: the caller looks again in every case.
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
    use crate::transport::segment::Segment;

    fn boards(n: usize, spins: u32) -> Vec<Board> {
        let segment = Segment::create(n).expect("a memory file");
        let peers = (0..n).map(|rank| Peer { rank, host: "here".into() }).collect();
        let peer_table = Arc::new(PeerTable::new(peers));
        let wait_policy = WaitPolicy { spins, yields: 2, limit: None };
        let board = |me| {
            let area = Arc::new(segment.area(0).expect("an area"));
            Board::new(area, (0..n).collect(), me, wait_policy, peer_table.clone())
        };
        (0..n).map(board).collect()
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
                for mut board in boards(3, spins) {
                    scope.spawn(move || {
                        for round in 0..2_000u64 {
                            let turn = board.next_small();
                            let value = [round * 10 + board.me() as u64; 3];
                            // SAFETY: a local array of that size.
                            unsafe { board.write_note(turn, value.as_ptr().cast(), 24) };
                            board.post();
                            board.wait_all(board.step()).expect("all live");
                            for member in 0..3 {
                                // SAFETY: its step was waited for.
                                let seen = unsafe { *board.note(member, turn) };
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
