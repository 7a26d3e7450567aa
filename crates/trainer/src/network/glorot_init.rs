//! Initial weights as Keras draws them: kernels from `glorot_uniform`, biases zero. They depend on the seed alone.

use crate::network::{PARAMETERS, Parameter, Weights};
use crate::random::Random;

/// Domain separator: random streams of other modules with the same seed differ.
const INIT_STREAM: u64 = u64::from_be_bytes(*b"initial ");

pub fn glorot_uniform(seed: u64) -> Weights {
    let draw = |(index, parameter): (usize, &Parameter)| {
        let mut random = Random::from_key(&[seed, INIT_STREAM, index as u64]);
        let limit = limit(parameter);
        (0..parameter.size()).map(|_| limit * (2.0 * random.uniform() - 1.0)).collect::<Vec<_>>().into()
    };
    Weights(PARAMETERS.iter().enumerate().map(draw).collect())
}

/// Limit of `glorot_uniform`: kernel values are uniform between its negative and itself. It keeps the variance of
/// values and gradients constant from layer to layer.
fn limit(parameter: &Parameter) -> f32 {
    let [field @ .., inputs, outputs] = parameter.shape else { return 0.0 };
    let field: usize = field.iter().product();
    (6.0 / (field * (inputs + outputs)) as f32).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_are_glorot_uniform_and_biases_zero() {
        // Computed by hand: 6 / (9 * (3 + 32)), 6 / (9 * 64), 6 / (9 * 96), 6 / (9 * 128), 6 / 2816, 6 / 522.
        let limits = [0.138_013, 0.102_062, 0.083_333, 0.072_169, 0.046_159, 0.107_211];
        let weights = glorot_uniform(1);
        for (parameter, values) in PARAMETERS.iter().zip(&weights.0) {
            assert_eq!(values.len(), parameter.size());
        }
        for (index, wanted) in limits.into_iter().enumerate() {
            let (kernel, bias) = (&weights.0[2 * index], &weights.0[2 * index + 1]);
            let n = kernel.len() as f32;
            let largest = kernel.iter().fold(0.0, |largest: f32, value| largest.max(value.abs()));
            assert!(largest <= wanted * 1.00001 && largest > wanted * 0.99, "kernel {index}: {largest} of {wanted}");
            let mean = kernel.iter().sum::<f32>() / n;
            assert!(mean.abs() < 4.0 * wanted / (3.0 * n).sqrt(), "kernel {index}: mean {mean}");
            let variance = kernel.iter().map(|value| value * value).sum::<f32>() / n;
            assert!((variance / (wanted * wanted / 3.0) - 1.0).abs() < 0.15, "kernel {index}: variance {variance}");
            assert!(bias.iter().all(|value| *value == 0.0));
        }
    }

    #[test]
    fn weights_depend_on_the_seed() {
        assert_eq!(glorot_uniform(7), glorot_uniform(7));
        let (one, other) = (glorot_uniform(7), glorot_uniform(8));
        assert!(one.0[0].iter().zip(&other.0[0]).all(|(a, b)| a != b));
        assert!(one.0[2].iter().zip(&one.0[4]).all(|(a, b)| a != b), "no two parameters share their draws");
    }
}
