//! The dense layers, over the whole batch: each weight is read once per pass and each gradient written once. Threads
//! split the first layer by columns in the forward pass and by rows in the backward pass, the rest by blocks of images.
//! Every value is computed by one thread in one order.

use std::sync::Mutex;

use super::convolutions::FEATURES;
use super::elementwise::{ReluDropout, ReluDropoutBackward};
use super::matmul::{AccInit, MatMul};
use super::pooling::DropoutMask;
use crate::compute::aligned::{AlignedBuf, BumpArena};
use crate::compute::disjoint_slice::DisjointSlice;
use crate::compute::simd::Simd;
use crate::network::{Batch, CLASSES, DROPOUTS, DropoutSeed, GradientSink, Score, Weights};
use crate::thread_pool::ThreadPool;

const HIDDEN: usize = DROPOUTS[2].size;
/// Number of classes, padded to whole vectors.
const PADDED_CLASSES: usize = 16;
/// Images per work item. Buffers have whole blocks; rows beyond the batch hold stale values.
const BLOCK: usize = 8;
/// In the backward pass of the first layer, vectors run over images: buffers are padded to a multiple of this many.
const LANES: usize = 32;
/// Columns of the first layer per work item in the forward pass; rows per work item in the backward pass.
const COLUMNS: usize = 128;
const ROWS: usize = 96;
/// Rows of the first layer that all images use before the next ones, so that they stay in the L1 cache.
const DEPTH: usize = 48;

pub struct Dense {
    /// Inputs of the layer; after [`Dense::backward`] their gradient.
    pub features: AlignedBuf,
    hidden: AlignedBuf,
    hidden_gradient: AlignedBuf,
    /// The hidden gradient transposed, with a row per unit and a column per image; and the resulting transposed
    /// gradient of the features.
    hidden_transposed: AlignedBuf,
    features_transposed: AlignedBuf,
    classes: AlignedBuf,
    last_kernel: AlignedBuf,
    last_kernel_transposed: AlignedBuf,
    last_bias: AlignedBuf,
    last_gradient: AlignedBuf,
    scores: Vec<Mutex<Score>>,
}

impl Dense {
    pub fn new(batch: usize) -> Dense {
        let rows = batch.next_multiple_of(BLOCK);
        Dense {
            features: Dense::features(batch, &mut BumpArena::default()),
            hidden: AlignedBuf::zeros(rows * HIDDEN),
            hidden_gradient: AlignedBuf::zeros(rows * HIDDEN),
            hidden_transposed: AlignedBuf::zeros(batch.next_multiple_of(LANES) * HIDDEN),
            features_transposed: AlignedBuf::zeros(batch.next_multiple_of(LANES) * FEATURES),
            classes: AlignedBuf::zeros(rows * PADDED_CLASSES),
            last_kernel: AlignedBuf::zeros(HIDDEN * PADDED_CLASSES),
            last_kernel_transposed: AlignedBuf::zeros(CLASSES * HIDDEN),
            last_bias: AlignedBuf::zeros(PADDED_CLASSES),
            last_gradient: AlignedBuf::zeros(HIDDEN * PADDED_CLASSES),
            scores: (0..rows / BLOCK).map(|_| Mutex::default()).collect(),
        }
    }

    /// Allocates the input buffer.
    pub fn features(batch: usize, arena: &mut BumpArena) -> AlignedBuf {
        arena.alloc(batch.next_multiple_of(BLOCK) * FEATURES)
    }

    pub fn load_weights(&mut self, weights: &Weights) {
        for (unit, kernel) in weights.0[10].chunks_exact(CLASSES).enumerate() {
            self.last_kernel[unit * PADDED_CLASSES..][..CLASSES].copy_from_slice(kernel);
            for (class, weight) in kernel.iter().enumerate() {
                self.last_kernel_transposed[class * HIDDEN + unit] = *weight;
            }
        }
        self.last_bias[..CLASSES].copy_from_slice(&weights.0[11]);
    }

