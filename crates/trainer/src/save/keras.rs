//! Keras models in HDF5 (`.h5`), as written by Keras 2 and still read by Keras 3: `keras.models.load_model` returns the
//! same network with the same weights. Files of this network written by Keras can be read, too. Any other file is
//! rejected with a reason.
//!
//! The root has the attributes `model_config` and `training_config`. The group `model_weights` lists its layers
//! (`layer_names`); each layer's group lists its weights (`weight_names`), and the datasets have those names. Keras
//! relies on these lists and their order, not on the names, so the names are those of Keras 2:
//! `model_weights/conv2d/conv2d/kernel:0`. Strings have a fixed length, since Keras 2.2 expects bytes. The additional
//! group `corro` is ignored by Keras.

use std::path::Path;

use super::hdf5_format::{KerasFile, finish, model};
use super::{ReadError, Schedule, WriteError, checkpoint_state};
use crate::network::Weights;

/// Writes a model with its learning rate schedule, so that Keras compiles it as it was trained.
pub fn write(path: &Path, weights: &Weights, schedule: Schedule) -> Result<(), WriteError> {
    let mut file = model(weights, schedule);
    file.add_group(checkpoint_state::checksum_group(&[weights]).finish());
    finish(path, file)
}

/// Reads the weights of a model or a checkpoint.
pub fn read(path: &Path) -> Result<Weights, ReadError> {
    read_verified(&KerasFile::open(path)?)
}

fn read_verified(file: &KerasFile<'_>) -> Result<Weights, ReadError> {
    let weights = file.weights()?;
    checkpoint_state::verify(file, &weights)?;
    Ok(weights)
}

#[cfg(test)]
#[path = "keras_tests.rs"]
pub(super) mod tests;
