//! The dense layers, over the whole batch: each weight is read once a pass, each gradient written once. Threads share the first layer by
//! columns forward and by rows backward, the rest by blocks of images; every number is made by one thread in one order.

use std::sync::Mutex;

use super::convolutions::FEATURES;
use super::elementwise::{Activate, Gate};
use super::pooling::Drops;
use super::product::{Product, Start};
use crate::compute::aligned::{Aligned, Shelf};
use crate::compute::parts::Parts;
use crate::compute::simd::Simd;
use crate::network::{Batch, CLASSES, DROPOUTS, Gradients, Noise, Score, Weights};
use crate::threads::Pool;

const HIDDEN: usize = DROPOUTS[2].size;
/// Classes, filled up with zeros to whole vectors.
const FILLED: usize = 16;
/// Images that one thread takes at once. Rooms are for whole blocks; rows behind the batch hold whatever was there.
const BLOCK: usize = 8;
/// Images are numbers in vectors where the first layer is gone through backward: rooms there are for so many of them at least.
const LANES: usize = 32;
/// Columns of the first layer that a thread takes at once forward, rows of it backward.
const COLUMNS: usize = 128;
const ROWS: usize = 96;
/// Rows of the first layer that all images go through before the next ones: what stays in the first cache.
const DEPTH: usize = 48;

pub struct Dense {
    /// What goes in; after [`Dense::backward`] its gradient.
    pub features: Aligned,
    hidden: Aligned,
    hidden_gradient: Aligned,
    /// The same with rows and columns changed, `images` numbers a row; and what follows from it for the features.
    hidden_turned: Aligned,
    features_turned: Aligned,
    classes: Aligned,
    last_kernel: Aligned,
    last_turned: Aligned,
    last_bias: Aligned,
    last_gradient: Aligned,
    scores: Vec<Mutex<Score>>,
}

impl Dense {
    pub fn new(batch: usize) -> Dense {
        let rows = batch.next_multiple_of(BLOCK);
        Dense {
            features: Dense::features(batch, &mut Shelf::default()),
            hidden: Aligned::zeros(rows * HIDDEN),
            hidden_gradient: Aligned::zeros(rows * HIDDEN),
            hidden_turned: Aligned::zeros(batch.next_multiple_of(LANES) * HIDDEN),
            features_turned: Aligned::zeros(batch.next_multiple_of(LANES) * FEATURES),
            classes: Aligned::zeros(rows * FILLED),
            last_kernel: Aligned::zeros(HIDDEN * FILLED),
            last_turned: Aligned::zeros(CLASSES * HIDDEN),
            last_bias: Aligned::zeros(FILLED),
            last_gradient: Aligned::zeros(HIDDEN * FILLED),
            scores: (0..rows / BLOCK).map(|_| Mutex::default()).collect(),
        }
    }

    /// Room for what goes in.
    pub fn features(batch: usize, shelf: &mut Shelf) -> Aligned {
        shelf.take(batch.next_multiple_of(BLOCK) * FEATURES)
    }

    pub fn take(&mut self, weights: &Weights) {
        for (unit, kernel) in weights.0[10].chunks_exact(CLASSES).enumerate() {
            self.last_kernel[unit * FILLED..][..CLASSES].copy_from_slice(kernel);
            for (class, weight) in kernel.iter().enumerate() {
                self.last_turned[class * HIDDEN + unit] = *weight;
            }
        }
        self.last_bias[..CLASSES].copy_from_slice(&weights.0[11]);
    }

