//! Why a training did not come to its end.

use std::io;
use std::path::PathBuf;

use corro_collectives::optimizer::OptimizerError;
use corro_collectives::{EngineError, StartError};

use super::settings::SettingsError;
use crate::compute::Unsupported;
use crate::data::DataError;
use crate::save::{ReadError, WriteError};

#[derive(Debug, thiserror::Error)]
pub enum TrainError {
    #[error("a setting of the training cannot be used")]
    Settings(#[from] SettingsError),
    #[error("the images cannot be had")]
    Data(#[from] DataError),
    #[error("this rank did not find the others")]
    Start(#[from] StartError),
    #[error("this rank could not be bound to its processors")]
    Pin(#[source] io::Error),
    #[error("this machine cannot train as asked")]
    Compute(#[from] Unsupported),
    #[error("the ranks could not take a step together")]
    Step(#[from] OptimizerError),
    #[error("the ranks lost each other")]
    Ranks(#[source] EngineError),
    /// Of a file or a directory of the training.
    #[error("cannot {attempt} {}: see that it can be written and has room, or give another directory with --dir", path.display())]
    File {
        attempt: &'static str,
        path: PathBuf,
        #[source]
        cause: io::Error,
    },
    #[error("the checkpoints cannot be looked through")]
    ReadCheckpoints(#[from] ReadError),
    #[error(
        "a checkpoint or the model cannot be kept: see that there is room, then start again to go on from the last checkpoint"
    )]
    WriteCheckpoint(#[from] WriteError),
    /// Going on would be neither the one training nor the other.
    #[error(
        "{} is of another training ({differences}): use its settings to go on with it, another directory for this one, or --fresh to \
         delete it and begin anew",
        checkpoint.display()
    )]
    OtherRun { checkpoint: PathBuf, differences: String },
    /// It alone reads and writes files, and has said why.
    #[error("rank 0 could not begin; its own message says why")]
    RankZeroFailed,
    #[error("cannot write how the training goes")]
    Out(#[from] io::Error),
}
