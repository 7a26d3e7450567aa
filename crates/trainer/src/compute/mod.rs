//! Executes training steps on the CPUs of one rank: forward pass, backward pass, scores. Results equal
//! `network::reference` up to rounding. Never changes weights and never communicates: gradients are written to the
//! caller's [`GradientSink`]. Ranks of one host may steal tasks of each other's backward pass through shared memory.
//!
//! For a given instruction set and precision, the same weights, batch and dropout seed give bit-identical results on
//! every run and for every number of threads.

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
    /// Number of images of the largest batch.
    pub batch: usize,
    pub precision: Precision,
    pub isa: Isa,
}

/// Precision of multiplications. Sums, weights and gradients are always single precision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precision {
    F32,
    /// bfloat16 products on AMX tiles.
    Bf16,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unsupported {
    #[error("this CPU does not support {0:?} instructions; do not select an instruction set to use the best one")]
    Isa(Isa),
    #[error("bf16 needs AMX, which this CPU does not have or the kernel does not permit; use f32")]
    Bf16,
}

/// Buffers and threads for the steps of one rank.
pub struct Compute {
    pool: Arc<ThreadPool>,
    engine: Box<dyn StepEngine>,
    batch: usize,
}

/// Splits tasks into two halves with a yield point in between, if each half keeps all threads busy. Otherwise the
/// second half is empty.
fn split_in_halves(tasks: usize, threads: usize) -> [Range<usize>; 2] {
    let middle = if tasks / 2 >= threads { tasks / 2 } else { tasks };
    [0..middle, middle..tasks]
}

/// Implementation of a step for one precision. Batches have at least one image and at most as many as the engine was
/// created for.
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

    /// Bytes of shared memory that work stealing needs; 0 if the engine does not support it.
    fn shared_bytes(&self) -> usize {
        0
    }

    fn enable_stealing(&mut self, _task_pool: TaskPool) {}

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

    /// Forward and backward pass: returns the score of the batch and writes the mean gradients over it. Without a seed
    /// there is no dropout.
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

    /// Forward pass only, without dropout.
    pub fn score(&mut self, weights: &Weights, batch: Batch<'_>) -> Score {
        self.check(batch);
        self.engine.score(&self.pool, weights, batch)
    }

    /// Bytes of shared memory that work stealing needs per rank.
    pub fn shared_bytes(&self) -> usize {
        self.engine.shared_bytes()
    }

    /// Enables work stealing between the ranks of this host. All of them must be configured for the same batch size and
    /// have the same weights in every step.
    pub fn enable_stealing(&mut self, task_pool: TaskPool) {
        self.engine.enable_stealing(task_pool);
    }

    /// Executes tasks of other ranks, if there are any; returns whether there were. To be called after this rank's own
    /// pass and before the weights change.
    pub fn steal_tasks(&mut self) -> bool {
        let before = self.n_stolen();
        self.engine.steal_tasks(&self.pool);
        self.n_stolen() > before
    }

    /// Number of tasks executed for other ranks so far.
    pub fn n_stolen(&self) -> u64 {
        self.engine.n_stolen()
    }

    fn check(&self, batch: Batch<'_>) {
        let images = batch.len();
        assert!((1..=self.batch).contains(&images), "{images} images in a batch that must have 1 to {}", self.batch);
        assert_eq!(batch.images.len(), images * crate::network::IMAGE, "values of {images} images");
    }
}

#[cfg(test)]
mod tests;
