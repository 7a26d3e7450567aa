//! Pipelined collectives of large buffers within a host, through stages of shared memory that fit into the caches. Needs no kernel support.
//!
//! The buffer is divided into parts, one for each member, and processed in rounds of one chunk per part. In round `k` every rank
//! *publishes* chunk `k` of the parts of the others in its stage, *reduces* chunk `k` of its own part from the stages of all, publishes the
//! result, and *copies* the results of the others. A round is published one round ahead and copied one round later, so that
//! no rank waits for the slowest one in every round.
//!
//! Step numbers of an allreduce with `n` rounds: publish 0, then for each round publish `k + 1` and result `k`. A reduce-scatter or allgather has
//! publish 0, publish 1, ….

use std::ops::Range;

use crate::algorithm::partition::chunk_range;
use crate::algorithm::{Buffers, Collective, Reduction};
use crate::error::Error;
use crate::reduce;
use crate::transport::shm::step_sync::StepSync;

/// Buffers that are reused by all operations.
#[derive(Default)]
pub struct PipelineScratch {
    sources: Vec<*const u8>,
    /// Stage of each of the last four rounds.
    turns: [usize; 4],
}

/// Runs a collective. `parts` and `chunk`, the bytes of a stage that a round uses, must be equal on every member.
///
/// # Safety
/// `src` must be readable and `dst` writable for all parts, which are whole elements; for an allgather `src` only for the own part, for a
/// reduce-scatter `dst` only for the own part. They are equal or do not overlap.
pub unsafe fn run(
    sync: &mut StepSync,
    buffers: Buffers,
    parts: &[Range<usize>],
    collective: Collective,
    chunk: usize,
    scratch: &mut PipelineScratch,
) -> Result<(), Error> {
    let chunk = chunk.min(StepSync::STAGE_BYTES);
    // A stage holds one chunk for every member in a reduction, and one chunk in an allgather.
    let (slots, reduces) = match collective {
        Collective::Allgather => (1, false),
        Collective::ReduceScatter(_) | Collective::Allreduce(_) => (sync.n(), true),
    };
    let chunk_bytes = (chunk / slots / 64 * 64).max(64);
    let longest = parts.iter().map(Range::len).max().unwrap_or(0);
    let n_rounds = longest.div_ceil(chunk_bytes).max(1);
    let copies = !matches!(collective, Collective::ReduceScatter(_));
    let mut run = PipelineRun {
        sync,
        buffers,
        parts,
        reduction: match collective {
            Collective::ReduceScatter(reduction) | Collective::Allreduce(reduction) => Some(reduction),
            Collective::Allgather => None,
        },
        copies,
        slot_bytes: if reduces { chunk_bytes } else { 0 },
        chunk_bytes,
        steps: Steps { is_allreduce: reduces && copies, n_rounds: n_rounds as u32, base: 0 },
        scratch,
    };
    run.steps.base = run.sync.step();
    // SAFETY: `buffers` are valid by the function's contract.
    unsafe { run.run(n_rounds) }
}

struct PipelineRun<'a> {
    sync: &'a mut StepSync,
    buffers: Buffers,
    parts: &'a [Range<usize>],
    reduction: Option<Reduction>,
    /// Whether results of the others are copied.
    copies: bool,
    /// Distance of the chunks in a stage.
    slot_bytes: usize,
    chunk_bytes: usize,
    steps: Steps,
    scratch: &'a mut PipelineScratch,
}

/// Step numbers of an operation; equal on every member.
#[derive(Clone, Copy)]
struct Steps {
    is_allreduce: bool,
    n_rounds: u32,
    base: u32,
}

impl Steps {
    /// The step by which a member has published round `k`.
    fn published(self, k: u32) -> u32 {
        self.base.wrapping_add(match (self.is_allreduce, k) {
            (true, 1..) => 2 * k,
            (_, k) => k + 1,
        })
    }

    /// The step by which a member has published its result of round `k`.
    fn reduced(self, k: u32) -> u32 {
        debug_assert!(self.is_allreduce);
        self.base.wrapping_add(if k + 1 < self.n_rounds { 2 * k + 3 } else { 2 * k + 2 })
    }

    /// The step by which a member has read everything that was published for round `k`, because it publishes a later round only after that.
    fn consumed(self, k: u32) -> u32 {
        let later = k + if self.is_allreduce { 3 } else { 2 };
        let total = if self.is_allreduce { 2 * self.n_rounds } else { self.n_rounds };
        if later < self.n_rounds { self.published(later) } else { self.base.wrapping_add(total + 1) }
    }
}

