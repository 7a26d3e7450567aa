//! The output layer (512 to 10), softmax and loss, all in single precision: it is too small for AMX to pay off.

use std::arch::x86_64::*;

use super::dense::OUTPUTS;
use crate::network::{CLASSES, Weights};

/// Number of classes rounded up to a vector.
pub const LANES: usize = 16;

/// The kernel in both layouts.
pub struct OutputLayer {
    by_input: Vec<[f32; LANES]>,
    by_class: Vec<[f32; OUTPUTS]>,
    bias: [f32; LANES],
}

/// Loss of one image.
#[derive(Clone, Copy, Default)]
pub struct ImageLoss {
    pub loss: f32,
    pub is_correct: bool,
    /// Gradient of the mean loss with respect to the logits.
    pub gradient: [f32; LANES],
}

impl OutputLayer {
    pub fn new() -> OutputLayer {
        OutputLayer {
            by_input: vec![[0.0; LANES]; OUTPUTS],
            by_class: vec![[0.0; OUTPUTS]; CLASSES],
            bias: [0.0; LANES],
        }
    }

    pub fn pack(&mut self, weights: &Weights) {
        for (input, row) in weights.0[10].as_chunks::<CLASSES>().0.iter().enumerate() {
            self.by_input[input][..CLASSES].copy_from_slice(row);
            for (class, value) in row.iter().enumerate() {
                self.by_class[class][input] = *value;
            }
        }
        self.bias[..CLASSES].copy_from_slice(&weights.0[11]);
    }

    #[target_feature(enable = "avx512f")]
    pub fn forward(&self, inputs: &[f32; OUTPUTS], label: u8, share: f32) -> ImageLoss {
        // Four independent sums hide the latency of the additions.
        let mut sums = [[0.0f32; LANES]; 4];
        for (inputs, rows) in inputs.as_chunks::<4>().0.iter().zip(self.by_input.as_chunks::<4>().0) {
            for part in 0..4 {
                for lane in 0..LANES {
                    sums[part][lane] = inputs[part].mul_add(rows[part][lane], sums[part][lane]);
                }
            }
        }
        let mut logits = self.bias;
        for lane in 0..LANES {
            logits[lane] += (sums[0][lane] + sums[1][lane]) + (sums[2][lane] + sums[3][lane]);
        }
        loss(&logits, usize::from(label), share)
    }

    /// Gradients with respect to the dense layer's outputs before ReLU. They are zero where the output was zero or
    /// dropped.
    #[target_feature(enable = "avx512f")]
    pub fn backward(&self, loss: &ImageLoss, outputs: &[f32; OUTPUTS], scale: f32, gradients: &mut [f32; OUTPUTS]) {
        *gradients = [0.0; OUTPUTS];
        for (class, row) in self.by_class.iter().enumerate() {
            let share = loss.gradient[class] * scale;
            for (gradient, weight) in gradients.iter_mut().zip(row) {
                *gradient = share.mul_add(*weight, *gradient);
            }
        }
        for (gradient, output) in gradients.iter_mut().zip(outputs) {
            *gradient = if *output == 0.0 { 0.0 } else { *gradient };
        }
    }
}

/// Softmax and cross entropy. `share` is the weight of this image in the mean.
fn loss(logits: &[f32; LANES], label: usize, share: f32) -> ImageLoss {
    let logits = &logits[..CLASSES];
    let best = (1..CLASSES).fold(0, |best, class| if logits[class] > logits[best] { class } else { best });
    let mut loss = ImageLoss { loss: 0.0, is_correct: best == label, gradient: [0.0; LANES] };
    let (powers, _) = loss.gradient.split_at_mut(CLASSES);
    let mut total = 0.0;
    for (power, logit) in powers.iter_mut().zip(logits) {
        *power = (logit - logits[best]).exp();
        total += *power;
    }
    loss.loss = total.ln() + logits[best] - logits[label];
    powers.iter_mut().for_each(|power| *power *= share / total);
    powers[label] -= share;
    loss
}

/// Gradients over a batch for a range of the dense layer's outputs that starts at `first`: of their biases, and of
/// their rows in the output kernel.
#[target_feature(enable = "avx512f")]
pub fn output_layer_gradients(
    first: usize,
    losses: &[ImageLoss],
    outputs: &[f32],
    gradients: &[f32],
    bias: &mut [f32],
    kernel: &mut [[f32; CLASSES]],
) {
    bias.fill(0.0);
    for gradients in gradients.as_chunks::<OUTPUTS>().0.iter().take(losses.len()) {
        bias.iter_mut().zip(&gradients[first..]).for_each(|(bias, gradient)| *bias += gradient);
    }
    // Eight rows at a time, so that their sums stay in registers.
    for (rows, kernel) in kernel.as_chunks_mut::<8>().0.iter_mut().enumerate() {
        let mut sums = [_mm512_setzero_ps(); 8];
        for (loss, outputs) in losses.iter().zip(outputs.as_chunks::<OUTPUTS>().0) {
            // SAFETY: `gradient` has 16 values.
            let gradient = unsafe { _mm512_loadu_ps(loss.gradient.as_ptr()) };
            for (sum, output) in sums.iter_mut().zip(&outputs[first + 8 * rows..]) {
                *sum = _mm512_fmadd_ps(_mm512_set1_ps(*output), gradient, *sum);
            }
        }
        for (kernel, sum) in kernel.iter_mut().zip(sums) {
            let mut row = [0.0; LANES];
            // SAFETY: `row` has 16 values.
            unsafe { _mm512_storeu_ps(row.as_mut_ptr(), sum) };
            kernel.copy_from_slice(&row[..CLASSES]);
        }
    }
}
