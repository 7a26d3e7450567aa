//! Steps on the processors of one rank: forward, backward, scores. Fast, and equal to `network::reference` up to rounding. Entered by the
//! training and the benchmarks with weights and a batch; never changes weights, never talks to other ranks: gradients go where the
//! caller says. Ranks of one host may do a part of each other's work, in a yard.
//!
//! The same weights, batch and noise give the same bits on every run and for every number of threads, as long as instruction set and
//! precision are the same.

mod aligned;
#[cfg(target_arch = "x86_64")]
mod bf16;
mod disjoint_slice;
mod fp32;
mod isa;
mod simd;

use std::ops::Range;
use std::sync::Arc;

use corro_collectives::optimizer::work_stealing::TaskPool;
pub use isa::Isa;

use crate::network::{Batch, DropoutSeed, GradientSink, Score, Weights};
use crate::thread_pool::ThreadPool;

#[derive(Clone, Debug)]
pub struct Config {
    pub threads: usize,
    /// Images of the largest batch.
    pub batch: usize,
    pub precision: Precision,
    pub isa: Isa,
}

/// What products are made of. Sums, weights and gradients are always single precision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precision {
    F32,
    /// Products of bfloat16 on the tiles of AMX.
    Bf16,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unsupported {
    #[error("train with {0:?} instructions: this processor does not have them; leave the choice to the program")]
    Isa(Isa),
    #[error("train in bfloat16: this processor has no AMX, or the kernel does not let programs use it; train in f32")]
    Bf16,
}

/// Room and threads for the steps of one rank.
pub struct Compute {
    pool: Arc<ThreadPool>,
    engine: Box<dyn StepEngine>,
    batch: usize,
}

/// TaskQueue in two halves, with a moment between them, where each keeps all threads busy; otherwise the second is empty.
fn split_in_halves(tasks: usize, threads: usize) -> [Range<usize>; 2] {
    let middle = if tasks / 2 >= threads { tasks / 2 } else { tasks };
    [0..middle, middle..tasks]
}

/// One way to do a step. It gets batches of at least one image and at most as many as it was made for.
pub(crate) trait StepEngine: Send {
    fn step(
        &mut self,
        pool: &ThreadPool,
        weights: &Weights,
        batch: Batch<'_>,
        dropout_seed: Option<DropoutSeed>,
        gradients: &mut dyn GradientSink,
    ) -> Score;

    fn score(&mut self, pool: &ThreadPool, weights: &Weights, batch: Batch<'_>) -> Score;

    /// What it needs of a yard; nothing when it does not use one.
    fn shared_bytes(&self) -> usize {
        0
    }

    fn enable_stealing(&mut self, _yard: TaskPool) {}

    fn steal_tasks(&mut self, _pool: &ThreadPool) {}

    fn n_stolen(&self) -> u64 {
        0
    }
}

impl Compute {
    pub fn new(config: &Config) -> Result<Compute, Unsupported> {
        if !config.isa.is_supported() {
            return Err(Unsupported::Isa(config.isa));
        }
        let pool = Arc::new(ThreadPool::new(config.threads));
        let engine: Box<dyn StepEngine> = match config.precision {
            Precision::F32 => fp32::engine(config.isa, config.threads, config.batch),
            #[cfg(target_arch = "x86_64")]
            Precision::Bf16 if bf16::has_amx() => Box::new(bf16::AmxEngine::new(config.batch, config.threads)),
            Precision::Bf16 => return Err(Unsupported::Bf16),
        };
        Ok(Compute { pool, engine, batch: config.batch })
    }

    pub fn pool(&self) -> &Arc<ThreadPool> {
        &self.pool
    }

    /// Forward and backward: the score of the batch and the mean gradients over it. Without noise nothing is dropped.
    pub fn step(
        &mut self,
        weights: &Weights,
        batch: Batch<'_>,
        dropout_seed: Option<DropoutSeed>,
        gradients: &mut dyn GradientSink,
    ) -> Score {
        self.check(batch);
        self.engine.step(&self.pool, weights, batch, dropout_seed, gradients)
    }

    /// Forward only, nothing dropped.
    pub fn score(&mut self, weights: &Weights, batch: Batch<'_>) -> Score {
        self.check(batch);
        self.engine.score(&self.pool, weights, batch)
    }

    /// What a yard must have for every rank.
    pub fn shared_bytes(&self) -> usize {
        self.engine.shared_bytes()
    }

    /// From now on the ranks of this host help each other. All have the same room here, and the same weights in every step.
    pub fn enable_stealing(&mut self, yard: TaskPool) {
        self.engine.enable_stealing(yard);
    }

    /// Does what others have left to do, if there is something: after a step of this rank, before the weights change.
    pub fn steal_tasks(&mut self) -> bool {
        let before = self.n_stolen();
        self.engine.steal_tasks(&self.pool);
        self.n_stolen() > before
    }

    /// How much was done for others so far.
    pub fn n_stolen(&self) -> u64 {
        self.engine.n_stolen()
    }

    fn check(&self, batch: Batch<'_>) {
        let images = batch.len();
        assert!((1..=self.batch).contains(&images), "{images} images in a batch made for 1 to {}", self.batch);
        assert_eq!(batch.images.len(), images * crate::network::IMAGE, "values of {images} images");
    }
}

#[cfg(test)]
mod tests;
