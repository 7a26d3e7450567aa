//! The bf16 step against the reference within bfloat16 accuracy, and against itself. AMX products and their operands
//! against simple loops.

use corro_test_support::skip;
use half::bf16;

use super::amx::{AmxTiles, has_amx};
use super::tile_layout::{
    Bf16Row, PAIRED_ORDER, ZERO_ACC, ZERO_ROW, interleave_pairs, left_rows, packed_right, paired_right, transpose,
};
use crate::compute::{Compute, Config, Isa, Precision};
use crate::network::{Batch, DropoutSeed, GradientSink, IMAGE, PARAMETERS, Weights, glorot_init, reference};
use crate::random::Random;

fn skips() -> bool {
    if !has_amx() {
        skip::unsupported_machine("this processor has no tiles for bfloat16");
    }
    !has_amx()
}

struct Images {
    pixels: Vec<f32>,
    labels: Vec<u8>,
}

impl Images {
    fn of(seed: u64, n: usize) -> Images {
        let mut random = Random::from_key(&[seed]);
        let pixels = (0..n * IMAGE).map(|_| random.uniform()).collect();
        Images { pixels, labels: (0..n).map(|_| random.below(10) as u8).collect() }
    }

    fn batch(&self) -> Batch<'_> {
        Batch { images: &self.pixels, labels: &self.labels }
    }
}

fn compute(batch: usize, threads: usize) -> Compute {
    let config = Config { threads, batch, precision: Precision::Bf16, isa: Isa::best() };
    Compute::new(&config).expect("there are tiles")
}

/// Weights with nonzero biases.
fn weights(seed: u64) -> Weights {
    let mut weights = glorot_init::glorot_uniform(seed);
    let mut random = Random::from_key(&[seed, 1]);
    for (values, parameter) in weights.0.iter_mut().zip(&PARAMETERS) {
        if parameter.kind == "bias" {
            values.iter_mut().for_each(|value| *value = 0.1 * (random.uniform() - 0.3));
        }
    }
    weights
}

/// Sparse weights of small integers and images of zeros and ones: bfloat16 represents all forward values of the
/// convolutions exactly, and pooling resolves ties the same way. Only gradients are rounded in the backward pass.
fn whole_numbers(seed: u64, n: usize) -> (Weights, Images) {
    let (mut weights, mut random) = (weights(seed), Random::from_key(&[seed, 2]));
    for (values, parameter) in weights.0.iter_mut().zip(&PARAMETERS[..8]) {
        let inputs = parameter.size() / parameter.shape.last().expect("outputs");
        for value in values {
            *value = if random.below(inputs) < 8 { random.below(2) as f32 * 2.0 - 1.0 } else { 0.0 };
        }
    }
    let mut images = Images::of(seed, n);
    images.pixels.iter_mut().for_each(|pixel| *pixel = random.below(2) as f32);
    (weights, images)
}

fn check_step(what: &str, weights: &Weights, images: &Images, dropout_seed: Option<DropoutSeed>, least_cosine: f64) {
    let n = images.labels.len();
    let (mut expected, mut gradients) = (Weights::zeros(), Weights::zeros());
    let wanted = reference::step(weights, images.batch(), dropout_seed, &mut expected);
    let score = compute(n + 1, 2).step(weights, images.batch(), dropout_seed, &mut gradients);
    assert_eq!(score.images, n);
    assert!((score.loss - wanted.loss).abs() < 1e-2 * wanted.loss, "{what}: {score:?} instead of {wanted:?}");
    for (index, parameter) in PARAMETERS.iter().enumerate() {
        let (cosine, ratio) = cosine_and_ratio(&gradients.0[index], &expected.0[index]);
        let is_near = cosine > least_cosine && (ratio - 1.0).abs() < 0.08;
        assert!(is_near, "{n} images, {what}: {}: cosine {cosine}, length {ratio}", parameter.name());
    }
}