    /// Forward pass: returns the score and computes the gradients of the hidden units before ReLU.
    pub fn forward<S: Simd>(
        &mut self,
        pool: &ThreadPool,
        weights: &Weights,
        batch: Batch<'_>,
        dropout_seed: Option<DropoutSeed>,
    ) -> Score {
        let n = batch.len();
        let rows = n.next_multiple_of(BLOCK);
        let (kernel, bias) = (&weights.0[8], &weights.0[9]);
        let features = &self.features;
        let hidden = DisjointSlice::new(&mut self.hidden);
        pool.for_each_task(HIDDEN / COLUMNS, &|_, task| {
            let column = task * COLUMNS;
            for depth in (0..FEATURES).step_by(DEPTH) {
                let matmul = MatMul {
                    scalars: features[depth..].as_ptr(),
                    scalars_row_stride: FEATURES,
                    scalars_step: 1,
                    vectors: kernel[depth * HIDDEN + column..].as_ptr(),
                    vectors_step: HIDDEN,
                    steps: DEPTH,
                    acc_init: if depth == 0 { AccInit::Row(bias[column..].as_ptr()) } else { AccInit::Out },
                    out: hidden.ptr_at(column),
                    out_row: HIDDEN,
                    rows,
                    columns: COLUMNS,
                };
                // SAFETY: features and hidden units have `rows` rows, and only this task writes these columns.
                unsafe { if const { S::LANES == 16 } { matmul.run::<S, 8, 2>() } else { matmul.run::<S, 4, 2>() } }
            }
        });

        let hidden_gradient = DisjointSlice::new(&mut self.hidden_gradient);
        let classes = DisjointSlice::new(&mut self.classes);
        let (last_kernel, last_kernel_transposed, last_bias) =
            (&self.last_kernel, &self.last_kernel_transposed, &self.last_bias);
        let scores = &self.scores;
        pool.for_each_task(rows / BLOCK, &|_, block| {
            let images = block * BLOCK..n.min((block + 1) * BLOCK);
            // SAFETY: only this task accesses the rows of its block.
            let hidden = unsafe { hidden.range_mut(block * BLOCK * HIDDEN..(block + 1) * BLOCK * HIDDEN) };
            let hidden_gradient =
                unsafe { hidden_gradient.range_mut(block * BLOCK * HIDDEN..(block + 1) * BLOCK * HIDDEN) };
            let classes =
                unsafe { classes.range_mut(block * BLOCK * PADDED_CLASSES..(block + 1) * BLOCK * PADDED_CLASSES) };
            for (image, hidden) in images.clone().zip(hidden.chunks_exact_mut(HIDDEN)) {
                ReluDropout {
                    values: hidden,
                    dropout: dropout_seed.map(|dropout_seed| DropoutMask::new(dropout_seed, image, 2)),
                }
                .run::<S>();
            }
            let matmul = MatMul {
                scalars: hidden.as_ptr(),
                scalars_row_stride: HIDDEN,
                scalars_step: 1,
                vectors: last_kernel.as_ptr(),
                vectors_step: PADDED_CLASSES,
                steps: HIDDEN,
                acc_init: AccInit::Row(last_bias.as_ptr()),
                out: classes.as_mut_ptr(),
                out_row: PADDED_CLASSES,
                rows: BLOCK,
                columns: PADDED_CLASSES,
            };
            // SAFETY: `hidden` and `classes` have `BLOCK` rows; the kernel and the bias are complete.
            unsafe { if const { S::LANES == 16 } { matmul.run::<S, 8, 1>() } else { matmul.run::<S, 4, 2>() } }
            let mut score = Score::default();
            for (image, classes) in images.zip(classes.chunks_exact_mut(PADDED_CLASSES)) {
                score += softmax(&mut classes[..CLASSES], usize::from(batch.labels[image]), n);
                classes[CLASSES..].fill(0.0);
            }
            *scores[block].lock().expect("nobody panics with a score") = score;
            let matmul = MatMul {
                scalars: classes.as_ptr(),
                scalars_row_stride: PADDED_CLASSES,
                scalars_step: 1,
                vectors: last_kernel_transposed.as_ptr(),
                vectors_step: HIDDEN,
                steps: CLASSES,
                acc_init: AccInit::Zero,
                out: hidden_gradient.as_mut_ptr(),
                out_row: HIDDEN,
                rows: BLOCK,
                columns: HIDDEN,
            };
            // SAFETY: `classes` and `hidden_gradient` have `BLOCK` rows; the kernel is complete.
            unsafe { if const { S::LANES == 16 } { matmul.run::<S, 8, 2>() } else { matmul.run::<S, 4, 2>() } }
            let scale = dropout_seed.map_or(1.0, |_| DROPOUTS[2].scale());
            ReluDropoutBackward { gradient: hidden_gradient, activations: hidden, scale }.run::<S>();
        });
        let mut score = Score::default();
        for block in &scores[..rows / BLOCK] {
            score += *block.lock().expect("nobody panics with a score");
        }
        score
    }

