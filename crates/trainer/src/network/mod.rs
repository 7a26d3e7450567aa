//! What is trained: the network of the tutorial's script, `cifar10_cnn`, as Keras builds it. Its layers and parameters, what goes into a
//! step and what comes out. Decides nothing about how fast: that is `compute`.
//!
//! Two blocks of two 3x3 convolutions (the first with padding `same`, the second `valid`), each with ReLU, then a 2x2 maximum and
//! dropout of a quarter; then 512 dense units with ReLU and dropout of a half, then ten with softmax. Images are rows of pixels of
//! three channels (NHWC); kernels are `[height][width][in][out]`, dense ones `[in][out]`, as Keras keeps them.
//!
//! | layer | out | parameters |
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
/// Values of one image.
pub const IMAGE: usize = SIDE * SIDE * CHANNELS;

/// One tensor that is learned.
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

    /// As the ranks call it among themselves.
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

/// In Keras' order: from the images to the classes, kernels before biases.
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

/// What a step or a validation looks at: `IMAGE` values an image, scaled to 0..=1, and as many labels as images.
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

/// How the network did on some images.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Score {
    /// The sum over images of the cross entropy.
    pub loss: f64,
    /// Images whose class got the highest probability.
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

/// Where a backward pass leaves the mean gradients over its batch: it asks for the room of each parameter once, overwrites all of it,
/// and says so as soon as it has, the last layers first.
pub trait GradientSink {
    /// Of the parameter with that index in [`PARAMETERS`].
    fn buffer(&mut self, parameter: usize) -> &mut [f32];
    fn ready(&mut self, parameter: usize);
    /// A moment in which the pass has nothing in its hands: it will not look again at the values of parameters whose gradients are ready.
    fn yield_point(&mut self) {}
}

/// Gradients that stay where they are.
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
    fn there_are_as_many_parameters_as_keras_counts() {
        assert_eq!(PARAMETERS.iter().map(Parameter::size).sum::<usize>(), 1_250_858);
    }
}
