//! The network of the tutorial's script, `cifar10_cnn`, as Keras builds it: layers, parameters, inputs and outputs of a
//! step. The fast implementation is in `compute`.
//!
//! Two blocks of two 3x3 convolutions (the first with padding `same`, the second `valid`), each with ReLU, followed by
//! 2x2 max pooling and dropout of 0.25. Then 512 dense units with ReLU and dropout of 0.5, then ten units with softmax.
//! Images are NHWC; kernels are `[height][width][in][out]`, dense kernels `[in][out]`, as in Keras.
//!
//! | layer | output | parameters |
//! | --- | --- | --- |
//! | conv2d, same | 32 x 32 x 32 | 896 |
//! | conv2d_1, valid | 30 x 30 x 32 | 9,248 |
//! | pooling, dropout 0.25 | 15 x 15 x 32 | |
//! | conv2d_2, same | 15 x 15 x 64 | 18,496 |
//! | conv2d_3, valid | 13 x 13 x 64 | 36,928 |
//! | pooling, dropout 0.25 | 6 x 6 x 64 | |
//! | dense, dropout 0.5 | 512 | 1,180,160 |
//! | dense_1, softmax | 10 | 5,130 |

mod dropout_mask;
pub mod glorot_init;
pub mod reference;
mod weights;

pub use dropout_mask::{DROPOUTS, Dropout, DropoutSeed};
pub use weights::Weights;

pub const SIDE: usize = 32;
pub const CHANNELS: usize = 3;
pub const CLASSES: usize = 10;
/// Values per image.
pub const IMAGE: usize = SIDE * SIDE * CHANNELS;

/// A trainable tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameter {
    pub layer: &'static str,
    /// `kernel` or `bias`.
    pub kind: &'static str,
    pub shape: &'static [usize],
}

impl Parameter {
    pub const fn size(&self) -> usize {
        let (mut size, mut index) = (1, 0);
        while index < self.shape.len() {
            size *= self.shape[index];
            index += 1;
        }
        size
    }

    /// Tensor name in collective operations.
    pub fn name(&self) -> String {
        format!("{}/{}", self.layer, self.kind)
    }
}

const fn kernel(layer: &'static str, shape: &'static [usize]) -> Parameter {
    Parameter { layer, kind: "kernel", shape }
}

const fn bias(layer: &'static str, shape: &'static [usize]) -> Parameter {
    Parameter { layer, kind: "bias", shape }
}

/// In Keras' order: from the input to the output, kernels before biases.
pub const PARAMETERS: [Parameter; 12] = [
    kernel("conv2d", &[3, 3, 3, 32]),
    bias("conv2d", &[32]),
    kernel("conv2d_1", &[3, 3, 32, 32]),
    bias("conv2d_1", &[32]),
    kernel("conv2d_2", &[3, 3, 32, 64]),
    bias("conv2d_2", &[64]),
    kernel("conv2d_3", &[3, 3, 64, 64]),
    bias("conv2d_3", &[64]),
    kernel("dense", &[2304, 512]),
    bias("dense", &[512]),
    kernel("dense_1", &[512, 10]),
    bias("dense_1", &[10]),
];

/// Input of a step or a validation: `IMAGE` values per image, scaled to 0..=1, and one label per image.
#[derive(Clone, Copy, Debug)]
pub struct Batch<'a> {
    pub images: &'a [f32],
    pub labels: &'a [u8],
}

impl Batch<'_> {
    pub fn len(&self) -> usize {
        self.labels.len()
    }

    pub fn is_empty(&self) -> bool {
        self.labels.is_empty()
    }
}

/// Loss and accuracy on some images.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Score {
    /// Sum of the cross entropy over the images.
    pub loss: f64,
    /// Number of images whose label got the highest probability.
    pub correct: usize,
    pub images: usize,
}

impl std::ops::AddAssign for Score {
    fn add_assign(&mut self, other: Score) {
        self.loss += other.loss;
        self.correct += other.correct;
        self.images += other.images;
    }
}

/// Destination of the mean gradients of a backward pass. The pass requests the buffer of each parameter once,
/// overwrites all of it, and then calls `ready`, last layers first.
pub trait GradientSink {
    /// Gradient buffer of the parameter with this index in [`PARAMETERS`].
    fn buffer(&mut self, parameter: usize) -> &mut [f32];
    fn ready(&mut self, parameter: usize);
    /// Point in the pass at which no kernel runs. The pass will not read parameters again whose gradients are ready, so
    /// they may be updated here.
    fn yield_point(&mut self) {}
}

/// Gradients are stored locally and sent nowhere.
impl GradientSink for Weights {
    fn buffer(&mut self, parameter: usize) -> &mut [f32] {
        &mut self.0[parameter]
    }

    fn ready(&mut self, _parameter: usize) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parameter_count_is_that_of_keras() {
        assert_eq!(PARAMETERS.iter().map(Parameter::size).sum::<usize>(), 1_250_858);
    }
}
