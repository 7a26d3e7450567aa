//! Epochs: steps over the training images, then a validation in which every rank scores its part of the test images.

use std::io::Write;
use std::ops::Range;
use std::time::{Duration, Instant};

use corro_collectives::{Engine, Reduce};

use super::run_dir::RunDir;
use super::run_fingerprint::RunFingerprint;
use super::{Settings, TrainError};
use crate::compute::Compute;
use crate::data::{self, BatchPlan, BatchPrefetcher, Dataset};
use crate::distributed::RankOptimizer;
use crate::network::{DropoutSeed, GradientSink, PARAMETERS, Score, Weights};
use crate::report::metrics::EpochMetrics;
use crate::report::progress::{Progress, ProgressOutput};
use crate::rmsprop::{self, RmsProp};
use crate::save::{Checkpoint, Schedule};

/// Everything that a rank needs for training.
pub struct Training<'a> {
    pub engine: &'a Engine,
    pub settings: &'a Settings,
    pub fingerprint: RunFingerprint,
    pub dataset: Dataset,
    pub compute: Compute,
    pub optimizer: RankOptimizer<'a>,
    pub weights: Weights,
    /// Learning rate, scaled by the number of ranks.
    pub rate: f32,
    /// Epochs per rank.
    pub epochs: usize,
    pub output: ProgressOutput,
}

