//! Steps against those of real Keras on the same weights and batch, and initial weights against Keras' own.
//! `keras/step.py` runs Keras.
//!
//! Keras computes in double precision here. The reference may differ by the rounding of its results, the fast step by
//! its own rounding.

mod python;

use std::fs;
use std::path::Path;
use std::sync::{Arc, LazyLock};

use corro_collectives::optimizer::Optimizer;
use corro_trainer::compute::{Compute, Config, Isa, Precision};
use corro_trainer::network::glorot_init::glorot_uniform;
use corro_trainer::network::{Batch, DROPOUTS, DropoutSeed, IMAGE, PARAMETERS, Score, Weights, reference};
use corro_trainer::random::Random;
use corro_trainer::rmsprop::{self, RmsProp};
use corro_trainer::thread_pool::ThreadPool;
use serde::Deserialize;

const N_IMAGES: usize = 4;
/// Far into a training, so that decay has an effect.
const ITERATIONS: u64 = 250_000;
const RMSPROP: rmsprop::Config = rmsprop::Config { rate: 4e-4, decay: 1e-6 };

struct Case {
    weights: Weights,
    accumulators: Weights,
    images: Vec<f32>,
    labels: Vec<u8>,
    dropout_seed: Option<DropoutSeed>,
}

/// Keras' results.
#[derive(Deserialize)]
struct KerasResult {
    loss: f64,
    correct: usize,
    names: Vec<String>,
    shapes: Vec<Vec<usize>>,
    largest: Vec<f64>,
    variance: Vec<f64>,
    #[serde(skip)]
    gradients: Vec<f64>,
    #[serde(skip)]
    after: Vec<f64>,
}

impl Case {
    fn new(dropout_seed: Option<DropoutSeed>) -> Case {
        let mut random = Random::from_key(&[21]);
        let mut weights = glorot_uniform(21);
        // Nonzero biases, so that they affect the result.
        weights.0.iter_mut().skip(1).step_by(2).flatten().for_each(|bias| *bias = 0.2 * random.uniform() - 0.1);
        let mut accumulators = Weights::zeros();
        accumulators.0.iter_mut().flatten().for_each(|value| *value = 1e-4 * random.uniform());
        let images = (0..N_IMAGES * IMAGE).map(|_| random.uniform()).collect();
        let labels = (0..N_IMAGES).map(|_| random.below(10) as u8).collect();
        Case { weights, accumulators, images, labels, dropout_seed }
    }

    fn batch(&self) -> Batch<'_> {
        Batch { images: &self.images, labels: &self.labels }
    }

    fn run_keras(&self, python: &Path) -> KerasResult {
        let folder = tempfile::tempdir().expect("a folder");
        let write = |name: &str, bytes: Vec<u8>| fs::write(folder.path().join(name), bytes).expect("a file");
        write("weights", bytes(self.weights.0.iter().flatten()));
        write("accumulators", bytes(self.accumulators.0.iter().flatten()));
        write("images", bytes(&self.images));
        write("labels", self.labels.clone());
        write("kept", bytes(&self.dropout_factors()));
        let settings = serde_json::json!({ "rate": RMSPROP.rate, "decay": RMSPROP.decay, "iterations": ITERATIONS });
        write("settings.json", settings.to_string().into_bytes());
        let output = python::run(python, "keras/step.py", &[folder.path().as_os_str()]);
        let mut result: KerasResult = serde_json::from_str(&output).expect("the script prints JSON");
        let read = |name: &str| {
            let bytes = fs::read(folder.path().join(name)).expect("what the script left");
            bytes.chunks_exact(8).map(|word| f64::from_le_bytes(word.try_into().expect("eight bytes"))).collect()
        };
        (result.gradients, result.after) = (read("gradients"), read("after"));
        result
    }

    /// Dropout factors by layer, image and value.
    fn dropout_factors(&self) -> Vec<f32> {
        let mut dropout_factors = Vec::new();
        for (layer, dropout) in DROPOUTS.iter().enumerate() {
            for (image, value) in (0..N_IMAGES).flat_map(|image| (0..dropout.size).map(move |value| (image, value))) {
                dropout_factors.push(match self.dropout_seed {
                    None => 1.0,
                    Some(dropout_seed) if dropout_seed.drops(image, layer, value) => 0.0,
                    Some(_) => dropout.scale(),
                });
            }
        }
        dropout_factors
    }
}

fn bytes<'a>(values: impl IntoIterator<Item = &'a f32>) -> Vec<u8> {
    values.into_iter().flat_map(|value| value.to_le_bytes()).collect()
}

