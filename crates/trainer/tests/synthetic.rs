//! The synthetic images can be learned: a short training of the real network, equivalent to four ranks, classifies
//! unseen images.

use corro_collectives::optimizer::Optimizer;
use corro_trainer::compute::{Compute, Config, Isa, Precision};
use corro_trainer::data::{BatchPlan, BatchPrefetcher, Source, open, unaugmented_batch};
use corro_trainer::network::glorot_init::glorot_uniform;
use corro_trainer::network::{Batch, DropoutSeed, Score, Weights};
use corro_trainer::rmsprop::{self, RmsProp};

const SEED: u64 = 1;
const RANKS: usize = 4;
const BATCH: usize = 32;
const STEPS: u64 = 50;
const HELD_OUT: usize = 500;

#[test]
fn a_short_training_classifies_unseen_images() {
    let dataset = open(&Source::Synthetic { train: 5000, test: HELD_OUT, seed: SEED }).unwrap();
    let plan = |rank| BatchPlan { seed: SEED, rank, batch: BATCH, augment: true, first_epoch: 0, share: None };
    let mut prefetchers: Vec<_> =
        (0..RANKS).map(|rank| BatchPrefetcher::start(dataset.train.clone(), plan(rank))).collect();
    let batch = RANKS * BATCH;
    let mut compute = Compute::new(&Config { threads: 2, batch, precision: Precision::F32, isa: Isa::best() }).unwrap();
    let mut optimizer = RmsProp::new(&rmsprop::Config { rate: 5e-4, decay: 1e-6 }, compute.pool().clone());
    let (mut weights, mut gradients) = (glorot_uniform(SEED), Weights::zeros());
    let (mut images, mut labels) = (Vec::new(), Vec::new());
    for step in 0..STEPS {
        images.clear();
        labels.clear();
        for prefetcher in &mut prefetchers {
            let batch_item = prefetcher.next();
            images.extend_from_slice(batch_item.batch().images);
            labels.extend_from_slice(batch_item.batch().labels);
        }
        let dropout_seed = DropoutSeed { seed: SEED, step, first: 0 };
        compute.step(&weights, Batch { images: &images, labels: &labels }, Some(dropout_seed), &mut gradients);
        for (index, (parameter, gradient)) in weights.0.iter_mut().zip(&gradients.0).enumerate() {
            optimizer.step(index, parameter, gradient);
        }
    }
    let mut score = Score::default();
    for first in (0..HELD_OUT).step_by(batch) {
        let range = first..(first + batch).min(HELD_OUT);
        score += compute.score(&weights, unaugmented_batch(&dataset.test, range, &mut images));
    }
    assert_eq!(score.images, HELD_OUT);
    // A linear model reaches 40 % after a long training; chance is 10 %.
    assert!(score.correct * 2 > HELD_OUT, "{} of {HELD_OUT} images right with seed {SEED}", score.correct);
}