impl Training<'_> {
    /// Trains the epochs after `first`; `iterations` is the number of steps done before.
    pub fn train(
        &mut self,
        first: usize,
        mut iterations: u64,
        mut run_dir: Option<RunDir>,
        out: &mut dyn Write,
    ) -> Result<(), TrainError> {
        if first >= self.epochs {
            return Ok(());
        }
        let Settings { seed, batch, augmentation, .. } = *self.settings;
        let plan = BatchPlan {
            seed,
            rank: self.engine.rank_info().rank,
            batch,
            augment: augmentation,
            first_epoch: first,
            share: None,
        };
        let mut prefetcher = BatchPrefetcher::start(self.dataset.train.clone(), plan);
        for epoch in first + 1..=self.epochs {
            writeln!(out, "Epoch {epoch}/{}", self.epochs)?;
            let began = Instant::now();
            let mut progress = Progress::new(self.output, prefetcher.steps_per_epoch());
            let mut seen = Score::default();
            for step in 1..=prefetcher.steps_per_epoch() {
                seen += self.step(&mut prefetcher, iterations)?;
                iterations += 1;
                if step < prefetcher.steps_per_epoch() {
                    progress.update(out, began.elapsed(), step, &named_metrics(["loss", "acc"], seen))?;
                }
            }
            let times = (began, began.elapsed());
            self.end_epoch(epoch, seen, times, progress, run_dir.as_mut(), out)?;
        }
        Ok(())
    }

    /// One batch of this rank, then one step of all ranks.
    pub(super) fn step(&mut self, prefetcher: &mut BatchPrefetcher, iterations: u64) -> Result<Score, TrainError> {
        let first = (self.engine.rank_info().rank * self.settings.batch) as u64;
        let dropout_seed = DropoutSeed { seed: self.settings.seed, step: iterations, first };
        let dropout_seed = self.settings.dropout.then_some(dropout_seed);
        let prefetched = prefetcher.next();
        let mut sender = self.optimizer.gradient_sender();
        let score = match prefetched.batch() {
            batch if batch.is_empty() => send_zeros(&mut sender),
            batch => self.compute.step(&self.weights, batch, dropout_seed, &mut sender),
        };
        sender.end()?;
        self.optimizer.step(&mut self.weights, &mut self.compute)?;
        Ok(score)
    }

    /// Validates after an epoch and writes its metrics and checkpoint. Collective over all ranks. `seen`: this rank's
    /// score of the training images; `epoch` counts from 1.
    pub(super) fn end_epoch(
        &mut self,
        epoch: usize,
        seen: Score,
        (began, trained): (Instant, Duration),
        progress: Progress,
        run_dir: Option<&mut RunDir>,
        out: &mut dyn Write,
    ) -> Result<(), TrainError> {
        let part = self.score_own_images();
        let [all, test] = self.allreduce_scores([seen, part])?;
        self.optimizer.gather(RmsProp::accumulators_mut).map_err(TrainError::Ranks)?;
        let took = began.elapsed();
        let metrics = [named_metrics(["loss", "acc"], seen), named_metrics(["val_loss", "val_acc"], test)].concat();
        progress.finish(out, took, &metrics)?;
        let Some(run_dir) = run_dir else { return Ok(()) };
        let ended = EpochMetrics {
            epoch,
            epochs: self.epochs,
            loss: mean_loss(all),
            acc: accuracy(all),
            val_loss: mean_loss(test),
            val_acc: accuracy(test),
            seconds: took.as_secs_f64(),
            images_per_second: all.images as f64 / trained.as_secs_f64(),
            rate: self.rate.into(),
            ranks: self.engine.rank_info().size,
            time: EpochMetrics::now(),
        };
        run_dir.on_epoch(&ended, || self.checkpoint(epoch))
    }

    /// Scores all test images, each on one rank. Collective over all ranks.
    pub fn validate(&mut self) -> Result<Score, TrainError> {
        let part = self.score_own_images();
        Ok(self.allreduce_scores([part])?[0])
    }

    fn score_own_images(&mut self) -> Score {
        let place = self.engine.rank_info();
        let (mut score, mut buffer) = (Score::default(), Vec::new());
        let mut remaining = rank_range(self.dataset.test.labels.len(), place.rank, place.size);
        while !remaining.is_empty() {
            let end = remaining.end.min(remaining.start + self.settings.batch);
            let batch = data::unaugmented_batch(&self.dataset.test, remaining.start..end, &mut buffer);
            score += self.compute.score(&self.weights, batch);
            remaining.start = end;
        }
        score
    }

    /// Sums scores over all ranks. Collective over all ranks.
    fn allreduce_scores<const N: usize>(&self, scores: [Score; N]) -> Result<[Score; N], TrainError> {
        let mut sums = scores.map(|score| [score.loss, score.correct as f64, score.images as f64]);
        let flat = sums.as_flattened_mut();
        self.engine.allreduce("scores", flat, Reduce::SUM).map_err(TrainError::Ranks)?;
        Ok(sums.map(|[loss, correct, images]| Score { loss, correct: correct as usize, images: images as usize }))
    }

    fn checkpoint(&mut self, epoch: usize) -> Checkpoint {
        let rmsprop::State { accumulators, iterations } = self.optimizer.inner().state().clone();
        Checkpoint {
            weights: self.weights.clone(),
            accumulators,
            iterations,
            epoch,
            seed: self.settings.seed,
            ranks: self.engine.rank_info().size,
            precision: self.settings.precision.to_string(),
            schedule: self.schedule(),
            training: self.fingerprint.to_json(),
        }
    }

    pub fn schedule(&self) -> Schedule {
        Schedule { rate: self.rate.into(), decay: self.settings.decay.into() }
    }
}

/// Gradients of a rank without images in the last step of an epoch.
fn send_zeros(sender: &mut impl GradientSink) -> Score {
    for parameter in (0..PARAMETERS.len()).rev() {
        sender.buffer(parameter).fill(0.0);
        sender.ready(parameter);
    }
    Score::default()
}

/// A rank's range of `images` images.
fn rank_range(images: usize, rank: usize, size: usize) -> Range<usize> {
    images * rank / size..images * (rank + 1) / size
}

pub(super) fn named_metrics(names: [&'static str; 2], score: Score) -> [(&'static str, f64); 2] {
    [(names[0], mean_loss(score)), (names[1], accuracy(score))]
}

pub fn mean_loss(score: Score) -> f64 {
    score.loss / score.images.max(1) as f64
}

pub fn accuracy(score: Score) -> f64 {
    score.correct as f64 / score.images.max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_test_image_belongs_to_one_rank() {
        for (images, size) in [(10, 4), (3, 4), (0, 2), (10_000, 7)] {
            let all: Vec<usize> = (0..size).flat_map(|rank| rank_range(images, rank, size)).collect();
            assert_eq!(all, (0..images).collect::<Vec<_>>());
        }
    }
}
