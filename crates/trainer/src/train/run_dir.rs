//! What rank 0 keeps of a training in its directory: checkpoints, from which it goes on after an interruption, and how each epoch went.
//! Nobody else writes there.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::run_fingerprint::RunFingerprint;
use super::{Options, Settings, TrainError};
use crate::report::metrics::{EpochMetrics, MetricsFile};
use crate::save::Checkpoint;
use crate::save::checkpoint::{self, LatestCheckpoint};

pub struct RunDir {
    dir: PathBuf,
    metrics: MetricsFile,
    checkpoint_every: usize,
    keep: usize,
}

pub fn checkpoint_dir(dir: &Path) -> PathBuf {
    dir.join("checkpoints")
}

pub fn model_dir(dir: &Path) -> PathBuf {
    dir.join("saved_models")
}

impl RunDir {
    /// Makes the directory ready, and finds the checkpoint to go on from.
    ///
    /// # Errors
    /// When the directory cannot be written, now rather than after an epoch, and when the checkpoint is of another training.
    pub fn open(
        fingerprint: &RunFingerprint,
        settings: &Settings,
        options: &Options<'_>,
    ) -> Result<(RunDir, LatestCheckpoint), TrainError> {
        let dir = options.dir;
        for path in [checkpoint_dir(dir), model_dir(dir)] {
            fs::create_dir_all(&path).map_err(|cause| file_error("make the directory", &path, cause))?;
        }
        if options.fresh {
            delete_checkpoints(&checkpoint_dir(dir))
                .map_err(|cause| file_error("delete the checkpoints in", dir, cause))?;
        }
        let latest = checkpoint::find_latest(&checkpoint_dir(dir))?;
        let mut epoch = 0;
        if let Some((path, checkpoint)) = &latest.checkpoint {
            epoch = checkpoint.epoch;
            if let Some(differences) = fingerprint.differences(&checkpoint.training) {
                return Err(TrainError::OtherRun { checkpoint: path.clone(), differences });
            }
        }
        let metrics =
            MetricsFile::open(dir, epoch).map_err(|cause| file_error("write metrics.jsonl in", dir, cause))?;
        let Settings { checkpoint_every, keep, .. } = *settings;
        Ok((RunDir { dir: dir.to_owned(), metrics, checkpoint_every, keep }, latest))
    }

    /// An epoch has ended. Its figures are written first: those of an epoch whose checkpoint is missing come again.
    pub fn on_epoch(&mut self, epoch: &EpochMetrics, state: impl FnOnce() -> Checkpoint) -> Result<(), TrainError> {
        self.metrics.append(epoch).map_err(|cause| file_error("write metrics.jsonl in", &self.dir, cause))?;
        if epoch.epoch.is_multiple_of(self.checkpoint_every) || epoch.epoch == epoch.epochs {
            checkpoint::write(&checkpoint_dir(&self.dir), &state(), Some(self.keep))?;
        }
        Ok(())
    }
}

/// Deletes all checkpoints.
fn delete_checkpoints(directory: &Path) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let name = entry.file_name();
        if name.to_str().is_some_and(|name| name.starts_with("checkpoint-") && name.ends_with(".h5")) {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

fn file_error(attempt: &'static str, path: &Path, cause: io::Error) -> TrainError {
    TrainError::File { attempt, path: path.to_owned(), cause }
}
