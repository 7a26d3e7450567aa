//! Output directory of a run: checkpoints, from which it resumes after an interruption, and metrics per epoch. Only
//! rank 0 writes there.

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
    /// Creates the directory and finds the checkpoint to resume from.
    ///
    /// # Errors
    ///
    /// If the directory cannot be written (checked now, not after an epoch), and if the checkpoint belongs to another
    /// run.
    pub fn open(
        fingerprint: &RunFingerprint,
        settings: &Settings,
        options: &Options<'_>,
    ) -> Result<(RunDir, LatestCheckpoint), TrainError> {
        let dir = options.dir;
        for path in [checkpoint_dir(dir), model_dir(dir)] {
            fs::create_dir_all(&path).map_err(|cause| file_error("create the directory", &path, cause))?;
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

    /// Opens the directory of a running training on another rank. Metrics of epochs after `epoch` are dropped.
    pub fn take_over(settings: &Settings, options: &Options<'_>, epoch: usize) -> Result<RunDir, TrainError> {
        let dir = options.dir;
        for path in [checkpoint_dir(dir), model_dir(dir)] {
            fs::create_dir_all(&path).map_err(|cause| file_error("create the directory", &path, cause))?;
        }
        let metrics =
            MetricsFile::open(dir, epoch).map_err(|cause| file_error("write metrics.jsonl in", dir, cause))?;
        let Settings { checkpoint_every, keep, .. } = *settings;
        Ok(RunDir { dir: dir.to_owned(), metrics, checkpoint_every, keep })
    }

    /// Writes the metrics of an epoch, then its checkpoint if one is due. If the checkpoint gets lost, the epoch is
    /// trained again and its metrics are replaced.
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
