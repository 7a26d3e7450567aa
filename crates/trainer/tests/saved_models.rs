//! Saved models loaded by real Keras, whose results must agree with ours.

mod python;

use std::fs;

use corro_trainer::network::glorot_init::glorot_uniform;
use corro_trainer::network::{Batch, CLASSES, IMAGE, PARAMETERS, Score, Weights, reference};
use corro_trainer::random::Random;
use corro_trainer::save::{Checkpoint, Schedule, checkpoint, keras, safetensors_file};
use serde_json::Value;

const SCHEDULE: Schedule = Schedule { rate: 4e-4, decay: 1e-6 };
const ITERATIONS: u64 = 4689;

/// Weights with nonzero biases, unlike initial ones.
fn some_weights() -> Weights {
    let mut weights = glorot_uniform(5);
    let mut random = Random::from_key(&[6]);
    for (parameter, values) in PARAMETERS.iter().zip(weights.slices_mut()) {
        if parameter.kind == "bias" {
            values.fill_with(|| (random.uniform() - 0.5) / 4.0);
        }
    }
    weights
}

fn some_images(n: usize) -> (Vec<f32>, Vec<u8>) {
    let mut random = Random::from_key(&[7]);
    let images = (0..n * IMAGE).map(|_| random.uniform()).collect();
    (images, (0..n).map(|_| random.below(CLASSES) as u8).collect())
}

fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().expect("a list").iter().map(|number| number.as_f64().expect("a number")).collect()
}

#[track_caller]
fn check_near(keras_view: f64, wanted: f64, tolerance: f64) {
    assert!((keras_view - wanted).abs() <= tolerance, "{keras_view} instead of {wanted}");
}

/// Results of the reference.
struct ReferenceResult {
    score: Score,
    /// By image and class.
    probabilities: Vec<Vec<f64>>,
}

impl ReferenceResult {
    fn new(weights: &Weights, images: &[f32], labels: &[u8]) -> ReferenceResult {
        // The negative loss for a label is the logarithm of its probability.
        let probability = |image: &[f32], class: usize| {
            (-reference::score(weights, Batch { images: image, labels: &[class as u8] }).loss).exp()
        };
        let probabilities =
            images.chunks(IMAGE).map(|image| (0..CLASSES).map(|class| probability(image, class)).collect());
        ReferenceResult {
            score: reference::score(weights, Batch { images, labels }),
            probabilities: probabilities.collect(),
        }
    }
}

/// Compares Keras' view of a model with the expected one.
fn check_model(keras_view: &Value, reference_result: &ReferenceResult, iterations: u64) {
    let learns = |name: &&str| !matches!(*name, "Activation" | "MaxPooling2D" | "Dropout" | "Flatten");
    let layers: Vec<&str> = keras_view["layers"].as_array().expect("a list").iter().filter_map(Value::as_str).collect();
    assert_eq!(layers.len(), 18, "{layers:?}");
    assert_eq!(layers.iter().filter(|name| learns(name)).count(), 6, "{layers:?}");
    let names: Vec<&str> = keras_view["names"].as_array().expect("a list").iter().filter_map(Value::as_str).collect();
    assert_eq!(names, PARAMETERS.map(|parameter| parameter.name()));
    assert_eq!(keras_view["parameters"], 1_250_858);
    let summary = keras_view["summary"].as_str().expect("text");
    for parameter in PARAMETERS {
        assert!(summary.contains(parameter.layer), "{summary}");
    }

    let n_images = reference_result.score.images as f64;
    check_near(keras_view["loss"].as_f64().expect("a number"), reference_result.score.loss / n_images, 1e-5);
    check_near(
        keras_view["accuracy"].as_f64().expect("a number"),
        reference_result.score.correct as f64 / n_images,
        1e-6,
    );
    let probabilities = keras_view["probabilities"].as_array().expect("a list");
    assert_eq!(probabilities.len(), reference_result.probabilities.len());
    for (keras_view, wanted) in probabilities.iter().zip(&reference_result.probabilities) {
        for (keras_view, wanted) in numbers(keras_view).into_iter().zip(wanted) {
            check_near(keras_view, *wanted, 1e-6);
        }
    }

    assert_eq!(keras_view["optimizer"], "RMSprop");
    assert_eq!(keras_view["iterations"], iterations);
    check_near(
        keras_view["rate"].as_f64().expect("a number"),
        SCHEDULE.rate / (1.0 + SCHEDULE.decay * iterations as f64),
        1e-9,
    );
}

#[test]
fn keras_loads_saved_models_and_scores_the_same() {
    let Some(python) = python::python() else { return };
    let directory = tempfile::tempdir().expect("a temporary directory");
    let directory = directory.path();
    let weights = some_weights();
    let (images, labels) = some_images(3);
    keras::write(&directory.join("model.h5"), &weights, SCHEDULE).expect("a model");
    safetensors_file::write(&directory.join("model.safetensors"), &weights).expect("a model");
    let checkpoint = Checkpoint {
        weights: weights.clone(),
        accumulators: glorot_uniform(8),
        iterations: ITERATIONS,
        epoch: 3,
        seed: 5,
        ranks: 4,
        precision: "f32".to_owned(),
        schedule: SCHEDULE,
        training: String::new(),
    };
    checkpoint::write(directory, &checkpoint, None).expect("a checkpoint");
    let bytes: Vec<u8> = images.iter().flat_map(|value| value.to_le_bytes()).collect();
    fs::write(directory.join("images.f32"), bytes)
        .and_then(|()| fs::write(directory.join("labels.u8"), &labels))
        .expect("images");

    let output = python::run(&python, "saved_models.py", &[directory.as_os_str()]);
    let output: Value = serde_json::from_str(output.trim()).expect("one JSON object");
    let reference_result = ReferenceResult::new(&weights, &images, &labels);
    check_model(&output["model"], &reference_result, 0);
    check_model(&output["checkpoint"], &reference_result, ITERATIONS);
    assert_eq!(output["same"], true, "safetensors has other values than Keras");
    assert_eq!(output["notes"]["network"], "cifar10_cnn");
    assert_eq!(output["trained"], true, "Keras could not go on with the training");

    let read = keras::read(&directory.join("by_keras.h5")).expect("a model of Keras' own");
    for (values, sum) in read.0.iter().zip(numbers(&output["sums"])) {
        check_near(values.iter().map(|value| f64::from(*value)).sum(), sum, 1e-6);
    }
}
