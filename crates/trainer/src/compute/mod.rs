//! Steps on the processors of one rank: forward, backward, scores. Fast, and equal to `network::reference` up to rounding. Entered by the
//! training and the benchmarks with weights and a batch; never changes weights, never talks to other ranks: gradients go where the
//! caller says. Ranks of one host may do a part of each other's work, in a yard.
//!
//! The same weights, batch and noise give the same bits on every run and for every number of threads, as long as instruction set and
//! precision are the same.

mod aligned;
#[cfg(target_arch = "x86_64")]
mod bf16;
mod isa;
mod parts;
mod simd;
mod single;

use std::ops::Range;
use std::sync::Arc;

use corro_collectives::optimizer::work_stealing::TaskPool;
pub use isa::Isa;

use crate::network::{Batch, Gradients, Noise, Score, Weights};
use crate::threads::Pool;

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
    pool: Arc<Pool>,
    engine: Box<dyn Engine>,
    batch: usize,
}

/// Tasks in two halves, with a moment between them, where each keeps all threads busy; otherwise the second is empty.
fn halves(tasks: usize, threads: usize) -> [Range<usize>; 2] {
    let middle = if tasks / 2 >= threads { tasks / 2 } else { tasks };
    [0..middle, middle..tasks]
}

/// One way to do a step. It gets batches of at least one image and at most as many as it was made for.
pub(crate) trait Engine: Send {
    fn step(
        &mut self,
        pool: &Pool,
        weights: &Weights,
        batch: Batch<'_>,
        noise: Option<Noise>,
        gradients: &mut dyn Gradients,
    ) -> Score;

    fn score(&mut self, pool: &Pool, weights: &Weights, batch: Batch<'_>) -> Score;

    /// What it needs of a yard; nothing when it does not use one.
    fn common_bytes(&self) -> usize {
        0
    }

    fn share(&mut self, _yard: TaskPool) {}

    fn help(&mut self, _pool: &Pool) {}

    fn helped(&self) -> u64 {
        0
    }
}

impl Compute {
    pub fn new(config: &Config) -> Result<Compute, Unsupported> {
        if !config.isa.is_here() {
            return Err(Unsupported::Isa(config.isa));
        }
        let pool = Arc::new(Pool::new(config.threads));
        let engine: Box<dyn Engine> = match config.precision {
            Precision::F32 => single::engine(config.isa, config.threads, config.batch),
            #[cfg(target_arch = "x86_64")]
            Precision::Bf16 if bf16::are_here() => Box::new(bf16::Tiled::new(config.batch, config.threads)),
            Precision::Bf16 => return Err(Unsupported::Bf16),
        };
        Ok(Compute { pool, engine, batch: config.batch })
    }

    pub fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    /// Forward and backward: the score of the batch and the mean gradients over it. Without noise nothing is dropped.
    pub fn step(
        &mut self,
        weights: &Weights,
        batch: Batch<'_>,
        noise: Option<Noise>,
        gradients: &mut dyn Gradients,
    ) -> Score {
        self.check(batch);
        self.engine.step(&self.pool, weights, batch, noise, gradients)
    }

    /// Forward only, nothing dropped.
    pub fn score(&mut self, weights: &Weights, batch: Batch<'_>) -> Score {
        self.check(batch);
        self.engine.score(&self.pool, weights, batch)
    }

    /// What a yard must have for every rank.
    pub fn common_bytes(&self) -> usize {
        self.engine.common_bytes()
    }

    /// From now on the ranks of this host help each other. All have the same room here, and the same weights in every step.
    pub fn share(&mut self, yard: TaskPool) {
        self.engine.share(yard);
    }

    /// Does what others have left to do, if there is something: after a step of this rank, before the weights change.
    pub fn help(&mut self) -> bool {
        let before = self.helped();
        self.engine.help(&self.pool);
        self.helped() > before
    }

    /// How much was done for others so far.
    pub fn helped(&self) -> u64 {
        self.engine.helped()
    }

    fn check(&self, batch: Batch<'_>) {
        let images = batch.len();
        assert!((1..=self.batch).contains(&images), "{images} images in a batch made for 1 to {}", self.batch);
        assert_eq!(batch.images.len(), images * crate::network::IMAGE, "values of {images} images");
    }
}

#[cfg(test)]
mod tests;
