//! Reference implementation of a step and a score: one image at a time, layer by layer, simple loops, all in `f64`. The
//! tests of `compute` compare the fast step with it, and it is compared with Keras. Not used in training.
//!
//! Choices made as Keras makes them: the gradient of ReLU at 0 is 0; the first of several equal maxima gets the
//! gradient; kept values are scaled up by dropout; the loss is computed from logits, so that no logarithm of a rounded
//! zero occurs; of several equally likely classes the first is the prediction.

mod layer;

pub use layer::{LAYERS, Layer, LinearLayer};

use super::{Batch, CLASSES, DropoutSeed, GradientSink, IMAGE, PARAMETERS, Score, Weights};

/// The mean gradients over the batch, last parameters first; with dropout if there is a seed.
pub fn step(
    weights: &Weights,
    batch: Batch<'_>,
    dropout_seed: Option<DropoutSeed>,
    gradients: &mut dyn GradientSink,
) -> Score {
    let parameters = to_f64(weights);
    let mut sums: Vec<Vec<f64>> = PARAMETERS.iter().map(|parameter| vec![0.0; parameter.size()]).collect();
    let mut score = Score::default();
    for index in 0..batch.len() {
        let trace = Trace::forward(&parameters, batch, index, dropout_seed);
        score += trace.score;
        trace.backward(&parameters, &mut sums);
    }
    for (index, sum) in sums.iter().enumerate().rev() {
        let buffer = gradients.buffer(index);
        buffer.iter_mut().zip(sum).for_each(|(buffer, sum)| *buffer = (sum / batch.len() as f64) as f32);
        gradients.ready(index);
    }
    score
}

/// Score without dropout, as in validation.
pub fn score(weights: &Weights, batch: Batch<'_>) -> Score {
    let parameters = to_f64(weights);
    let mut score = Score::default();
    for index in 0..batch.len() {
        score += Trace::forward(&parameters, batch, index, None).score;
    }
    score
}

/// The forward pass of one image, with the values between the layers.
pub struct Trace {
    /// The input of each of [`LAYERS`], and last the logits.
    pub values: Vec<Vec<f64>>,
    pub score: Score,
    label: usize,
    /// The seed of this step, and the image's index in the batch.
    dropout_seed: Option<(DropoutSeed, usize)>,
}

impl Trace {
    /// `parameters` come from [`to_f64`]; `index` is the image's index in the batch.
    pub fn forward(
        parameters: &[Vec<f64>],
        batch: Batch<'_>,
        index: usize,
        dropout_seed: Option<DropoutSeed>,
    ) -> Trace {
        let dropout_seed = dropout_seed.map(|dropout_seed| (dropout_seed, index));
        let image = &batch.images[index * IMAGE..][..IMAGE];
        let mut values = vec![image.iter().map(|value| f64::from(*value)).collect::<Vec<f64>>()];
        for (layer, input) in LAYERS.iter().zip(0..) {
            values.push(layer.forward(parameters, &values[input], dropout_seed));
        }
        let label = usize::from(batch.labels[index]);
        let logits = &values[LAYERS.len()];
        let loss = -softmax(logits)[label].1;
        let correct = usize::from((0..CLASSES).all(|other| match other < label {
            true => logits[other] < logits[label],
            false => logits[other] <= logits[label],
        }));
        Trace { score: Score { loss, correct, images: 1 }, values, label, dropout_seed }
    }

    /// Adds this image's parameter gradients to `sums`. Returns the gradients of the input of each layer and of the
    /// logits.
    pub fn backward(&self, parameters: &[Vec<f64>], sums: &mut [Vec<f64>]) -> Vec<Vec<f64>> {
        // Gradient of softmax with cross entropy: the probabilities, minus 1 for the label.
        let mut gradient: Vec<f64> =
            softmax(&self.values[LAYERS.len()]).into_iter().map(|(chance, _)| chance).collect();
        gradient[self.label] -= 1.0;
        let mut gradients = vec![gradient];
        for (layer, input) in LAYERS.iter().zip(&self.values).rev() {
            let after = gradients.last().expect("at least that of the logits");
            gradients.push(layer.backward(parameters, input, after, self.dropout_seed, sums));
        }
        gradients.reverse();
        gradients
    }
}

/// The weights in double precision.
pub fn to_f64(weights: &Weights) -> Vec<Vec<f64>> {
    weights.0.iter().map(|values| values.iter().map(|value| f64::from(*value)).collect()).collect()
}

/// Probabilities and their logarithms.
fn softmax(logits: &[f64]) -> Vec<(f64, f64)> {
    let largest = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let sum: f64 = logits.iter().map(|logit| (logit - largest).exp()).sum();
    let log = |logit: f64| logit - largest - sum.ln();
    logits.iter().map(|logit| (log(*logit).exp(), log(*logit))).collect()
}

#[cfg(test)]
mod tests;
