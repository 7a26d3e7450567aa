//! Where a training begins, or goes on: rank 0 looks into the directory, and all ranks get what it found.

use std::error::Error;
use std::io::Write;
use std::path::Path;

use corro_collectives::optimizer::broadcast_parameters;
use corro_collectives::{Engine, SetId};

use super::identity::Identity;
use super::keeper::{Keeper, checkpoints};
use super::{Options, Settings, TrainError};
use crate::network::Weights;
use crate::network::initial::initial;
use crate::save::checkpoint::Last;
use crate::save::{Checkpoint, ReadError};

pub struct Beginning {
    pub weights: Weights,
    /// The optimizer's memory, and the steps it has taken.
    pub accumulators: Weights,
    pub iterations: u64,
    /// Epochs that are done.
    pub epoch: usize,
    /// Rank 0 alone keeps anything.
    pub keeper: Option<Keeper>,
    /// Checkpoints that it cannot use.
    pub passed_over: Vec<ReadError>,
}

impl Beginning {
    /// Collective over all ranks. When rank 0 cannot begin, none does.
    pub fn find(
        engine: &Engine,
        identity: &Identity,
        settings: &Settings,
        options: &Options<'_>,
    ) -> Result<Beginning, TrainError> {
        let found = (engine.rank_info().rank == 0).then(|| look(identity, settings, options));
        let mut head = match &found {
            Some(Ok(found)) => [1, found.iterations as i64, found.epoch as i64],
            Some(Err(_)) | None => [0; 3],
        };
        engine.broadcast("beginning", &mut head, 0, SetId::GLOBAL).map_err(TrainError::Ranks)?;
        let mut beginning = match found {
            Some(found) => found?,
            None if head[0] == 0 => return Err(TrainError::First),
            None => Beginning {
                weights: Weights::zeros(),
                accumulators: Weights::zeros(),
                iterations: head[1] as u64,
                epoch: head[2] as usize,
                keeper: None,
                passed_over: Vec::new(),
            },
        };
        broadcast_parameters(engine, &mut beginning.weights.parts_mut(), 0).map_err(TrainError::Ranks)?;
        if beginning.epoch > 0 {
            broadcast_parameters(engine, &mut beginning.accumulators.parts_mut(), 0).map_err(TrainError::Ranks)?;
        }
        Ok(beginning)
    }

    /// What a person should know who starts it a second time.
    pub fn tell(&self, dir: &Path, epochs: usize, out: &mut dyn Write) -> Result<(), TrainError> {
        for error in &self.passed_over {
            let cause = error.source().map(|cause| format!(": {cause}")).unwrap_or_default();
            writeln!(out, "Passing over a checkpoint: {error}{cause}")?;
        }
        if self.epoch == 0 {
            return Ok(());
        }
        let from = checkpoints(dir).join(format!("checkpoint-{}.h5", self.epoch));
        writeln!(out, "Resuming from {} after epoch {} of {epochs}", from.display(), self.epoch)?;
        if self.epoch >= epochs {
            writeln!(out, "This training is finished; it is only scored again. Begin anew with --fresh.")?;
        }
        Ok(out.flush()?)
    }
}

/// What rank 0 finds: the last checkpoint, or weights as Keras draws them.
fn look(identity: &Identity, settings: &Settings, options: &Options<'_>) -> Result<Beginning, TrainError> {
    let (keeper, Last { checkpoint, passed_over }) = Keeper::open(identity, settings, options)?;
    let keeper = Some(keeper);
    Ok(match checkpoint {
        Some((_, Checkpoint { weights, accumulators, iterations, epoch, .. })) => {
            Beginning { weights, accumulators, iterations, epoch, keeper, passed_over }
        }
        None => {
            let (weights, accumulators) = (initial(settings.seed), Weights::zeros());
            Beginning { weights, accumulators, iterations: 0, epoch: 0, keeper, passed_over }
        }
    })
}
