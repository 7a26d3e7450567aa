//! Directory of checkpoints: `checkpoint-{epoch}.h5`, each of which is also a Keras model. A restarted training resumes
//! from the last valid one. Checkpoints are written atomically, and a failed write removes no older one.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::hdf5_format::{self, KerasFile};
use super::{Checkpoint, ReadError, WriteError, atomic_write, checkpoint_state};

/// The checkpoint from which a training can resume.
#[derive(Debug)]
pub struct LatestCheckpoint {
    pub checkpoint: Option<(PathBuf, Checkpoint)>,
    /// Why newer checkpoints cannot be used, newest first.
    pub skipped: Vec<ReadError>,
}

/// Writes a checkpoint, then removes those of earlier epochs except for the newest `keep`; `None` or zero keeps all.
/// Also removes partial files left by a crash.
pub fn write(directory: &Path, checkpoint: &Checkpoint, keep: Option<usize>) -> Result<PathBuf, WriteError> {
    let path = directory.join(file_name(checkpoint.epoch));
    let disk = |source| WriteError::Disk { path: path.clone(), source };
    fs::create_dir_all(directory).map_err(disk)?;
    remove(
        file_names(directory)
            .map_err(disk)?
            .into_iter()
            .filter(|name| is_partial_file(name))
            .map(|name| directory.join(name)),
    )?;
    let mut file = hdf5_format::model(&checkpoint.weights, checkpoint.schedule);
    checkpoint_state::add_state(&mut file, checkpoint);
    hdf5_format::finish(&path, file)?;
    if let Some(keep) = keep.filter(|keep| *keep > 0) {
        // Later epochs belong to another training in the same directory and are not removed.
        let ours = epochs(directory).map_err(disk)?.into_iter().filter(|epoch| *epoch <= checkpoint.epoch);
        remove(ours.skip(keep).map(|epoch| directory.join(file_name(epoch))))?;
    }
    Ok(path)
}

/// The newest valid checkpoint. A missing directory is treated as empty.
pub fn find_latest(directory: &Path) -> Result<LatestCheckpoint, ReadError> {
    let epochs = match epochs(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        epochs => epochs.map_err(|source| ReadError::Disk { path: directory.to_owned(), source })?,
    };
    let mut skipped = Vec::new();
    for epoch in epochs {
        let path = directory.join(file_name(epoch));
        match read(&path) {
            Ok(checkpoint) => return Ok(LatestCheckpoint { checkpoint: Some((path, checkpoint)), skipped }),
            Err(error) => skipped.push(error),
        }
    }
    Ok(LatestCheckpoint { checkpoint: None, skipped })
}

pub fn read(path: &Path) -> Result<Checkpoint, ReadError> {
    let file = KerasFile::open(path)?;
    let weights = file.weights()?;
    checkpoint_state::read(&file, weights)
}

fn file_name(epoch: usize) -> String {
    format!("checkpoint-{epoch}.h5")
}

fn parse_epoch(name: &str) -> Option<usize> {
    let epoch = name.strip_prefix("checkpoint-")?.strip_suffix(".h5")?.parse().ok()?;
    // `checkpoint-007.h5` was not written by this program.
    (file_name(epoch) == name).then_some(epoch)
}

fn is_partial_file(name: &str) -> bool {
    atomic_write::final_name(name).is_some_and(|name| parse_epoch(name).is_some())
}

/// Epochs of the existing checkpoints, newest first.
fn epochs(directory: &Path) -> io::Result<Vec<usize>> {
    let mut epochs: Vec<usize> = file_names(directory)?.iter().filter_map(|name| parse_epoch(name)).collect();
    epochs.sort_unstable_by(|one, other| other.cmp(one));
    Ok(epochs)
}

fn file_names(directory: &Path) -> io::Result<Vec<String>> {
    // Names that are not UTF-8 were not written by this program.
    fs::read_dir(directory)?
        .filter_map(|entry| entry.map(|entry| entry.file_name().into_string().ok()).transpose())
        .collect()
}

fn remove(paths: impl Iterator<Item = PathBuf>) -> Result<(), WriteError> {
    for path in paths {
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(WriteError::Remove { path, source: error });
            }
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
#[path = "checkpoint_tests.rs"]
mod tests;
