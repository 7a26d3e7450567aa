//! Start state of a training: rank 0 loads the last checkpoint or initialises the weights, and broadcasts the result.

use std::error::Error;
use std::io::Write;
use std::path::Path;

use corro_collectives::optimizer::broadcast_parameters;
use corro_collectives::{Engine, SetId};

use super::run_dir::{RunDir, checkpoint_dir};
use super::run_fingerprint::RunFingerprint;
use super::{Options, Settings, TrainError};
use crate::network::Weights;
use crate::network::glorot_init::glorot_uniform;
use crate::save::checkpoint::LatestCheckpoint;
use crate::save::{Checkpoint, ReadError};

pub struct StartState {
    pub weights: Weights,
    /// RMSprop accumulators, and the number of completed steps.
    pub accumulators: Weights,
    pub iterations: u64,
    /// Completed epochs.
    pub epoch: usize,
    /// Only on rank 0.
    pub run_dir: Option<RunDir>,
    /// Checkpoints that could not be read.
    pub skipped: Vec<ReadError>,
}

impl StartState {
    /// Loads the start state. Collective over all ranks. If rank 0 fails, all fail.
    pub fn load(
        engine: &Engine,
        fingerprint: &RunFingerprint,
        settings: &Settings,
        options: &Options<'_>,
    ) -> Result<StartState, TrainError> {
        let found = (engine.rank_info().rank == 0).then(|| load_on_rank_zero(fingerprint, settings, options));
        let mut head = match &found {
            Some(Ok(found)) => [1, found.iterations as i64, found.epoch as i64],
            Some(Err(_)) | None => [0; 3],
        };
        engine.broadcast("beginning", &mut head, 0, SetId::GLOBAL).map_err(TrainError::Ranks)?;
        let mut start_state = match found {
            Some(found) => found?,
            None if head[0] == 0 => return Err(TrainError::RankZeroFailed),
            None => StartState {
                weights: Weights::zeros(),
                accumulators: Weights::zeros(),
                iterations: head[1] as u64,
                epoch: head[2] as usize,
                run_dir: None,
                skipped: Vec::new(),
            },
        };
        broadcast_parameters(engine, &mut start_state.weights.slices_mut(), 0).map_err(TrainError::Ranks)?;
        if start_state.epoch > 0 {
            broadcast_parameters(engine, &mut start_state.accumulators.slices_mut(), 0).map_err(TrainError::Ranks)?;
        }
        Ok(start_state)
    }

    /// Prints skipped checkpoints and the epoch from which the training resumes.
    pub fn report(&self, dir: &Path, epochs: usize, out: &mut dyn Write) -> Result<(), TrainError> {
        for error in &self.skipped {
            let cause = error.source().map(|cause| format!(": {cause}")).unwrap_or_default();
            writeln!(out, "Skipping a checkpoint: {error}{cause}")?;
        }
        if self.epoch == 0 {
            return Ok(());
        }
        let from = checkpoint_dir(dir).join(format!("checkpoint-{}.h5", self.epoch));
        writeln!(out, "Resuming from {} after epoch {} of {epochs}", from.display(), self.epoch)?;
        if self.epoch >= epochs {
            writeln!(
                out,
                "This training is finished; only the test score is computed again. Use --fresh to start over."
            )?;
        }
        Ok(out.flush()?)
    }
}

/// The last checkpoint, or initial weights.
fn load_on_rank_zero(
    fingerprint: &RunFingerprint,
    settings: &Settings,
    options: &Options<'_>,
) -> Result<StartState, TrainError> {
    let (run_dir, LatestCheckpoint { checkpoint, skipped }) = RunDir::open(fingerprint, settings, options)?;
    let run_dir = Some(run_dir);
    Ok(match checkpoint {
        Some((_, Checkpoint { weights, accumulators, iterations, epoch, .. })) => {
            StartState { weights, accumulators, iterations, epoch, run_dir, skipped }
        }
        None => {
            let (weights, accumulators) = (glorot_uniform(settings.seed), Weights::zeros());
            StartState { weights, accumulators, iterations: 0, epoch: 0, run_dir, skipped }
        }
    })
}
