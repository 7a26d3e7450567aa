//! Reference layers: forward from one image's input to its output, backward from the output gradient to those of the
//! input and the parameters. Knows nothing of batches or losses.

use crate::network::{DROPOUTS, DropoutSeed};

/// A layer; sizes are per image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layer {
    /// A 3x3 convolution of a square image, padded with `padding` rows and columns of zeros on each side.
    Convolution {
        weights: LinearLayer,
        side: usize,
        padding: usize,
    },
    Relu,
    /// 2x2 max pooling by channel. An odd last row or column is ignored.
    Pooling {
        side: usize,
        channels: usize,
    },
    /// Index in [`DROPOUTS`].
    Dropout(usize),
    Dense(LinearLayer),
}

/// The linear part of convolutions and dense layers: `inputs` values (of a pixel, or of the image) become `outputs`
/// values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinearLayer {
    /// Index of the kernel parameter; the bias is the next.
    pub kernel: usize,
    pub inputs: usize,
    pub outputs: usize,
}

const fn weighted(kernel: usize, inputs: usize, outputs: usize) -> LinearLayer {
    LinearLayer { kernel, inputs, outputs }
}

/// From the image to the logits.
pub const LAYERS: [Layer; 16] = [
    Layer::Convolution { weights: weighted(0, 3, 32), side: 32, padding: 1 },
    Layer::Relu,
    Layer::Convolution { weights: weighted(2, 32, 32), side: 32, padding: 0 },
    Layer::Relu,
    Layer::Pooling { side: 30, channels: 32 },
    Layer::Dropout(0),
    Layer::Convolution { weights: weighted(4, 32, 64), side: 15, padding: 1 },
    Layer::Relu,
    Layer::Convolution { weights: weighted(6, 64, 64), side: 15, padding: 0 },
    Layer::Relu,
    Layer::Pooling { side: 13, channels: 64 },
    Layer::Dropout(1),
    Layer::Dense(weighted(8, 2304, 512)),
    Layer::Relu,
    Layer::Dropout(2),
    Layer::Dense(weighted(10, 512, 10)),
];

impl Layer {
    /// `dropout_seed`: the seed of this step, and the image's index in its batch.
    pub fn forward(
        &self,
        parameters: &[Vec<f64>],
        input: &[f64],
        dropout_seed: Option<(DropoutSeed, usize)>,
    ) -> Vec<f64> {
        match *self {
            Layer::Convolution { weights, side, padding } => {
                weights.forward(parameters, input, &convolution(side, padding))
            }
            Layer::Relu => input.iter().map(|value| value.max(0.0)).collect(),
            Layer::Pooling { side, channels } => {
                pooling(input, side, channels).into_iter().map(|largest| input[largest]).collect()
            }
            Layer::Dropout(dropout) => input
                .iter()
                .enumerate()
                .map(|(index, value)| value * dropout_factor(dropout, index, dropout_seed))
                .collect(),
            Layer::Dense(weights) => weights.forward(parameters, input, &[DENSE]),
        }
    }

    /// Adds the gradients of the layer's parameters to `sums` and returns the gradient of its input, given the input
    /// and the gradient of the output.
    pub fn backward(
        &self,
        parameters: &[Vec<f64>],
        input: &[f64],
        gradient: &[f64],
        dropout_seed: Option<(DropoutSeed, usize)>,
        sums: &mut [Vec<f64>],
    ) -> Vec<f64> {
        match *self {
            Layer::Convolution { weights, side, padding } => {
                weights.backward(parameters, input, gradient, &convolution(side, padding), sums)
            }
            Layer::Relu => {
                input.iter().zip(gradient).map(|(value, gradient)| if *value > 0.0 { *gradient } else { 0.0 }).collect()
            }
            Layer::Pooling { side, channels } => {
                let mut back = vec![0.0; input.len()];
                for (largest, gradient) in pooling(input, side, channels).into_iter().zip(gradient) {
                    back[largest] += gradient;
                }
                back
            }
            Layer::Dropout(dropout) => gradient
                .iter()
                .enumerate()
                .map(|(index, value)| value * dropout_factor(dropout, index, dropout_seed))
                .collect(),
            Layer::Dense(weights) => weights.backward(parameters, input, gradient, &[DENSE], sums),
        }
    }
}