/// The cosine between two gradients, and the ratio of their norms.
fn cosine_and_ratio(one: &[f32], other: &[f32]) -> (f64, f64) {
    let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>();
    (dot(one, other) / (dot(one, one) * dot(other, other)).sqrt(), (dot(one, one) / dot(other, other)).sqrt())
}

#[test]
fn steps_match_the_reference() {
    if skips() {
        return;
    }
    for n in [1, 3] {
        let (weights, images) = whole_numbers(n as u64, n);
        check_step("whole numbers", &weights, &images, None, 0.999);
    }
    // For nearly equal values in a window, rounding decides which one gets the gradient; near zero it decides whether
    // ReLU passes it. That affects a few per thousand values in each layer.
    let dropout_seed = DropoutSeed { seed: 3, step: 4, first: 8 };
    for dropout_seed in [None, Some(dropout_seed)] {
        check_step("any numbers", &weights(3), &Images::of(3, 3), dropout_seed, 0.98);
    }
}

#[test]
fn results_are_bit_identical_for_any_number_of_threads() {
    if skips() {
        return;
    }
    let (weights, dropout_seed) = (weights(1), DropoutSeed { seed: 1, step: 2, first: 3 });
    for n in [2, 33] {
        let images = Images::of(9, n);
        let run = |compute: &mut Compute| {
            let mut gradients = Weights::zeros();
            let score = compute.step(&weights, images.batch(), Some(dropout_seed), &mut gradients);
            (score, gradients)
        };
        let expected = run(&mut compute(n, 1));
        for threads in [2, 3] {
            let mut compute = compute(34, threads);
            // State left by another batch must not matter.
            compute.step(&weights, Images::of(10, 34).batch(), Some(dropout_seed), &mut Weights::zeros());
            assert!(run(&mut compute) == expected, "{n} images, {threads} threads, first time");
            assert!(run(&mut compute) == expected, "{n} images, {threads} threads, again");
        }
    }
}

#[test]
fn two_half_batches_average_to_the_whole_batch() {
    if skips() {
        return;
    }
    let (weights, images, mut compute) = (weights(2), Images::of(2, 38), compute(38, 2));
    let mut step = |range: std::ops::Range<usize>| {
        let pixels = &images.pixels[range.start * IMAGE..range.end * IMAGE];
        let (dropout_seed, mut gradients) =
            (DropoutSeed { seed: 5, step: 6, first: range.start as u64 }, Weights::zeros());
        let batch = Batch { images: pixels, labels: &images.labels[range] };
        (compute.step(&weights, batch, Some(dropout_seed), &mut gradients), gradients)
    };
    let ((whole, gradients), (mut one, ones), (other, others)) = (step(0..38), step(0..19), step(19..38));
    one += other;
    assert_eq!((whole.correct, whole.images), (one.correct, one.images));
    assert!((whole.loss - one.loss).abs() < 1e-9 * whole.loss, "{whole:?} {one:?}");
    for (index, parameter) in PARAMETERS.iter().enumerate() {
        let mean: Vec<f32> =
            ones.0[index].iter().zip(&others.0[index]).map(|(one, other)| (one + other) / 2.0).collect();
        let (cosine, ratio) = cosine_and_ratio(&gradients.0[index], &mean);
        // Gradients are rounded after the division by the number of images, which differs.
        assert!(cosine > 0.9999 && (ratio - 1.0).abs() < 1e-3, "{}: {cosine} {ratio}", parameter.name());
    }
}

#[test]
fn a_score_equals_that_of_a_step_without_dropout() {
    if skips() {
        return;
    }
    let (weights, images, mut compute) = (weights(3), Images::of(3, 21), compute(21, 2));
    let step = compute.step(&weights, images.batch(), None, &mut Weights::zeros());
    assert_eq!(compute.score(&weights, images.batch()), step);
}

/// Records which gradients were announced, and their values at that time.
struct RecordingSink(Weights, Vec<(usize, Vec<f32>)>);

