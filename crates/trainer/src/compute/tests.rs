//! Complete steps and scores against the reference, on every instruction set of this CPU and with several numbers of
//! threads.

use super::*;
use crate::network::glorot_init::glorot_uniform;
use crate::network::{IMAGE, PARAMETERS, reference};
use crate::random::Random;

const DROPOUT_SEED: DropoutSeed = DropoutSeed { seed: 3, step: 4, first: 5 };

struct Case {
    weights: Weights,
    images: Vec<f32>,
    labels: Vec<u8>,
}

impl Case {
    fn new(n: usize) -> Case {
        let mut random = Random::from_key(&[21]);
        let mut weights = glorot_uniform(21);
        weights.0.iter_mut().skip(1).step_by(2).flatten().for_each(|bias| *bias = 0.2 * random.uniform() - 0.1);
        let images = (0..n * IMAGE).map(|_| random.uniform()).collect();
        Case { weights, images, labels: (0..n).map(|_| random.below(10) as u8).collect() }
    }

    /// `n` images starting at `first`.
    fn batch(&self, first: usize, n: usize) -> Batch<'_> {
        Batch { images: &self.images[first * IMAGE..][..n * IMAGE], labels: &self.labels[first..][..n] }
    }
}

fn compute(isa: Isa, threads: usize, batch: usize) -> Compute {
    Compute::new(&Config { threads, batch, precision: Precision::F32, isa }).expect("this processor has it")
}

fn supported_isas() -> impl Iterator<Item = Isa> {
    Isa::ALL.into_iter().filter(|isa| isa.is_supported())
}

/// Gradients may differ by rounding, also where rounding decides which of two values is the maximum. The norm of the
/// difference is bounded.
fn check_gradients(what: &str, given: &Weights, wanted: &Weights) {
    for (parameter, (given, wanted)) in PARAMETERS.iter().zip(given.0.iter().zip(&wanted.0)) {
        let norm =
            |values: &mut dyn Iterator<Item = f32>| values.map(|value| f64::from(value).powi(2)).sum::<f64>().sqrt();
        let apart = norm(&mut given.iter().zip(wanted).map(|(given, wanted)| given - wanted));
        let size = norm(&mut wanted.iter().copied());
        assert!(apart <= 1e-4 * size, "{what}, {}: {apart} apart, of {size}", parameter.name());
    }
}

fn check_score(what: &str, given: Score, wanted: Score) {
    assert_eq!((given.correct, given.images), (wanted.correct, wanted.images), "{what}");
    assert!((given.loss - wanted.loss).abs() < 1e-5 * wanted.loss, "{what}: {given:?} instead of {wanted:?}");
}

#[test]
fn steps_match_the_reference_on_every_instruction_set() {
    let case = Case::new(5);
    for (n, dropout_seed) in [(1, None), (5, Some(DROPOUT_SEED))] {
        let mut wanted = Weights::zeros();
        let wanted_score = reference::step(&case.weights, case.batch(0, n), dropout_seed, &mut wanted);
        for isa in supported_isas() {
            let what = format!("{isa:?}, {n} images, {dropout_seed:?}");
            let mut given = Weights::zeros();
            let score = compute(isa, 2, 5).step(&case.weights, case.batch(0, n), dropout_seed, &mut given);
            check_score(&what, score, wanted_score);
            check_gradients(&what, &given, &wanted);
        }
    }
}

#[test]
fn scores_match_the_reference_on_every_instruction_set() {
    let case = Case::new(9);
    let wanted = reference::score(&case.weights, case.batch(0, 9));
    for isa in supported_isas() {
        let mut compute = compute(isa, 2, 11);
        check_score(&format!("{isa:?}"), compute.score(&case.weights, case.batch(0, 9)), wanted);
    }
}

#[test]
fn results_do_not_depend_on_threads_or_earlier_steps() {
    let case = Case::new(37);
    for n in [1, 5, 32, 37] {
        let mut wanted = Weights::zeros();
        let wanted_score =
            compute(Isa::best(), 1, n).step(&case.weights, case.batch(0, n), Some(DROPOUT_SEED), &mut wanted);
        for threads in [2, 3] {
            let mut compute = compute(Isa::best(), threads, 37);
            let mut given = Weights::zeros();
            compute.step(&case.weights, case.batch(0, 37), None, &mut given);
            compute.score(&case.weights, case.batch(3, 20));
            let score = compute.step(&case.weights, case.batch(0, n), Some(DROPOUT_SEED), &mut given);
            assert_eq!(score, wanted_score, "{n} images, {threads} threads");
            assert!(given == wanted, "{n} images, {threads} threads");
        }
    }
}

#[test]
fn a_large_batch_has_the_mean_gradients_of_small_batches() {
    let case = Case::new(72);
    let mut compute = compute(Isa::best(), 2, 72);
    let (mut whole, mut mean) = (Weights::zeros(), Weights::zeros());
    let whole_score = compute.step(&case.weights, case.batch(0, 72), Some(DROPOUT_SEED), &mut whole);
    let mut score = Score::default();
    for first in (0..72).step_by(6) {
        let mut part = Weights::zeros();
        let dropout_seed = DropoutSeed { first: DROPOUT_SEED.first + first as u64, ..DROPOUT_SEED };
        score += compute.step(&case.weights, case.batch(first, 6), Some(dropout_seed), &mut part);
        let parts = part.0.iter().flatten();
        mean.0.iter_mut().flatten().zip(parts).for_each(|(mean, part)| *mean += part / 12.0);
    }
    check_score("72 images", whole_score, score);
    check_gradients("72 images", &whole, &mean);
}

/// Records which gradients are announced, and fills buffers with NaN first, so that every value must be written.
struct RecordingSink {
    gradients: Weights,
    given: Vec<usize>,
    ready: Vec<usize>,
}

impl GradientSink for RecordingSink {
    fn buffer(&mut self, parameter: usize) -> &mut [f32] {
        self.given.push(parameter);
        self.gradients.0[parameter].fill(f32::NAN);
        &mut self.gradients.0[parameter]
    }

    fn ready(&mut self, parameter: usize) {
        assert!(self.gradients.0[parameter].iter().all(|value| value.is_finite()), "{}", PARAMETERS[parameter].name());
        self.ready.push(parameter);
    }
}

#[test]
fn gradients_are_ready_once_and_last_layers_first() {
    let case = Case::new(3);
    let mut sink = RecordingSink { gradients: Weights::zeros(), given: Vec::new(), ready: Vec::new() };
    compute(Isa::best(), 2, 3).step(&case.weights, case.batch(0, 3), Some(DROPOUT_SEED), &mut sink);
    assert_eq!(sink.ready, [10, 11, 8, 9, 6, 7, 4, 5, 2, 3, 0, 1]);
    assert_eq!(sink.given, sink.ready);
}

#[test]
fn unsupported_instruction_sets_are_rejected() {
    let config = Config { threads: 1, batch: 1, precision: Precision::F32, isa: Isa::best() };
    for isa in Isa::ALL {
        let made = Compute::new(&Config { isa, ..config.clone() });
        assert_eq!(made.err(), (!isa.is_supported()).then_some(Unsupported::Isa(isa)));
    }
}