    /// From features to scores, and to the gradients of the hidden units' sums.
    pub fn forward<S: Simd>(
        &mut self,
        pool: &Pool,
        weights: &Weights,
        batch: Batch<'_>,
        noise: Option<Noise>,
    ) -> Score {
        let n = batch.len();
        let rows = n.next_multiple_of(BLOCK);
        let (kernel, bias) = (&weights.0[8], &weights.0[9]);
        let features = &self.features;
        let hidden = Parts::of(&mut self.hidden);
        pool.share(HIDDEN / COLUMNS, &|_, task| {
            let column = task * COLUMNS;
            for depth in (0..FEATURES).step_by(DEPTH) {
                let product = Product {
                    numbers: features[depth..].as_ptr(),
                    numbers_row: FEATURES,
                    numbers_turn: 1,
                    vectors: kernel[depth * HIDDEN + column..].as_ptr(),
                    vectors_turn: HIDDEN,
                    turns: DEPTH,
                    start: if depth == 0 { Start::Row(bias[column..].as_ptr()) } else { Start::Out },
                    out: hidden.at(column),
                    out_row: HIDDEN,
                    rows,
                    columns: COLUMNS,
                };
                // SAFETY: `rows` rows of features and hidden units are there, and these columns are this task's alone.
                unsafe { if const { S::LANES == 16 } { product.run::<S, 8, 2>() } else { product.run::<S, 4, 2>() } }
            }
        });

        let hidden_gradient = Parts::of(&mut self.hidden_gradient);
        let classes = Parts::of(&mut self.classes);
        let (last_kernel, last_turned, last_bias) = (&self.last_kernel, &self.last_turned, &self.last_bias);
        let scores = &self.scores;
        pool.share(rows / BLOCK, &|_, block| {
            let images = block * BLOCK..n.min((block + 1) * BLOCK);
            // SAFETY: the rows of a block are this task's alone.
            let hidden = unsafe { hidden.part(block * BLOCK * HIDDEN..(block + 1) * BLOCK * HIDDEN) };
            let hidden_gradient = unsafe { hidden_gradient.part(block * BLOCK * HIDDEN..(block + 1) * BLOCK * HIDDEN) };
            let classes = unsafe { classes.part(block * BLOCK * FILLED..(block + 1) * BLOCK * FILLED) };
            for (image, hidden) in images.clone().zip(hidden.chunks_exact_mut(HIDDEN)) {
                Activate { values: hidden, drops: noise.map(|noise| Drops::of(noise, image, 2)) }.run::<S>();
            }
            let product = Product {
                numbers: hidden.as_ptr(),
                numbers_row: HIDDEN,
                numbers_turn: 1,
                vectors: last_kernel.as_ptr(),
                vectors_turn: FILLED,
                turns: HIDDEN,
                start: Start::Row(last_bias.as_ptr()),
                out: classes.as_mut_ptr(),
                out_row: FILLED,
                rows: BLOCK,
                columns: FILLED,
            };
            // SAFETY: a block of hidden units, all of the last kernel and a block of classes are there.
            unsafe { if const { S::LANES == 16 } { product.run::<S, 8, 1>() } else { product.run::<S, 4, 2>() } }
            let mut score = Score::default();
            for (image, classes) in images.zip(classes.chunks_exact_mut(FILLED)) {
                score += softmax(&mut classes[..CLASSES], usize::from(batch.labels[image]), n);
                classes[CLASSES..].fill(0.0);
            }
            *scores[block].lock().expect("nobody panics with a score") = score;
            let product = Product {
                numbers: classes.as_ptr(),
                numbers_row: FILLED,
                numbers_turn: 1,
                vectors: last_turned.as_ptr(),
                vectors_turn: HIDDEN,
                turns: CLASSES,
                start: Start::Zero,
                out: hidden_gradient.as_mut_ptr(),
                out_row: HIDDEN,
                rows: BLOCK,
                columns: HIDDEN,
            };
            // SAFETY: a block of classes, all of the last kernel and a block of hidden units are there.
            unsafe { if const { S::LANES == 16 } { product.run::<S, 8, 2>() } else { product.run::<S, 4, 2>() } }
            let scale = noise.map_or(1.0, |_| DROPOUTS[2].scale());
            Gate { gradient: hidden_gradient, activations: hidden, scale }.run::<S>();
        });
        let mut score = Score::default();
        for block in &scores[..rows / BLOCK] {
            score += *block.lock().expect("nobody panics with a score");
        }
        score
    }