impl PipelineRun<'_> {
    /// Runs all rounds.
    ///
    /// # Safety
    /// `buffers` must be valid as [`run`] requires.
    unsafe fn run(&mut self, n_rounds: usize) -> Result<(), Error> {
        // SAFETY: `buffers` are valid by the function's contract; rounds are published, reduced and copied in the order that the steps require.
        unsafe {
            self.publish(0)?;
            for k in 0..n_rounds {
                let last = k + 1 == n_rounds;
                if self.reduction.is_some() {
                    self.sync.wait_all(self.steps.published(k as u32))?;
                }
                if !last {
                    self.publish(k + 1)?;
                }
                match self.reduction {
                    Some(reduction) => {
                        self.reduce_own_part(k, reduction);
                        if self.copies {
                            self.sync.advance();
                            if k > 0 {
                                self.copy_results(k - 1)?;
                            }
                        }
                    }
                    None => self.copy_results(k)?,
                }
            }
            if self.reduction.is_some() && self.copies {
                self.copy_results(n_rounds - 1)?;
            }
        }
        Ok(())
    }

    /// Copies this rank's input chunks of round `k` into its stage.
    ///
    /// # Safety
    /// `src` must be readable for the parts that are published.
    unsafe fn publish(&mut self, k: usize) -> Result<(), Error> {
        let turn = self.sync.next_stage(self.steps.consumed(k as u32))?;
        self.scratch.turns[k % 4] = turn;
        let me = self.sync.me();
        let stage = self.sync.stage(me, turn);
        for (member, part) in self.parts.iter().enumerate() {
            // A reduction publishes the parts of the others, an allgather only the own part.
            if (member == me) == self.reduction.is_some() {
                continue;
            }
            let bytes = chunk_range(part, self.chunk_bytes, k);
            // SAFETY: `src` is readable for the part by the function's contract; the stage is this rank's own, and every slot holds a chunk.
            unsafe {
                let slot = stage.add(member * self.slot_bytes);
                std::ptr::copy_nonoverlapping(self.buffers.src.add(bytes.start), slot, bytes.len());
            }
        }
        self.sync.advance();
        Ok(())
    }

    /// Reduces this rank's chunk of round `k`, and also writes the result to its stage if others copy it.
    ///
    /// # Safety
    /// `src` and `dst` must be valid for the own part; all members must have published round `k`.
    unsafe fn reduce_own_part(&mut self, k: usize, reduction: Reduction) {
        let me = self.sync.me();
        let bytes = chunk_range(&self.parts[me], self.chunk_bytes, k);
        if bytes.is_empty() {
            return;
        }
        let turn = self.scratch.turns[k % 4];
        let offset = me * self.slot_bytes;
        let (sync, buffers, sources) = (&self.sync, self.buffers, &mut self.scratch.sources);
        sources.clear();
        // SAFETY: `src` and `dst` are valid for the own part; the chunks of the others are published, and stay until this rank makes a later step.
        unsafe {
            sources.extend((0..sync.n()).map(|member| {
                if member == me {
                    buffers.src.add(bytes.start)
                } else {
                    sync.stage(member, turn).add(offset).cast_const()
                }
            }));
            let also = self.copies.then(|| sync.stage(me, turn).add(offset));
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

    /// Copies the chunks of round `k` from the stages of the others.
    ///
    /// # Safety
    /// `dst` must be writable for all parts.
    unsafe fn copy_results(&mut self, k: usize) -> Result<(), Error> {
        let me = self.sync.me();
        let turn = self.scratch.turns[k % 4];
        let step = if self.steps.is_allreduce { self.steps.reduced(k as u32) } else { self.steps.published(k as u32) };
        // Every rank begins with the next member, so that not all read the same stage at once.
        for distance in 1..self.sync.n() {
            let member = (me + distance) % self.sync.n();
            let bytes = chunk_range(&self.parts[member], self.chunk_bytes, k);
            if bytes.is_empty() {
                continue;
            }
            self.sync.wait(member, step)?;
            // SAFETY: `dst` is writable for the part; the member's chunk was waited for, and stays until this rank makes a later step.
            unsafe {
                let slot = self.sync.stage(member, turn).add(member * self.slot_bytes);
                std::ptr::copy_nonoverlapping(slot, self.buffers.dst.add(bytes.start), bytes.len());
            }
        }
        Ok(())
    }
}