/// The largest difference over all parameters, relative to the parameter's largest value.
fn max_relative_difference(ours: &Weights, keras: &[f64]) -> f64 {
    let mut keras = keras.iter();
    let mut max: f64 = 0.0;
    for (parameter, ours) in PARAMETERS.iter().zip(&ours.0) {
        let (mut difference, mut largest): (f64, f64) = (0.0, 0.0);
        for (ours, keras) in ours.iter().zip(&mut keras) {
            difference = difference.max((f64::from(*ours) - keras).abs());
            largest = largest.max(keras.abs());
        }
        println!("    {:16} {:.1e} of {largest:.1e}", parameter.name(), difference / largest);
        assert!(largest > 0.0, "{}: nothing to compare", parameter.name());
        max = max.max(difference / largest);
    }
    assert!(keras.next().is_none(), "as many values");
    max
}

fn check_all(case: &Case, result: &KerasResult) {
    check(&format!("reference, {:?}", case.dropout_seed), case, result, 1e-6, |gradients| {
        reference::step(&case.weights, case.batch(), case.dropout_seed, gradients)
    });
    for isa in Isa::ALL.into_iter().filter(|isa| isa.is_supported()) {
        let config = Config { threads: 2, batch: N_IMAGES, precision: Precision::F32, isa };
        let mut compute = Compute::new(&config).expect("instructions of this processor");
        check(&format!("{isa:?}, {:?}", case.dropout_seed), case, result, 1e-5, |gradients| {
            compute.step(&case.weights, case.batch(), case.dropout_seed, gradients)
        });
    }
}

/// Runs `step` on the case's batch and then the optimizer, and compares both with Keras.
fn check(what: &str, case: &Case, result: &KerasResult, tolerance: f64, step: impl FnOnce(&mut Weights) -> Score) {
    let mut gradients = Weights::zeros();
    let score = step(&mut gradients);
    println!("{what}: loss {} and {}, gradients apart by", score.loss, result.loss);
    assert!(
        (score.loss / result.loss - 1.0).abs() < tolerance,
        "{what}: loss {} instead of {}",
        score.loss,
        result.loss
    );
    assert_eq!((score.correct, score.images), (result.correct, N_IMAGES), "{what}");
    let difference = max_relative_difference(&gradients, &result.gradients);
    assert!(difference < tolerance, "{what}: gradients are {difference:.1e} apart");

    let mut optimizer = RmsProp::new(&RMSPROP, Arc::new(ThreadPool::new(2)));
    optimizer.set_state(rmsprop::State { accumulators: case.accumulators.clone(), iterations: ITERATIONS });
    let mut weights = case.weights.clone();
    for (index, (parameter, gradient)) in weights.0.iter_mut().zip(&gradients.0).enumerate() {
        optimizer.step(index, parameter, gradient);
    }
    println!("  weights after the step apart by");
    let difference = max_relative_difference(&weights, &result.after);
    // A step changes weights by thousandths, so an error of the gradient hardly affects the result.
    assert!(difference < 1e-6, "{what}: weights are {difference:.1e} apart after the step");
}

/// The case without dropout, shared by two tests.
static WITHOUT_DROPOUT: LazyLock<Option<(Case, KerasResult)>> = LazyLock::new(|| {
    let case = Case::new(None);
    let result = case.run_keras(&python::python()?);
    Some((case, result))
});

#[test]
fn steps_match_keras() {
    let Some((case, result)) = &*WITHOUT_DROPOUT else { return };
    check_all(case, result);
}

#[test]
fn steps_with_dropout_match_keras() {
    let Some(python) = python::python() else { return };
    let case = Case::new(Some(DropoutSeed { seed: 1, step: 2, first: 64 }));
    check_all(&case, &case.run_keras(&python));
}

#[test]
fn parameter_names_shapes_and_initial_values_match_keras() {
    let Some((_, result)) = &*WITHOUT_DROPOUT else { return };
    let drawn = glorot_uniform(1);
    for (index, parameter) in PARAMETERS.iter().enumerate() {
        let name = parameter.name();
        assert_eq!((&name, parameter.shape), (&result.names[index], result.shapes[index].as_slice()));
        let ours = drawn.0[index].iter().map(|value| f64::from(*value));
        let n = parameter.size() as f64;
        let largest = ours.clone().fold(0.0, |largest: f64, value| largest.max(value.abs()));
        let variance = ours.map(|value| value * value).sum::<f64>() / n;
        let (theirs, their_variance) = (result.largest[index], result.variance[index]);
        if parameter.kind == "bias" {
            assert_eq!((largest, theirs), (0.0, 0.0), "{name}");
            continue;
        }
        // Both fill the same range, up to gaps of order 1/n.
        assert!((largest / theirs - 1.0).abs() < 20.0 / n, "{name}: up to {largest}, Keras up to {theirs}");
        // The square of a uniform value has a deviation of 0.9 times its mean; the limit is five deviations of the
        // difference of two means.
        let allowed = 5.0 * 0.9 * (2.0 / n).sqrt();
        let off = (variance / their_variance - 1.0).abs();
        assert!(off < allowed, "{name}: variance {variance}, Keras' {their_variance}");
    }
}
