//! Softmax regression: one layer, its gradient by hand. Plain loops; it is over in a moment.

use super::classes::{CLASSES, FEATURES, Random, Samples};

/// A row a class: one weight a feature, then the bias.
const ROW: usize = FEATURES + 1;

pub struct Softmax {
    pub weights: Vec<f32>,
}

pub struct Gradient {
    pub values: Vec<f32>,
    pub loss: f32,
    pub accuracy: f32,
}

impl Softmax {
    pub fn random(seed: u64) -> Self {
        let mut random = Random::new(seed);
        Self { weights: (0..CLASSES * ROW).map(|_| 0.01 * random.normal()).collect() }
    }

    /// Mean gradient, loss and accuracy over the samples.
    pub fn gradient(&self, samples: &Samples) -> Gradient {
        let n = samples.labels.len() as f32;
        let mut gradient = Gradient { values: vec![0.0; CLASSES * ROW], loss: 0.0, accuracy: 0.0 };
        for (features, label) in samples.features.chunks_exact(FEATURES).zip(&samples.labels) {
            let chances = self.chances(features);
            let best = (0..CLASSES).max_by(|a, b| chances[*a].total_cmp(&chances[*b])).unwrap_or(0);
            gradient.accuracy += f32::from(best == *label) / n;
            gradient.loss -= chances[*label].max(1e-9).ln() / n;
            for (class, row) in gradient.values.chunks_exact_mut(ROW).enumerate() {
                let error = (chances[class] - f32::from(class == *label)) / n;
                for (value, feature) in row.iter_mut().zip(features) {
                    *value += error * feature;
                }
                row[FEATURES] += error;
            }
        }
        gradient
    }

    pub fn descend(&mut self, gradient: &[f32], rate: f32) {
        for (weight, slope) in self.weights.iter_mut().zip(gradient) {
            *weight -= rate * slope;
        }
    }

    fn chances(&self, features: &[f32]) -> [f32; CLASSES] {
        let mut scores = [0.0; CLASSES];
        for (score, row) in scores.iter_mut().zip(self.weights.chunks_exact(ROW)) {
            *score = row[FEATURES] + row.iter().zip(features).map(|(w, f)| w * f).sum::<f32>();
        }
        let top = scores.iter().copied().fold(f32::MIN, f32::max);
        let powers = scores.map(|score| (score - top).exp());
        let sum: f32 = powers.iter().sum();
        powers.map(|power| power / sum)
    }
}
