//! Steps of one generation: its ranks share the rest of the epoch and the following ones. Every step ends with one
//! agreed answer to whether the launcher wants another generation.

use std::io::Write;
use std::time::Instant;

use corro_collectives::Reduce;

use super::Memory;
use super::state::Position;
use super::update_watch::UpdateWatch;
use crate::data::{BatchPlan, BatchPrefetcher, EpochShare, epoch_order};
use crate::network::Score;
use crate::report::progress::Progress;
use crate::train::epochs::{Training, named_metrics};
use crate::train::{CompletedStep, Options, Settings, TrainError};

/// Why the steps of a generation ended.
pub enum StepsEnd {
    /// All epochs are done.
    Complete,
    /// Ranks are added or removed.
    Changed,
}

impl Training<'_> {
    /// Trains from `position` on, which always is that of the last completed step. Collective over all ranks; `watch` is
    /// rank 0's.
    pub(super) fn train_shared(
        &mut self,
        position: &mut Position,
        memory: &mut Memory,
        watch: Option<&UpdateWatch>,
        options: &Options<'_>,
        out: &mut dyn Write,
    ) -> Result<StepsEnd, TrainError> {
        let Settings { seed, batch, augmentation, .. } = *self.settings;
        let (rank, size) = (self.engine.rank_info().rank, self.engine.rank_info().size);
        let n_images = self.dataset.train.len();
        let share = EpochShare { rank, size, first_position: position.image };
        let plan =
            BatchPlan { seed, rank: 0, batch, augment: augmentation, first_epoch: position.epoch, share: Some(share) };
        if position.epoch >= self.epochs {
            return Ok(StepsEnd::Complete);
        }
        let mut prefetcher = BatchPrefetcher::start(self.dataset.train.clone(), plan);
        while position.epoch < self.epochs {
            writeln!(out, "Epoch {}/{}", position.epoch + 1, self.epochs)?;
            if memory.seen.0 != position.epoch {
                memory.seen = (position.epoch, Score::default());
            }
            let began = Instant::now();
            let n_steps = epoch_order::steps_per_epoch(n_images - position.image, batch * size);
            let mut progress = Progress::new(self.output, n_steps);
            for step in 1..=n_steps {
                // Sent before the pass and read after it, so that no rank waits for it.
                let asked = i32::from(watch.is_some_and(UpdateWatch::has_changed));
                let asked = self.engine.allreduce_async("another generation", vec![asked], Reduce::SUM);
                let positions = epoch_order::shared_positions(n_images, batch, position.image, rank, size);
                memory.seen.1 += self.step(&mut prefetcher, position.iterations)?;
                position.image += epoch_order::images_of_step(n_images, batch, position.image, size);
                position.iterations += 1;
                if let Some(on_step) = options.on_step {
                    on_step(&CompletedStep { iterations: position.iterations, epoch: position.epoch, positions });
                }
                if step < n_steps {
                    progress.update(out, began.elapsed(), step, &named_metrics(["loss", "acc"], memory.seen.1))?;
                }
                if self.engine.finish(asked).map_err(TrainError::Ranks)? != [0] {
                    return Ok(StepsEnd::Changed);
                }
            }
            let times = (began, began.elapsed());
            let epoch = position.epoch + 1;
            self.end_epoch(epoch, memory.seen.1, times, progress, memory.run_dir.as_mut(), out)?;
            (position.epoch, position.image) = (epoch, 0);
        }
        Ok(StepsEnd::Complete)
    }
}
