//! Epochs: steps over the training images, then a validation in which every rank looks at its part of the test images.

use std::io::Write;
use std::ops::Range;
use std::time::Instant;

use corro_collectives::{Engine, Reduce};

use super::identity::Identity;
use super::keeper::Keeper;
use super::{Settings, TrainError};
use crate::compute::Compute;
use crate::data::{self, Dataset, Feed, Plan};
use crate::network::{Noise, Score, Weights};
use crate::report::metrics::Epoch;
use crate::report::progress::{Paper, Progress};
use crate::rmsprop::{self, RmsProp};
use crate::save::{Checkpoint, Schedule};
use crate::wrapped::Wrapped;

/// Everything a rank trains with.
pub struct Training<'a> {
    pub engine: &'a Engine,
    pub settings: &'a Settings,
    pub identity: Identity,
    pub dataset: Dataset,
    pub compute: Compute,
    pub optimizer: Wrapped<'a>,
    pub weights: Weights,
    /// Of all ranks together.
    pub rate: f32,
    /// Of each rank.
    pub epochs: usize,
    pub paper: Paper,
}

impl Training<'_> {
    /// The epochs after `first`, after which `iterations` steps have been taken.
    pub fn train(
        &mut self,
        first: usize,
        mut iterations: u64,
        mut keeper: Option<Keeper>,
        out: &mut dyn Write,
    ) -> Result<(), TrainError> {
        if first >= self.epochs {
            return Ok(());
        }
        let Settings { seed, batch, augmentation, .. } = *self.settings;
        let plan = Plan { seed, rank: self.engine.rank_info().rank, batch, augment: augmentation, first_epoch: first };
        let mut feed = Feed::start(self.dataset.train.clone(), plan);
        for epoch in first + 1..=self.epochs {
            writeln!(out, "Epoch {epoch}/{}", self.epochs)?;
            let began = Instant::now();
            let mut progress = Progress::new(self.paper, feed.steps_per_epoch());
            let mut seen = Score::default();
            for step in 1..=feed.steps_per_epoch() {
                seen += self.step(&mut feed, iterations)?;
                iterations += 1;
                if step < feed.steps_per_epoch() {
                    progress.update(out, began.elapsed(), step, &figures(["loss", "acc"], seen))?;
                }
            }
            let trained = began.elapsed();
            let part = self.score_part();
            let [all, test] = self.together([seen, part])?;
            self.optimizer.gather(RmsProp::accumulators_mut).map_err(TrainError::Ranks)?;
            let took = began.elapsed();
            let shown = [figures(["loss", "acc"], seen), figures(["val_loss", "val_acc"], test)].concat();
            progress.finish(out, took, &shown)?;
            if let Some(keeper) = &mut keeper {
                let ended = Epoch {
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
                    time: Epoch::now(),
                };
                keeper.on_epoch(&ended, || self.checkpoint(epoch))?;
            }
        }
        Ok(())
    }

    /// One batch of this rank, one step of all.
    fn step(&mut self, feed: &mut Feed, iterations: u64) -> Result<Score, TrainError> {
        let first = (self.engine.rank_info().rank * self.settings.batch) as u64;
        let noise = Noise { seed: self.settings.seed, step: iterations, first };
        let noise = self.settings.dropout.then_some(noise);
        let fed = feed.next();
        let mut sending = self.optimizer.sending();
        let score = self.compute.step(&self.weights, fed.batch(), noise, &mut sending);
        sending.end()?;
        self.optimizer.step(&mut self.weights, &mut self.compute)?;
        Ok(score)
    }

    /// The network on all test images, each of which one rank has looked at. Collective over all ranks.
    pub fn validate(&mut self) -> Result<Score, TrainError> {
        let part = self.score_part();
        Ok(self.together([part])?[0])
    }

    fn score_part(&mut self) -> Score {
        let place = self.engine.rank_info();
        let (mut score, mut room) = (Score::default(), Vec::new());
        let mut left = part(self.dataset.test.labels.len(), place.rank, place.size);
        while !left.is_empty() {
            let end = left.end.min(left.start + self.settings.batch);
            let batch = data::whole(&self.dataset.test, left.start..end, &mut room);
            score += self.compute.score(&self.weights, batch);
            left.start = end;
        }
        score
    }

    /// The sums over all ranks. Collective over all ranks.
    fn together<const N: usize>(&self, scores: [Score; N]) -> Result<[Score; N], TrainError> {
        let mut sums = scores.map(|score| [score.loss, score.right as f64, score.images as f64]);
        let flat = sums.as_flattened_mut();
        self.engine.allreduce("scores", flat, Reduce::SUM).map_err(TrainError::Ranks)?;
        Ok(sums.map(|[loss, right, images]| Score { loss, right: right as usize, images: images as usize }))
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
            training: self.identity.text(),
        }
    }

    pub fn schedule(&self) -> Schedule {
        Schedule { rate: self.rate.into(), decay: self.settings.decay.into() }
    }
}

/// A rank's part of some images.
fn part(images: usize, rank: usize, size: usize) -> Range<usize> {
    images * rank / size..images * (rank + 1) / size
}

fn figures(names: [&'static str; 2], score: Score) -> [(&'static str, f64); 2] {
    [(names[0], mean_loss(score)), (names[1], accuracy(score))]
}

pub fn mean_loss(score: Score) -> f64 {
    score.loss / score.images.max(1) as f64
}

pub fn accuracy(score: Score) -> f64 {
    score.right as f64 / score.images.max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_test_image_is_one_ranks() {
        for (images, size) in [(10, 4), (3, 4), (0, 2), (10_000, 7)] {
            let all: Vec<usize> = (0..size).flat_map(|rank| part(images, rank, size)).collect();
            assert_eq!(all, (0..images).collect::<Vec<_>>());
        }
    }
}
