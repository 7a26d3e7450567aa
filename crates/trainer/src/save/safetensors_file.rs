//! Weights as safetensors, for frameworks other than Keras. Tensor names and shapes are those of Keras:
//! `conv2d/kernel`.

use std::collections::HashMap;
use std::path::Path;

use safetensors::tensor::{Dtype, TensorView, serialize};

use super::{WriteError, atomic_write};
use crate::network::{PARAMETERS, Weights};

pub fn write(path: &Path, weights: &Weights) -> Result<(), WriteError> {
    atomic_write::write(
        path,
        &encode(weights).map_err(|error| WriteError::Format { path: path.to_owned(), source: error.into() })?,
    )
}

fn encode(weights: &Weights) -> Result<Vec<u8>, safetensors::SafeTensorError> {
    let bytes: Vec<Vec<u8>> =
        weights.0.iter().map(|values| values.iter().flat_map(|value| value.to_le_bytes()).collect()).collect();
    let views = PARAMETERS.iter().zip(&bytes).map(|(parameter, bytes)| {
        Ok((parameter.name(), TensorView::new(Dtype::F32, parameter.shape.to_vec(), bytes)?))
    });
    // Metadata that describes the layout for other frameworks.
    let notes = [
        ("network", "cifar10_cnn"),
        ("images", "NHWC, red green blue, 0 to 1"),
        ("convolution kernels", "height, width, in, out"),
        ("dense kernels", "in, out"),
    ];
    let notes: HashMap<String, String> = notes.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
    serialize(views.collect::<Result<Vec<_>, safetensors::SafeTensorError>>()?, Some(notes))
}

#[cfg(test)]
mod tests {
    use safetensors::SafeTensors;

    use super::super::keras::tests::some_weights;
    use super::*;

    #[test]
    fn weights_survive_a_round_trip() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("model.safetensors");
        let weights = some_weights(1);
        write(&path, &weights).expect("it can be written");
        let bytes = std::fs::read(&path).expect("it is there");
        let tensors = SafeTensors::deserialize(&bytes).expect("safetensors");
        assert_eq!(tensors.len(), PARAMETERS.len());
        for (parameter, values) in PARAMETERS.iter().zip(&weights.0) {
            let view = tensors.tensor(&parameter.name()).expect("a tensor of that name");
            assert_eq!((view.dtype(), view.shape()), (Dtype::F32, parameter.shape));
            let read = view.data().as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes));
            assert!(read.eq(values.iter().copied()), "{}", parameter.name());
        }
    }
}
