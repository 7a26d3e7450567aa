//! Errors that end a training.

use std::io;
use std::path::PathBuf;

use corro_collectives::elastic::{ElasticStartError, PlaceError};
use corro_collectives::optimizer::OptimizerError;
use corro_collectives::{EngineError, StartError};

use super::settings::SettingsError;
use crate::compute::Unsupported;
use crate::data::DataError;
use crate::save::{ReadError, WriteError};

#[derive(Debug, thiserror::Error)]
pub enum TrainError {
    #[error("invalid settings")]
    Settings(#[from] SettingsError),
    #[error("cannot load the training images")]
    Data(#[from] DataError),
    #[error("cannot connect to the other ranks")]
    Start(#[from] StartError),
    #[error("cannot join the elastic training")]
    Place(#[source] PlaceError),
    #[error("cannot pin this rank to its CPUs")]
    Pin(#[source] io::Error),
    #[error("this machine cannot train with these settings")]
    Compute(#[from] Unsupported),
    #[error("the optimizer step of the ranks failed")]
    Step(#[from] OptimizerError),
    #[error("a collective operation of the ranks failed")]
    Ranks(#[source] EngineError),
    /// An operation on a file or directory of the run failed.
    #[error("cannot {attempt} {}: check permissions and free space, or choose another directory with --dir", path.display())]
    File {
        attempt: &'static str,
        path: PathBuf,
        #[source]
        cause: io::Error,
    },
    #[error("cannot read the checkpoint directory")]
    ReadCheckpoints(#[from] ReadError),
    #[error(
        "cannot save a checkpoint or the model; check free space, then start again to resume from the last checkpoint"
    )]
    WriteCheckpoint(#[from] WriteError),
    /// Continuing would mix two trainings.
    #[error(
        "{} is of another training ({differences}): resume it with its own settings, choose another directory for this one, or \
         delete its checkpoints with --fresh",
        checkpoint.display()
    )]
    OtherRun { checkpoint: PathBuf, differences: String },
    /// Only rank 0 reads and writes files; it has reported the cause.
    #[error("rank 0 could not begin; its own message says why")]
    RankZeroFailed,
    #[error("cannot write the progress of the training")]
    Out(#[from] io::Error),
}

impl TrainError {
    /// The launcher has dismissed this process, whose host is not part of the training any more. No failure.
    pub fn is_dismissal(&self) -> bool {
        matches!(self, TrainError::Place(PlaceError::Dismissed { .. }))
    }

    /// A collective operation failed, most likely because a rank has died.
    pub(super) fn is_rank_failure(&self) -> bool {
        let cause = match self {
            TrainError::Ranks(cause) => cause,
            TrainError::Step(
                OptimizerError::Reduction { cause, .. }
                | OptimizerError::Sync { cause }
                | OptimizerError::Gather { cause, .. },
            ) => cause,
            _ => return false,
        };
        matches!(cause, EngineError::Failed(_))
    }
}

impl From<ElasticStartError> for TrainError {
    fn from(error: ElasticStartError) -> TrainError {
        match error {
            ElasticStartError::Place(error) => TrainError::Place(error),
            ElasticStartError::Start(error) => TrainError::Start(error),
        }
    }
}
