//! Models and checkpoints on disk: Keras HDF5, safetensors, and finding the last checkpoint. Does not decide when to
//! save. Files are always written atomically.
//!
//! # Reading order
//!
//! [`keras`] reads and writes models, with the layer descriptions of `config` and the groups of `hdf5_format`. [`checkpoint`] manages the directory
//! of checkpoints, which are models with training state (`checkpoint_state`). [`safetensors_file`] is for other
//! frameworks. `atomic_write` writes files.

mod atomic_write;
pub mod checkpoint;
mod checkpoint_state;
mod config;
mod hdf5_format;
pub mod keras;
pub mod safetensors_file;

use std::io;
use std::path::{Path, PathBuf};

use crate::network::Weights;

/// State of a training after an epoch, sufficient to resume with identical results.
#[derive(Clone, Debug, PartialEq)]
pub struct Checkpoint {
    pub weights: Weights,
    /// RMSprop accumulator of each weight.
    pub accumulators: Weights,
    /// Completed steps.
    pub iterations: u64,
    /// Completed epochs.
    pub epoch: usize,
    pub seed: u64,
    pub ranks: usize,
    /// Precision of multiplications: `f32` or `bf16`.
    pub precision: String,
    pub schedule: Schedule,
    /// JSON fingerprint of the run; only the same run resumes from the checkpoint.
    pub training: String,
}

/// Learning rate schedule: `rate / (1 + decay * iterations)`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Schedule {
    pub rate: f64,
    pub decay: f64,
}

#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    #[error("cannot encode the weights for {path}")]
    Format { path: PathBuf, source: Box<dyn std::error::Error + Send + Sync> },
    #[error("cannot write {path}")]
    Disk { path: PathBuf, source: io::Error },
    #[error("cannot remove {path}, which a newer checkpoint replaces")]
    Remove { path: PathBuf, source: io::Error },
}

#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    #[error("cannot read {path}")]
    Disk { path: PathBuf, source: io::Error },
    #[error("{path} has {bytes} bytes, too many for this network: at most {MAX_FILE_BYTES} are read")]
    TooLarge { path: PathBuf, bytes: u64 },
    #[error("{path} is damaged or not a Keras model: cannot read {what}")]
    Format { path: PathBuf, what: String, source: Box<dyn std::error::Error + Send + Sync> },
    #[error("{path} contains another network than the tutorial's: {what}")]
    OtherNetwork { path: PathBuf, what: String },
    #[error("{path} has format {format}, written by a newer version: this version reads up to {FORMAT_VERSION}")]
    Newer { path: PathBuf, format: u64 },
    #[error("{path} is damaged: its checksum does not match")]
    Damaged { path: PathBuf },
    #[error("{path} is a model, not a checkpoint: it has no training state")]
    NoState { path: PathBuf },
}

/// Limit for files to read. A checkpoint of this network has ten million bytes, and Keras' own files are no larger.
const MAX_FILE_BYTES: u64 = 64 << 20;

/// Version of the group `corro`.
const FORMAT_VERSION: u64 = 1;

impl ReadError {
    fn format(path: &Path, what: &str, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> ReadError {
        ReadError::Format { path: path.to_owned(), what: what.to_owned(), source: source.into() }
    }
}
