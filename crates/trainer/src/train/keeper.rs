//! What rank 0 keeps of a training in its directory: checkpoints, from which it goes on after an interruption, and how each epoch went.
//! Nobody else writes there.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::identity::Identity;
use super::{Options, Settings, TrainError};
use crate::report::metrics::{Epoch, Metrics};
use crate::save::Checkpoint;
use crate::save::checkpoint::{self, Last};

pub struct Keeper {
    dir: PathBuf,
    metrics: Metrics,
    checkpoint_every: usize,
    keep: usize,
}

pub fn checkpoints(dir: &Path) -> PathBuf {
    dir.join("checkpoints")
}

pub fn saved_models(dir: &Path) -> PathBuf {
    dir.join("saved_models")
}

impl Keeper {
    /// Makes the directory ready, and finds the checkpoint to go on from.
    ///
    /// # Errors
    /// When the directory cannot be written, now rather than after an epoch, and when the checkpoint is of another training.
    pub fn open(identity: &Identity, settings: &Settings, options: &Options<'_>) -> Result<(Keeper, Last), TrainError> {
        let dir = options.dir;
        for path in [checkpoints(dir), saved_models(dir)] {
            fs::create_dir_all(&path).map_err(|cause| failed("make the directory", &path, cause))?;
        }
        if options.fresh {
            forget(&checkpoints(dir)).map_err(|cause| failed("delete the checkpoints in", dir, cause))?;
        }
        let last = checkpoint::last(&checkpoints(dir))?;
        let mut epoch = 0;
        if let Some((path, checkpoint)) = &last.checkpoint {
            epoch = checkpoint.epoch;
            if let Some(differences) = identity.differences(&checkpoint.training) {
                return Err(TrainError::Another { checkpoint: path.clone(), differences });
            }
        }
        let metrics = Metrics::open(dir, epoch).map_err(|cause| failed("write metrics.jsonl in", dir, cause))?;
        let Settings { checkpoint_every, keep, .. } = *settings;
        Ok((Keeper { dir: dir.to_owned(), metrics, checkpoint_every, keep }, last))
    }

    /// An epoch has ended. Its figures are written first: those of an epoch whose checkpoint is missing come again.
    pub fn on_epoch(&mut self, epoch: &Epoch, state: impl FnOnce() -> Checkpoint) -> Result<(), TrainError> {
        self.metrics.append(epoch).map_err(|cause| failed("write metrics.jsonl in", &self.dir, cause))?;
        if epoch.epoch.is_multiple_of(self.checkpoint_every) || epoch.epoch == epoch.epochs {
            checkpoint::write(&checkpoints(&self.dir), &state(), Some(self.keep))?;
        }
        Ok(())
    }
}

/// Deletes all checkpoints.
fn forget(directory: &Path) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let name = entry.file_name();
        if name.to_str().is_some_and(|name| name.starts_with("checkpoint-") && name.ends_with(".h5")) {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

fn failed(attempt: &'static str, path: &Path, cause: io::Error) -> TrainError {
    TrainError::File { attempt, path: path.to_owned(), cause }
}
