//! End of a training, as in the script: the model is saved and scored.

use std::io::Write;
use std::path::Path;
use std::time::Instant;

use corro_collectives::SetId;

use super::epochs::{Training, accuracy, mean_loss};
use super::run_dir::model_dir;
use super::{TrainError, TrainingResult};
use crate::report::progress::Progress;
use crate::save;

/// File name used by the script.
const MODEL_NAME: &str = "keras_cifar10_trained_model";

/// Saves and scores the model. Collective over all ranks; rank 0 writes the files.
pub fn save_and_score(
    training: &mut Training<'_>,
    dir: &Path,
    out: &mut dyn Write,
) -> Result<TrainingResult, TrainError> {
    let model = model_dir(dir).join(MODEL_NAME).with_extension("h5");
    if training.engine.rank_info().rank == 0 {
        save::keras::write(&model, &training.weights, training.schedule())?;
        save::safetensors_file::write(&model.with_extension("safetensors"), &training.weights)?;
    }
    // After the barrier the message is true on all ranks.
    training.engine.barrier(SetId::GLOBAL).map_err(TrainError::Ranks)?;
    writeln!(out, "Saved trained model at {} ", model.display())?;
    let began = Instant::now();
    let test = training.validate()?;
    Progress::new(training.output, test.images).finish(out, began.elapsed(), &[])?;
    writeln!(out, "Test loss: {}", mean_loss(test))?;
    writeln!(out, "Test accuracy: {}", accuracy(test))?;
    out.flush()?;
    Ok(TrainingResult { model, test })
}
