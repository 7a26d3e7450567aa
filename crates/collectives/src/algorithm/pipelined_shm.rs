//! Large operations within a host, through stages of shared memory that fit into the caches. Works whatever the kernel allows.
//!
//! The buffer is divided into parts, one for each member. The work goes piece by piece: in round `k` everybody
//! *shows* piece `k` of the parts that others want, *folds* piece `k` of its own part out of what everybody showed, shows the
//! result, and *takes* the results of the others. A round's show is made one round ahead and its taking one round later, so that
//! nobody stands still waiting for the last to come.
//!
//! Steps of `n` rounds with both fold and take: show 0, then for each round show `k + 1` and result `k`. With only one of them:
//! show 0, show 1, ….

use std::ops::Range;

use crate::algorithm::partition::chunk_range;
use crate::algorithm::{Buffers, Collective, Reduction};
use crate::error::Error;
use crate::reduce;
use crate::transport::shm::step_sync::StepSync;

/// Scratch that is kept between operations.
#[derive(Default)]
pub struct PipelineScratch {
    sources: Vec<*const u8>,
    turns: [usize; 4],
}

/// `parts` must be the same on every member, `chunk` too: how many bytes of a stage a round uses.
///
/// # Safety
/// `src` and `dst` must hold all parts (with `Take`, `src` only the own one and with `Fold` `dst` only the own one), in whole
/// elements. They may be the same memory.
pub unsafe fn run(
    sync: &mut StepSync,
    buffers: Buffers,
    parts: &[Range<usize>],
    work: Collective,
    chunk: usize,
    lists: &mut PipelineScratch,
) -> Result<(), Error> {
    let chunk = chunk.min(StepSync::STAGE_BYTES);
    // Everybody's piece of every part must fit when parts are folded; when they are only taken, each stage holds one.
    let (slots, folds) = match work {
        Collective::Allgather => (1, false),
        Collective::ReduceScatter(_) | Collective::Allreduce(_) => (sync.n(), true),
    };
    let piece_bytes = (chunk / slots / 64 * 64).max(64);
    let longest = parts.iter().map(Range::len).max().unwrap_or(0);
    let n_rounds = longest.div_ceil(piece_bytes).max(1);
    let takes = !matches!(work, Collective::ReduceScatter(_));
    let mut pass = Pass {
        sync,
        buffers,
        parts,
        reduction: match work {
            Collective::ReduceScatter(reduction) | Collective::Allreduce(reduction) => Some(reduction),
            Collective::Allgather => None,
        },
        takes,
        slot_bytes: if folds { piece_bytes } else { 0 },
        piece_bytes,
        steps: Steps { both: folds && takes, n_rounds: n_rounds as u32, base: 0 },
        lists,
    };
    pass.steps.base = pass.sync.step();
    // SAFETY: the caller's.
    unsafe { pass.run(n_rounds) }
}

struct Pass<'a> {
    sync: &'a mut StepSync,
    buffers: Buffers,
    parts: &'a [Range<usize>],
    reduction: Option<Reduction>,
    takes: bool,
    /// Distance of the pieces in a stage.
    slot_bytes: usize,
    piece_bytes: usize,
    steps: Steps,
    lists: &'a mut PipelineScratch,
}

/// The numbers of the steps; the same on every member.
#[derive(Clone, Copy)]
struct Steps {
    both: bool,
    n_rounds: u32,
    base: u32,
}

impl Steps {
    fn show(self, k: u32) -> u32 {
        self.base.wrapping_add(match (self.both, k) {
            (true, 1..) => 2 * k,
            (_, k) => k + 1,
        })
    }

    fn result(self, k: u32) -> u32 {
        debug_assert!(self.both);
        self.base.wrapping_add(if k + 1 < self.n_rounds { 2 * k + 3 } else { 2 * k + 2 })
    }

    /// The step of a member that means it has read all that was shown for round `k`: it shows a later round only after that.
    fn free(self, k: u32) -> u32 {
        let later = k + if self.both { 3 } else { 2 };
        let total = if self.both { 2 * self.n_rounds } else { self.n_rounds };
        if later < self.n_rounds { self.show(later) } else { self.base.wrapping_add(total + 1) }
    }
}

