//! The directory of checkpoints: `checkpoint-{epoch}.h5`, each a model that Keras loads too. A training that is started again goes on from
//! the last one that is whole. A checkpoint is there whole or not at all; one that cannot be written costs no older one.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::keras::{self, Opened};
use super::{Checkpoint, ReadError, WriteError, durable, state};

/// Where a training can go on.
#[derive(Debug)]
pub struct Last {
    pub checkpoint: Option<(PathBuf, Checkpoint)>,
    /// Why newer ones cannot be used, newest first.
    pub passed_over: Vec<ReadError>,
}

/// Writes one, then removes those of earlier epochs beyond the newest `keep`; `None` or zero keeps all. Removes what a crash in an earlier
/// writing left.
pub fn write(directory: &Path, checkpoint: &Checkpoint, keep: Option<usize>) -> Result<PathBuf, WriteError> {
    let path = directory.join(name(checkpoint.epoch));
    let disk = |source| WriteError::Disk { path: path.clone(), source };
    fs::create_dir_all(directory).map_err(disk)?;
    remove(
        names(directory).map_err(disk)?.into_iter().filter(|name| is_left_over(name)).map(|name| directory.join(name)),
    )?;
    let mut file = keras::model(&checkpoint.weights, checkpoint.schedule);
    state::add(&mut file, checkpoint);
    keras::finish(&path, file)?;
    if let Some(keep) = keep.filter(|keep| *keep > 0) {
        // Later epochs are of another training in the same directory: not ours to remove.
        let ours = epochs(directory).map_err(disk)?.into_iter().filter(|epoch| *epoch <= checkpoint.epoch);
        remove(ours.skip(keep).map(|epoch| directory.join(name(epoch))))?;
    }
    Ok(path)
}

/// The newest that reads well. No directory is like an empty one.
pub fn last(directory: &Path) -> Result<Last, ReadError> {
    let epochs = match epochs(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        epochs => epochs.map_err(|source| ReadError::Disk { path: directory.to_owned(), source })?,
    };
    let mut passed_over = Vec::new();
    for epoch in epochs {
        let path = directory.join(name(epoch));
        match read(&path) {
            Ok(checkpoint) => return Ok(Last { checkpoint: Some((path, checkpoint)), passed_over }),
            Err(error) => passed_over.push(error),
        }
    }
    Ok(Last { checkpoint: None, passed_over })
}

pub fn read(path: &Path) -> Result<Checkpoint, ReadError> {
    let opened = Opened::open(path)?;
    let weights = opened.weights()?;
    state::read(&opened, weights)
}

fn name(epoch: usize) -> String {
    format!("checkpoint-{epoch}.h5")
}

fn epoch_of(file_name: &str) -> Option<usize> {
    let epoch = file_name.strip_prefix("checkpoint-")?.strip_suffix(".h5")?.parse().ok()?;
    // Not `checkpoint-007.h5`: we never write that.
    (name(epoch) == file_name).then_some(epoch)
}

fn is_left_over(file_name: &str) -> bool {
    durable::final_name(file_name).is_some_and(|name| epoch_of(name).is_some())
}

/// Of the checkpoints there, the newest first.
fn epochs(directory: &Path) -> io::Result<Vec<usize>> {
    let mut epochs: Vec<usize> = names(directory)?.iter().filter_map(|name| epoch_of(name)).collect();
    epochs.sort_unstable_by(|one, other| other.cmp(one));
    Ok(epochs)
}

fn names(directory: &Path) -> io::Result<Vec<String>> {
    // What is no UTF-8 is not ours.
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