impl GradientSink for RecordingSink {
    fn buffer(&mut self, parameter: usize) -> &mut [f32] {
        &mut self.0.0[parameter]
    }

    fn ready(&mut self, parameter: usize) {
        self.1.push((parameter, self.0.0[parameter].to_vec()));
    }
}

#[test]
fn gradients_are_announced_when_complete_last_layers_first() {
    if skips() {
        return;
    }
    let mut sink = RecordingSink(Weights::zeros(), Vec::new());
    compute(3, 2).step(&weights(4), Images::of(4, 3).batch(), None, &mut sink);
    let order: Vec<usize> = sink.1.iter().map(|(parameter, _)| *parameter).collect();
    assert_eq!(order, [11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0]);
    assert!(sink.1.iter().all(|(parameter, gradient)| *sink.0.0[*parameter] == **gradient));
}

fn random_lines(seed: u64, n: usize) -> Vec<Bf16Row> {
    let mut random = Random::from_key(&[seed]);
    let mut line = || Bf16Row(std::array::from_fn(|_| bf16::from_f32(random.uniform() - 0.5).to_bits()));
    (0..n).map(|_| line()).collect()
}

fn value(lines: &[Bf16Row], row: usize, column: usize) -> f64 {
    bf16::from_bits(lines[row].0[column]).to_f64()
}

#[test]
fn amx_products_match_simple_loops() {
    if skips() {
        return;
    }
    let (left, right) = (random_lines(1, 32 + 40), random_lines(2, 96));
    // Steps of the left operand overlap, as under the taps of a kernel.
    let steps = [0, 33 * 64, 2 * 64];
    let mut sums = ZERO_ACC;
    sums.0[5][7] = 100.0;
    // SAFETY: AMX is available. The left operand is read up to row 31 + 33, the right one has 32 rows per step.
    unsafe {
        let tiles = AmxTiles::configure();
        tiles.multiply(left_rows(left.as_ptr(), 1), &steps, packed_right(right.as_ptr()), sums.output(true));
    }
    for row in 0..32 {
        for column in 0..32 {
            let mut expected = if (row, column) == (5, 7) { 100.0 } else { 0.0 };
            for (step, at) in steps.iter().enumerate() {
                for inner in 0..32 {
                    let line = step * 32 + column / 16 * 16 + inner / 2;
                    let right = value(&right, line, column % 16 * 2 + inner % 2);
                    expected += value(&left, row + at / 64, inner) * right;
                }
            }
            let sum = f64::from(sums.0[row][column]);
            assert!((sum - expected).abs() < 1e-4, "{row} {column}: {sum} instead of {expected}");
        }
    }
}

#[test]
fn transposed_times_paired_sums_over_pixels() {
    if skips() {
        return;
    }
    let (gradient, input) = (random_lines(3, 64), random_lines(4, 32));
    let (mut left, mut right, mut sums) = (vec![ZERO_ROW; 32], vec![ZERO_ROW; 32], ZERO_ACC);
    // SAFETY: AMX is available; all operands have 32 rows, the left one every second row of 64.
    unsafe {
        transpose(gradient.as_ptr(), 2, left.as_mut_ptr());
        interleave_pairs(input.as_ptr().cast(), 64, 16, right.as_mut_ptr());
        let tiles = AmxTiles::configure();
        tiles.multiply(left_rows(left.as_ptr(), 1), &[0], paired_right(right.as_ptr()), sums.output(false));
    }
    for (output, sums) in sums.0.iter().enumerate() {
        for (sum, channel) in sums.iter().zip(PAIRED_ORDER) {
            let pixels = (0..32).map(|pixel| value(&gradient, 2 * pixel, output) * value(&input, pixel, channel));
            let expected: f64 = pixels.sum();
            assert!((f64::from(*sum) - expected).abs() < 1e-4, "{output} {channel}: {sum} instead of {expected}");
        }
    }
}