impl Pass<'_> {
    unsafe fn run(&mut self, n_rounds: usize) -> Result<(), Error> {
        // SAFETY: the caller's, for every call here.
        unsafe {
            self.show(0)?;
            for k in 0..n_rounds {
                let last = k + 1 == n_rounds;
                if self.reduction.is_some() {
                    self.sync.wait_all(self.steps.show(k as u32))?;
                }
                if !last {
                    self.show(k + 1)?;
                }
                match self.reduction {
                    Some(reduction) => {
                        self.fold(k, reduction);
                        if self.takes {
                            self.sync.advance();
                            if k > 0 {
                                self.take(k - 1)?;
                            }
                        }
                    }
                    None => self.take(k)?,
                }
            }
            if self.reduction.is_some() && self.takes {
                self.take(n_rounds - 1)?;
            }
        }
        Ok(())
    }

    /// Puts what others want of round `k` on our stage.
    unsafe fn show(&mut self, k: usize) -> Result<(), Error> {
        let turn = self.sync.next_stage(self.steps.free(k as u32))?;
        self.lists.turns[k % 4] = turn;
        let me = self.sync.me();
        let stage = self.sync.stage(me, turn);
        for (member, part) in self.parts.iter().enumerate() {
            // Our own part stays with us when it is to be folded, and is all there is to show when it is not.
            if (member == me) == self.reduction.is_some() {
                continue;
            }
            let bytes = chunk_range(part, self.piece_bytes, k);
            // SAFETY: the buffer holds the part (the caller's); the stage is ours, and holds a piece in each slot.
            unsafe {
                let slot = stage.add(member * self.slot_bytes);
                std::ptr::copy_nonoverlapping(self.buffers.src.add(bytes.start), slot, bytes.len());
            }
        }
        self.sync.advance();
        Ok(())
    }

    /// Reduces our piece of round `k`, and leaves the result on our stage too when others take it.
    unsafe fn fold(&mut self, k: usize, reduction: Reduction) {
        let me = self.sync.me();
        let bytes = chunk_range(&self.parts[me], self.piece_bytes, k);
        if bytes.is_empty() {
            return;
        }
        let turn = self.lists.turns[k % 4];
        let offset = me * self.slot_bytes;
        let (sync, buffers, sources) = (&self.sync, self.buffers, &mut self.lists.sources);
        sources.clear();
        // SAFETY: as in `show`; the pieces of the others were waited for and stay until we make a later step.
        unsafe {
            sources.extend((0..sync.n()).map(|member| {
                if member == me {
                    buffers.src.add(bytes.start)
                } else {
                    sync.stage(member, turn).add(offset).cast_const()
                }
            }));
            let also = self.takes.then(|| sync.stage(me, turn).add(offset));
            let out = buffers.dst.add(bytes.start);
            if reduction.factor == 1.0 {
                reduce::fold_raw(reduction.dtype, reduction.combine, out, also, sources, bytes.len());
                return;
            }
            reduce::fold_raw(reduction.dtype, reduction.combine, out, None, sources, bytes.len());
            reduction.apply_factor(out, bytes.len());
            if let Some(also) = also {
                std::ptr::copy_nonoverlapping(out, also, bytes.len());
            }
        }
    }

    /// Copies the others' pieces of round `k`.
    unsafe fn take(&mut self, k: usize) -> Result<(), Error> {
        let me = self.sync.me();
        let turn = self.lists.turns[k % 4];
        let step = if self.steps.both { self.steps.result(k as u32) } else { self.steps.show(k as u32) };
        // Everybody begins with the next member, so that not all read one stage at once.
        for distance in 1..self.sync.n() {
            let member = (me + distance) % self.sync.n();
            let bytes = chunk_range(&self.parts[member], self.piece_bytes, k);
            if bytes.is_empty() {
                continue;
            }
            self.sync.wait(member, step)?;
            // SAFETY: as in `fold`.
            unsafe {
                let slot = self.sync.stage(member, turn).add(member * self.slot_bytes);
                std::ptr::copy_nonoverlapping(slot, self.buffers.dst.add(bytes.start), bytes.len());
            }
        }
        Ok(())
    }
}
