//! Models and checkpoints on the disk: Keras' HDF5 form, safetensors, and resuming from the last checkpoint. Entered by `train` on rank 0
//! after each epoch and at the end, and on every start. Decides nothing about when to save; never leaves half a file under a final name.
//!
//! # Reading order
//!
//! [`keras`] writes and reads a model as Keras does, with what [`config`] says of its layers. [`checkpoint`] is a model with all that
//! a training needs to go on ([`state`]), and the directory of them. [`tensors`] is for everybody else. [`atomic_write`] puts bytes on the disk.

mod atomic_write;
pub mod checkpoint;
mod checkpoint_state;
mod config;
pub mod keras;
pub mod safetensors_file;

use std::io;
use std::path::{Path, PathBuf};

use crate::network::Weights;

/// A training after an epoch: enough to go on as if it had never stopped.
#[derive(Clone, Debug, PartialEq)]
pub struct Checkpoint {
    pub weights: Weights,
    /// What RMSprop remembers of each weight.
    pub accumulators: Weights,
    /// Steps done, each on all ranks together.
    pub iterations: u64,
    /// Epochs finished.
    pub epoch: usize,
    pub seed: u64,
    pub ranks: usize,
    /// What products are made of: `f32` or `bf16`.
    pub precision: String,
    pub schedule: Schedule,
    /// Which training it is of, in the words of `train`, which goes on with no other.
    pub training: String,
}

/// The learning rate: after so many steps, `rate / (1 + decay * iterations)`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Schedule {
    pub rate: f64,
    pub decay: f64,
}

#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    #[error("cannot put the weights for {path} into the form of the file")]
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
    #[error("{path} is damaged or no Keras model: cannot read {what}")]
    Format { path: PathBuf, what: String, source: Box<dyn std::error::Error + Send + Sync> },
    #[error("{path} holds another network than the tutorial's: {what}")]
    OtherNetwork { path: PathBuf, what: String },
    #[error("{path} is of format {format}, which a newer version wrote: this one reads up to {FORMAT_VERSION}")]
    Newer { path: PathBuf, format: u64 },
    #[error("{path} is damaged: its values are not those that were written")]
    Damaged { path: PathBuf },
    #[error("{path} is a model, not a checkpoint: it does not say how far its training was")]
    NoState { path: PathBuf },
}

/// A checkpoint has ten million; Keras' own files of this network not more.
const MAX_FILE_BYTES: u64 = 64 << 20;

/// Of what is in the group `corro` beside what Keras knows.
const FORMAT_VERSION: u64 = 1;

impl ReadError {
    fn format(path: &Path, what: &str, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> ReadError {
        ReadError::Format { path: path.to_owned(), what: what.to_owned(), source: source.into() }
    }
}