/// A tap of the kernel over a pixel of the image, which contributes to one window (a pixel of the output).
struct TapHit {
    tap: usize,
    pixel: usize,
    window: usize,
}

/// A dense layer: the whole image is one pixel.
const DENSE: TapHit = TapHit { tap: 0, pixel: 0, window: 0 };

/// All tap hits of a 3x3 kernel. Taps over padding contribute nothing and are omitted.
fn convolution(side: usize, padding: usize) -> Vec<TapHit> {
    let windows = side + 2 * padding - 2;
    let mut hits = Vec::new();
    for (window_y, window_x) in grid(windows) {
        for (tap_y, tap_x) in grid(3) {
            let (y, x) = (window_y + tap_y, window_x + tap_x);
            if (padding..side + padding).contains(&y) && (padding..side + padding).contains(&x) {
                hits.push(TapHit {
                    tap: tap_y * 3 + tap_x,
                    pixel: (y - padding) * side + x - padding,
                    window: window_y * windows + window_x,
                });
            }
        }
    }
    hits
}

impl LinearLayer {
    fn forward(&self, parameters: &[Vec<f64>], input: &[f64], hits: &[TapHit]) -> Vec<f64> {
        let (kernel, bias) = (&parameters[self.kernel], &parameters[self.kernel + 1]);
        let windows = hits.iter().map(|hit| hit.window + 1).max().expect("a kernel hits its image");
        let mut output = bias.repeat(windows);
        for hit in hits {
            let output = &mut output[hit.window * self.outputs..][..self.outputs];
            for channel in 0..self.inputs {
                let value = input[hit.pixel * self.inputs + channel];
                let row = &kernel[(hit.tap * self.inputs + channel) * self.outputs..][..self.outputs];
                output.iter_mut().zip(row).for_each(|(output, weight)| *output += value * weight);
            }
        }
        output
    }

    fn backward(
        &self,
        parameters: &[Vec<f64>],
        input: &[f64],
        gradient: &[f64],
        hits: &[TapHit],
        sums: &mut [Vec<f64>],
    ) -> Vec<f64> {
        let kernel = &parameters[self.kernel];
        let mut back = vec![0.0; input.len()];
        for hit in hits {
            let gradient = &gradient[hit.window * self.outputs..][..self.outputs];
            for channel in 0..self.inputs {
                let value = hit.pixel * self.inputs + channel;
                let row = (hit.tap * self.inputs + channel) * self.outputs;
                let (weights, sums) = (&kernel[row..][..self.outputs], &mut sums[self.kernel][row..][..self.outputs]);
                back[value] += weights.iter().zip(gradient).map(|(weight, gradient)| weight * gradient).sum::<f64>();
                sums.iter_mut().zip(gradient).for_each(|(sum, gradient)| *sum += input[value] * gradient);
            }
        }
        for gradient in gradient.chunks_exact(self.outputs) {
            sums[self.kernel + 1].iter_mut().zip(gradient).for_each(|(sum, gradient)| *sum += gradient);
        }
        back
    }
}

/// For every output the index of the largest input; the first of equal ones.
fn pooling(input: &[f64], side: usize, channels: usize) -> Vec<usize> {
    let mut all = Vec::new();
    for (window_y, window_x) in grid(side / 2) {
        for channel in 0..channels {
            let inputs = grid(2).map(|(y, x)| ((2 * window_y + y) * side + 2 * window_x + x) * channels + channel);
            let first = |largest, index| if input[index] > input[largest] { index } else { largest };
            all.push(inputs.reduce(first).expect("four of them"));
        }
    }
    all
}

/// Factor of a value: 0 if it is dropped.
fn dropout_factor(dropout: usize, value: usize, dropout_seed: Option<(DropoutSeed, usize)>) -> f64 {
    match dropout_seed {
        None => 1.0,
        Some((dropout_seed, image)) if dropout_seed.drops(image, dropout, value) => 0.0,
        Some(_) => f64::from(DROPOUTS[dropout].scale()),
    }
}

/// Rows and columns of a square.
fn grid(side: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..side).flat_map(move |y| (0..side).map(move |x| (y, x)))
}