    /// Gradients of both layers, then of the features.
    pub fn backward<S: Simd>(
        &mut self,
        pool: &ThreadPool,
        weights: &Weights,
        n: usize,
        gradients: &mut dyn GradientSink,
    ) {
        let matmul = MatMul {
            scalars: self.hidden.as_ptr(),
            scalars_row_stride: 1,
            scalars_step: HIDDEN,
            vectors: self.classes.as_ptr(),
            vectors_step: PADDED_CLASSES,
            steps: n,
            acc_init: AccInit::Zero,
            out: self.last_gradient.as_mut_ptr(),
            out_row: PADDED_CLASSES,
            rows: HIDDEN,
            columns: PADDED_CLASSES,
        };
        // SAFETY: hidden units and classes have at least `n` rows, and the gradient buffer is complete.
        unsafe { if const { S::LANES == 16 } { matmul.run::<S, 8, 1>() } else { matmul.run::<S, 4, 2>() } }
        let nonzero_rows = self.last_gradient.chunks_exact(PADDED_CLASSES);
        for (buffer, gradient) in gradients.buffer(10).chunks_exact_mut(CLASSES).zip(nonzero_rows) {
            buffer.copy_from_slice(&gradient[..CLASSES]);
        }
        gradients.ready(10);
        sum_rows(&self.classes[..n * PADDED_CLASSES], PADDED_CLASSES, gradients.buffer(11));
        gradients.ready(11);

        let (features, hidden_gradient) = (&self.features, &self.hidden_gradient);
        let buffer = DisjointSlice::new(gradients.buffer(8));
        pool.for_each_task(FEATURES / ROWS, &|_, task| {
            let row = task * ROWS;
            let matmul = MatMul {
                scalars: features[row..].as_ptr(),
                scalars_row_stride: 1,
                scalars_step: FEATURES,
                vectors: hidden_gradient.as_ptr(),
                vectors_step: HIDDEN,
                steps: n,
                acc_init: AccInit::Zero,
                out: buffer.ptr_at(row * HIDDEN),
                out_row: HIDDEN,
                rows: ROWS,
                columns: HIDDEN,
            };
            // SAFETY: features and hidden gradients have at least `n` rows, and only this task writes these rows of the
            // gradient.
            unsafe { if const { S::LANES == 16 } { matmul.run::<S, 12, 2>() } else { matmul.run::<S, 6, 2>() } }
        });
        gradients.ready(8);
        sum_rows(&self.hidden_gradient[..n * HIDDEN], HIDDEN, gradients.buffer(9));
        gradients.ready(9);

        self.features_gradient::<S>(pool, weights, n);
    }

    /// Gradient of the features. The first kernel is read row by row as stored: its weights are the scalars, and
    /// vectors run over images.
    fn features_gradient<S: Simd>(&mut self, pool: &ThreadPool, weights: &Weights, n: usize) {
        let images = n.next_multiple_of(LANES);
        for (unit, transposed) in self.hidden_transposed.chunks_exact_mut(images).take(HIDDEN).enumerate() {
            for (value, gradient) in transposed.iter_mut().zip(self.hidden_gradient.chunks_exact(HIDDEN)) {
                *value = gradient[unit];
            }
        }
        let (kernel, hidden_transposed) = (&weights.0[8], &self.hidden_transposed);
        let features_transposed = DisjointSlice::new(&mut self.features_transposed);
        let features = DisjointSlice::new(&mut self.features);
        pool.for_each_task(FEATURES / ROWS, &|_, task| {
            let row = task * ROWS;
            // SAFETY: only this task accesses these rows.
            let transposed = unsafe { features_transposed.range_mut(row * images..(row + ROWS) * images) };
            let matmul = MatMul {
                scalars: kernel[row * HIDDEN..].as_ptr(),
                scalars_row_stride: HIDDEN,
                scalars_step: 1,
                vectors: hidden_transposed.as_ptr(),
                vectors_step: images,
                steps: HIDDEN,
                acc_init: AccInit::Zero,
                out: transposed.as_mut_ptr(),
                out_row: images,
                rows: ROWS,
                columns: images,
            };
            // SAFETY: the kernel has these rows, and `hidden_transposed` has a row per hidden unit.
            unsafe { if const { S::LANES == 16 } { matmul.run::<S, 12, 2>() } else { matmul.run::<S, 6, 2>() } }
            for image in 0..n {
                // SAFETY: only this task writes these columns of the features.
                let features = unsafe { features.range_mut(image * FEATURES + row..image * FEATURES + row + ROWS) };
                for (feature, transposed) in features.iter_mut().zip(transposed.chunks_exact(images)) {
                    *feature = transposed[image];
                }
            }
        });
    }
}

/// Score of one image. Replaces the logits by the gradient of the mean loss over `n` images.
fn softmax(classes: &mut [f32], label: usize, n: usize) -> Score {
    let mut best = 0;
    for class in 1..CLASSES {
        if classes[class] > classes[best] {
            best = class;
        }
    }
    let highest = classes[best];
    let label_logit = f64::from(classes[label] - highest);
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
    Score { loss: sum.ln() - label_logit, correct: usize::from(best == label), images: 1 }
}

/// Sums the rows of a matrix with `size` columns, as many columns as `sums` has.
fn sum_rows(matrix: &[f32], size: usize, sums: &mut [f32]) {
    sums.fill(0.0);
    for row in matrix.chunks_exact(size) {
        for (sum, value) in sums.iter_mut().zip(row) {
            *sum += value;
        }
    }
}