    /// The gradients of both layers, then that of the features.
    pub fn backward<S: Simd>(&mut self, pool: &Pool, weights: &Weights, n: usize, gradients: &mut dyn Gradients) {
        let product = Product {
            numbers: self.hidden.as_ptr(),
            numbers_row: 1,
            numbers_turn: HIDDEN,
            vectors: self.classes.as_ptr(),
            vectors_turn: FILLED,
            turns: n,
            start: Start::Zero,
            out: self.last_gradient.as_mut_ptr(),
            out_row: FILLED,
            rows: HIDDEN,
            columns: FILLED,
        };
        // SAFETY: `n` rows of hidden units and classes, and the whole gradient are there.
        unsafe { if const { S::LANES == 16 } { product.run::<S, 8, 1>() } else { product.run::<S, 4, 2>() } }
        let filled = self.last_gradient.chunks_exact(FILLED);
        for (room, gradient) in gradients.room(10).chunks_exact_mut(CLASSES).zip(filled) {
            room.copy_from_slice(&gradient[..CLASSES]);
        }
        gradients.ready(10);
        sum_rows(&self.classes[..n * FILLED], FILLED, gradients.room(11));
        gradients.ready(11);

        let (features, hidden_gradient) = (&self.features, &self.hidden_gradient);
        let room = Parts::of(gradients.room(8));
        pool.share(FEATURES / ROWS, &|_, task| {
            let row = task * ROWS;
            let product = Product {
                numbers: features[row..].as_ptr(),
                numbers_row: 1,
                numbers_turn: FEATURES,
                vectors: hidden_gradient.as_ptr(),
                vectors_turn: HIDDEN,
                turns: n,
                start: Start::Zero,
                out: room.at(row * HIDDEN),
                out_row: HIDDEN,
                rows: ROWS,
                columns: HIDDEN,
            };
            // SAFETY: `n` rows of features and hidden units are there, and these rows of the gradient are this task's alone.
            unsafe { if const { S::LANES == 16 } { product.run::<S, 12, 2>() } else { product.run::<S, 6, 2>() } }
        });
        gradients.ready(8);
        sum_rows(&self.hidden_gradient[..n * HIDDEN], HIDDEN, gradients.room(9));
        gradients.ready(9);

        self.features_gradient::<S>(pool, weights, n);
    }

    /// The product with the first kernel as it lies, row by row: its weights are the numbers, and the vectors go over the images.
    fn features_gradient<S: Simd>(&mut self, pool: &Pool, weights: &Weights, n: usize) {
        let images = n.next_multiple_of(LANES);
        for (unit, turned) in self.hidden_turned.chunks_exact_mut(images).take(HIDDEN).enumerate() {
            for (value, gradient) in turned.iter_mut().zip(self.hidden_gradient.chunks_exact(HIDDEN)) {
                *value = gradient[unit];
            }
        }
        let (kernel, hidden_turned) = (&weights.0[8], &self.hidden_turned);
        let features_turned = Parts::of(&mut self.features_turned);
        let features = Parts::of(&mut self.features);
        pool.share(FEATURES / ROWS, &|_, task| {
            let row = task * ROWS;
            // SAFETY: these rows are this task's alone.
            let turned = unsafe { features_turned.part(row * images..(row + ROWS) * images) };
            let product = Product {
                numbers: kernel[row * HIDDEN..].as_ptr(),
                numbers_row: HIDDEN,
                numbers_turn: 1,
                vectors: hidden_turned.as_ptr(),
                vectors_turn: images,
                turns: HIDDEN,
                start: Start::Zero,
                out: turned.as_mut_ptr(),
                out_row: images,
                rows: ROWS,
                columns: images,
            };
            // SAFETY: these rows of the kernel and all hidden units are there.
            unsafe { if const { S::LANES == 16 } { product.run::<S, 12, 2>() } else { product.run::<S, 6, 2>() } }
            for image in 0..n {
                // SAFETY: these columns of the features are this task's alone.
                let features = unsafe { features.part(image * FEATURES + row..image * FEATURES + row + ROWS) };
                for (feature, turned) in features.iter_mut().zip(turned.chunks_exact(images)) {
                    *feature = turned[image];
                }
            }
        });
    }
}

/// What the network thinks of one image: its score, and instead of the sums their gradient of the mean loss over `n` images.
fn softmax(classes: &mut [f32], label: usize, n: usize) -> Score {
    let mut best = 0;
    for class in 1..CLASSES {
        if classes[class] > classes[best] {
            best = class;
        }
    }
    let highest = classes[best];
    let right = f64::from(classes[label] - highest);
    let mut sum = 0.0;
    for class in classes.iter_mut() {
        *class = (*class - highest).exp();
        sum += f64::from(*class);
    }
    for class in classes.iter_mut() {
        *class = (f64::from(*class) / sum) as f32;
    }
    classes[label] -= 1.0;
    for class in classes.iter_mut() {
        *class /= n as f32;
    }
    Score { loss: sum.ln() - right, right: usize::from(best == label), images: 1 }
}

/// Of a matrix with rows of `size`: as much of the sum over rows as there is room.
fn sum_rows(matrix: &[f32], size: usize, sums: &mut [f32]) {
    sums.fill(0.0);
    for row in matrix.chunks_exact(size) {
        for (sum, value) in sums.iter_mut().zip(row) {
            *sum += value;
        }
    }
}
