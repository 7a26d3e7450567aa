//! Gradients against finite differences, layer by layer and through the whole network.

use super::*;
use crate::network::glorot_init::glorot_uniform;
use crate::random::Random;

const DROPOUT_SEED: DropoutSeed = DropoutSeed { seed: 3, step: 4, first: 5 };
/// Dropout seed of the first image.
const FIRST_IMAGE_SEED: Option<(DropoutSeed, usize)> = Some((DROPOUT_SEED, 0));

/// A few random images, and weights with nonzero biases.
struct Case {
    weights: Weights,
    parameters: Vec<Vec<f64>>,
    images: Vec<f32>,
    labels: Vec<u8>,
}

impl Case {
    fn new(n: usize) -> Case {
        let mut random = Random::from_key(&[11]);
        let mut weights = glorot_uniform(11);
        weights.0.iter_mut().skip(1).step_by(2).flatten().for_each(|bias| *bias = 0.2 * random.uniform() - 0.1);
        let images = (0..n * IMAGE).map(|_| random.uniform()).collect();
        let labels = (0..n).map(|_| random.below(CLASSES) as u8).collect();
        Case { parameters: to_f64(&weights), weights, images, labels }
    }

    fn batch(&self) -> Batch<'_> {
        Batch { images: &self.images, labels: &self.labels }
    }

    fn loss(&self, parameters: &[Vec<f64>]) -> f64 {
        let n = self.labels.len();
        (0..n).map(|image| Trace::forward(parameters, self.batch(), image, Some(DROPOUT_SEED)).score.loss).sum::<f64>()
            / n as f64
    }
}

/// Central difference quotient of a function with respect to one of its values, with step `apart`.
fn slope<T>(apart: f64, values: &mut T, one: impl Fn(&mut T) -> &mut f64, function: impl Fn(&T) -> f64) -> f64 {
    let value = *one(values);
    let mut at = |moved: f64| {
        *one(values) = moved;
        function(values)
    };
    let slope = (at(value + apart) - at(value - apart)) / (2.0 * apart);
    *one(values) = value;
    slope
}

fn zeros() -> Vec<Vec<f64>> {
    to_f64(&Weights::zeros())
}

fn check(what: &str, given: f64, wanted: f64) {
    assert!((given - wanted).abs() <= 1e-6 * (1e-2 + wanted.abs()), "{what}: {given} instead of {wanted}");
}

/// Weighted sum of the outputs.
fn weighted_sum(outputs: &[f64], weights: &[f64]) -> f64 {
    outputs.iter().zip(weights).map(|(output, weight)| output * weight).sum()
}

#[test]
fn gradients_of_every_layer_match_finite_differences() {
    // Single layers are piecewise linear with few kinks, and their sums are long: a large step is more exact.
    const APART: f64 = 1e-3;
    let case = Case::new(1);
    let trace = Trace::forward(&case.parameters, case.batch(), 0, Some(DROPOUT_SEED));
    for (index, layer) in LAYERS.iter().enumerate() {
        let mut random = Random::from_key(&[12, index as u64]);
        // Random values instead of activations: after ReLU many are equal, and pooling is not differentiable there.
        let mut draw = |like: &Vec<f64>| like.iter().map(|_| f64::from(random.normal())).collect::<Vec<f64>>();
        let (mut input, weights) = (draw(&trace.values[index]), draw(&trace.values[index + 1]));
        let mut parameters = case.parameters.clone();
        let mut sums = zeros();
        let back = layer.backward(&parameters, &input, &weights, FIRST_IMAGE_SEED, &mut sums);

        for _ in 0..10 {
            let value = random.below(input.len());
            let output =
                |input: &Vec<f64>| weighted_sum(&layer.forward(&parameters, input, FIRST_IMAGE_SEED), &weights);
            let wanted = slope(APART, &mut input, |input| &mut input[value], output);
            check(&format!("{layer:?}, input {value}"), back[value], wanted);
        }
        let (Layer::Convolution { weights: of, .. } | Layer::Dense(of)) = layer else { continue };
        for (parameter, _) in
            [of.kernel, of.kernel + 1].into_iter().flat_map(|parameter| (0..10).map(move |time| (parameter, time)))
        {
            let value = random.below(PARAMETERS[parameter].size());
            let output = |parameters: &Vec<Vec<f64>>| {
                weighted_sum(&layer.forward(parameters, &input, FIRST_IMAGE_SEED), &weights)
            };
            let wanted = slope(APART, &mut parameters, |parameters| &mut parameters[parameter][value], output);
            check(&format!("{layer:?}, {} {value}", PARAMETERS[parameter].name()), sums[parameter][value], wanted);
        }
    }
}

#[test]
fn gradients_of_a_step_match_finite_differences() {
    let case = Case::new(2);
    let mut gradients = Weights::zeros();
    let score = step(&case.weights, case.batch(), Some(DROPOUT_SEED), &mut gradients);
    let mut parameters = case.parameters.clone();
    check("loss", score.loss / 2.0, case.loss(&parameters));
    for (index, parameter) in PARAMETERS.iter().enumerate() {
        // Some of the largest values, and some others.
        let mut places: Vec<usize> = (0..parameter.size()).collect();
        places.sort_by(|a, b| gradients.0[index][*b].abs().total_cmp(&gradients.0[index][*a].abs()));
        for value in [places[0], places[1], places[places.len() / 4], places[places.len() / 2]] {
            let wanted = slope(1e-6, &mut parameters, |parameters| &mut parameters[index][value], |all| case.loss(all));
            check(&format!("{} {value}", parameter.name()), f64::from(gradients.0[index][value]), wanted);
        }
    }
}

#[test]
fn kinks_are_resolved_as_in_keras() {
    let relu = Layer::Relu.backward(&[], &[-1.0, 0.0, 1.0], &[5.0; 3], None, &mut []);
    assert_eq!(relu, [0.0, 0.0, 5.0]);
    let pooling = Layer::Pooling { side: 3, channels: 1 };
    let input = [1.0, 2.0, 9.0, 2.0, 2.0, 9.0, 9.0, 9.0, 9.0];
    assert_eq!(pooling.forward(&[], &input, None), [2.0]);
    assert_eq!(pooling.backward(&[], &input, &[5.0], None, &mut []), [0.0, 5.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]);
}

#[test]
fn a_score_equals_that_of_a_step_without_dropout() {
    let case = Case::new(3);
    let scored = score(&case.weights, case.batch());
    assert_eq!(scored, step(&case.weights, case.batch(), None, &mut Weights::zeros()));
    assert_ne!(scored.loss, step(&case.weights, case.batch(), Some(DROPOUT_SEED), &mut Weights::zeros()).loss);
    assert_eq!(scored.images, 3);
    // The weights are untrained: all classes are about equally likely.
    assert!((scored.loss / 3.0 - 10.0f64.ln()).abs() < 0.5, "{scored:?}");
}

#[test]
fn certain_and_uniform_predictions_have_the_expected_loss() {
    let mut weights = Weights::zeros();
    let images = vec![0.5; 2 * IMAGE];
    let batch = Batch { images: &images, labels: &[0, 7] };
    // All logits are equal: the first class is the prediction.
    let undecided = score(&weights, batch);
    check("undecided", undecided.loss, 2.0 * 10.0f64.ln());
    assert_eq!(undecided.correct, 1);
    weights.0[11][7] = 1000.0;
    assert_eq!(score(&weights, batch), Score { loss: 1000.0, correct: 1, images: 2 });
}
