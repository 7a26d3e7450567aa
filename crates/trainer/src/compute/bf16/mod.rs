//! Step engine with bfloat16 products on AMX tiles. Weights, sums, loss and gradients are single precision; only the
//! operands of multiplications are rounded. Available only on CPUs with AMX.
//!
//! # Reading order
//!
//! `amx` multiplies blocks of tiles, `tile_layout` has their operands. `forward` and `backward` process one image
//! through the convolutions, with `kernels`, `first_conv_patches` and `pooling`. `dense` and `logits` process the batch
//! through the remaining layers. This module runs the stages in order.
//!
//! A stage is a set of items that threads claim one by one (`parallel_for`). Images form groups that depend on the
//! batch size alone. Each group has its own sums, which are added in the order of the groups. Results are therefore
//! bit-identical for every number of threads.

mod amx;
mod backward;
mod dense;
mod first_conv_patches;
mod forward;
mod gradient_reduce;
mod kernels;
mod logits;
mod parallel_for;
mod pooling;
#[cfg(test)]
mod tests;
mod tile_layout;

use std::ops::Range;

use super::disjoint_slice::DisjointSlice;
use super::{StepEngine, split_in_halves};
use crate::network::{Batch, CLASSES, DropoutSeed, GradientSink, IMAGE, Score, Weights};
use crate::thread_pool::ThreadPool;
pub use amx::has_amx;
use dense::{Dense, OUTPUTS};
use forward::Activations;
use gradient_reduce::ConvGradients;
use kernels::PackedKernels;
use logits::{ImageLoss, OutputLayer};
use parallel_for::parallel_for;

/// Buffers for the steps of one rank.
pub struct AmxEngine {
    kernels: PackedKernels,
    output_layer: OutputLayer,
    /// By image.
    activations: Vec<Activations>,
    losses: Vec<ImageLoss>,
    dense: Dense,
    /// By group.
    group_sums: Vec<backward::GroupSums>,
    conv_gradients: ConvGradients,
    output_gradients: OutputGradients,
    /// By thread.
    scratch: Vec<Scratch>,
}

struct Scratch {
    forward: forward::Scratch,
    dense: dense::Scratch,
    backward: backward::Scratch,
}

/// Gradients of the dense bias and of the output kernel.
struct OutputGradients {
    bias: Vec<f32>,
    kernel: Vec<[f32; CLASSES]>,
}

/// A group has at least eight images, so that adding the groups costs little. There are at most 16 groups, so that
/// their sums stay in cache.
const MIN_GROUP_IMAGES: usize = 8;
const MAX_GROUPS: usize = 16;
/// Number of work items for [`OutputGradients`].
const OUTPUT_PARTS: usize = 8;

impl AmxEngine {
    /// For batches of up to `batch` images. Panics unless [`has_amx`] is true.
    pub fn new(batch: usize, threads: usize) -> AmxEngine {
        assert!(has_amx(), "AMX is required");
        let dense = Dense::new(batch);
        let scratch = |_| Scratch {
            forward: forward::Scratch::new(),
            dense: dense.scratch(),
            backward: backward::Scratch::new(),
        };
        AmxEngine {
            kernels: PackedKernels::new(),
            output_layer: OutputLayer::new(),
            activations: (0..batch).map(|_| Activations::new()).collect(),
            losses: vec![ImageLoss::default(); batch.next_multiple_of(32)],
            group_sums: (0..MAX_GROUPS.min(batch.div_ceil(MIN_GROUP_IMAGES)))
                .map(|_| backward::GroupSums::new())
                .collect(),
            conv_gradients: ConvGradients::new(),
            output_gradients: OutputGradients { bias: vec![0.0; OUTPUTS], kernel: vec![[0.0; CLASSES]; OUTPUTS] },
            scratch: (0..threads.max(1)).map(scratch).collect(),
            dense,
        }
    }
}

impl StepEngine for AmxEngine {
    fn step(
        &mut self,
        pool: &ThreadPool,
        weights: &Weights,
        batch: Batch<'_>,
        dropout_seed: Option<DropoutSeed>,
        gradients: &mut dyn GradientSink,
    ) -> Score {
        self.pack(pool, weights);
        self.convolutions(pool, weights, batch, dropout_seed);
        self.dense(pool, weights, batch.len(), dropout_seed.is_some());
        self.logits(pool, batch, dropout_seed.is_some());
        self.dense_backward(pool, weights, batch.len(), dropout_seed.is_some(), gradients);
        self.convolutions_backward(pool, weights, batch, dropout_seed.is_some(), gradients);
        self.total_score(batch.len())
    }

    fn score(&mut self, pool: &ThreadPool, weights: &Weights, batch: Batch<'_>) -> Score {
        self.pack(pool, weights);
        self.convolutions(pool, weights, batch, None);
        self.dense(pool, weights, batch.len(), false);
        self.logits(pool, batch, false);
        self.total_score(batch.len())
    }
}

/// The stages of a step. Their items call AVX-512 functions, which is sound since `AmxEngine` is only created if
/// `has_amx` is true. A thread runs one item at a time, so it has exclusive access to its scratch buffers.
impl AmxEngine {
    fn pack(&mut self, pool: &ThreadPool, weights: &Weights) {
        let mut parts = self.kernels.parts();
        let parts = DisjointSlice::new(&mut parts);
        let output_layer = DisjointSlice::new(std::slice::from_mut(&mut self.output_layer));
        parallel_for(pool, kernels::N_PARTS + 1, |_, _, item| {
            // SAFETY: each item is claimed once and packs its own part.
            unsafe {
                if item == kernels::N_PARTS {
                    output_layer.item_mut(0).pack(weights);
                } else {
                    let (part, rows) = parts.item_mut(item);
                    part.pack(weights, rows);
                }
            }
        });
    }

    fn convolutions(
        &mut self,
        pool: &ThreadPool,
        weights: &Weights,
        batch: Batch<'_>,
        dropout_seed: Option<DropoutSeed>,
    ) {
        let forward = forward::Forward { kernels: &self.kernels, weights };
        let (activations, scratch) = (DisjointSlice::new(&mut self.activations), DisjointSlice::new(&mut self.scratch));
        let (inputs, keep_masks) =
            (DisjointSlice::new(&mut self.dense.inputs), DisjointSlice::new(&mut self.dense.keep_masks));
        parallel_for(pool, batch.len(), |tiles, thread, image| {
            let key = |layer: usize| dropout_seed.map(|dropout_seed| dropout_seed.key(image, layer));
            let pixels = &batch.images[image * IMAGE..][..IMAGE];
            // SAFETY: an item accesses the buffers of its own image and of its thread.
            unsafe {
                let out = inputs.range_mut(image * dense::INPUT_ROWS..(image + 1) * dense::INPUT_ROWS);
                let scratch = &mut scratch.item_mut(thread).forward;
                forward.image(tiles, pixels, [key(0), key(1)], scratch, activations.item_mut(image), out);
                pooling::draw_keep_mask(2, key(2), keep_masks.item_mut(image));
            }
        });
    }

    fn dense(&mut self, pool: &ThreadPool, weights: &Weights, images: usize, drops: bool) {
        let forward = dense::Forward {
            blocks: images.div_ceil(32),
            kernel: &weights.0[8],
            bias: &weights.0[9],
            scale: pooling::dropout_scale(2, drops),
            inputs: &self.dense.inputs,
            keep_masks: &self.dense.keep_masks,
            outputs: DisjointSlice::new(&mut self.dense.outputs),
        };
        let scratch = DisjointSlice::new(&mut self.scratch);
        // SAFETY: an item accesses the scratch buffers of its own thread.
        parallel_for(pool, dense::SLICES, |tiles, thread, slice| unsafe {
            forward.slice(tiles, slice, &mut scratch.item_mut(thread).dense);
        });
    }

    /// Losses, and the gradients of the dense layer's outputs, also for padding rows of the last block.
    fn logits(&mut self, pool: &ThreadPool, batch: Batch<'_>, drops: bool) {
        let (blocks, share) = (batch.len().div_ceil(32), 1.0 / batch.len() as f32);
        let (output_layer, outputs, scale) =
            (&self.output_layer, self.dense.outputs.as_chunks().0, pooling::dropout_scale(2, drops));
        let (losses, gradients) =
            (DisjointSlice::new(&mut self.losses), DisjointSlice::new(self.dense.gradients.as_chunks_mut().0));
        let (over_images, over_outputs) =
            (DisjointSlice::new(&mut self.dense.over_images), DisjointSlice::new(&mut self.dense.over_outputs));
        parallel_for(pool, blocks * 2, |_, _, item| {
            let images = item * 16..(item + 1) * 16;
            // SAFETY: an item accesses the buffers of its own 16 images.
            unsafe {
                let (losses, gradients) = (losses.range_mut(images.clone()), gradients.range_mut(images.clone()));
                for ((image, loss), gradients) in images.zip(losses).zip(&mut *gradients) {
                    *loss = match batch.labels.get(image) {
                        Some(label) => output_layer.forward(&outputs[image], *label, share),
                        None => ImageLoss::default(),
                    };
                    output_layer.backward(loss, &outputs[image], scale, gradients);
                }
                let block_half = (item / 2, item % 2);
                dense::pack_gradients(gradients.as_flattened(), block_half, blocks, &over_images, &over_outputs);
            }
        });
    }

    fn dense_backward(
        &mut self,
        pool: &ThreadPool,
        weights: &Weights,
        images: usize,
        drops: bool,
        gradients: &mut dyn GradientSink,
    ) {
        let backward = dense::Backward {
            blocks: images.div_ceil(32),
            kernel: &weights.0[8],
            scale: pooling::dropout_scale(1, drops),
            inputs: &self.dense.inputs,
            over_images: &self.dense.over_images,
            over_outputs: &self.dense.over_outputs,
            steps: &self.dense.steps,
            input_gradients: DisjointSlice::new(&mut self.dense.input_gradients),
            kernel_gradient: DisjointSlice::new(gradients.buffer(8)),
        };
        let (bias, kernel) = (
            DisjointSlice::new(&mut self.output_gradients.bias),
            DisjointSlice::new(&mut self.output_gradients.kernel),
        );
        let (losses, outputs, back) = (&self.losses[..images], &self.dense.outputs, &self.dense.gradients);
        let scratch = DisjointSlice::new(&mut self.scratch);
        parallel_for(pool, OUTPUT_PARTS + dense::BLOCKS, |tiles, thread, item| {
            // SAFETY: an item accesses its own columns or its own block of inputs, and the scratch buffers of its
            // thread.
            unsafe {
                if item < OUTPUT_PARTS {
                    let part = item * OUTPUTS / OUTPUT_PARTS..(item + 1) * OUTPUTS / OUTPUT_PARTS;
                    let (bias, kernel) = (bias.range_mut(part.clone()), kernel.range_mut(part.clone()));
                    logits::output_layer_gradients(part.start, losses, outputs, back, bias, kernel);
                } else {
                    backward.block(tiles, item - OUTPUT_PARTS, &mut scratch.item_mut(thread).dense);
                }
            }
        });
        let mut last_bias = [0.0; CLASSES];
        for loss in losses {
            last_bias.iter_mut().zip(&loss.gradient).for_each(|(sum, gradient)| *sum += gradient);
        }
        gradients.buffer(11).copy_from_slice(&last_bias);
        gradients.ready(11);
        gradients.buffer(10).copy_from_slice(self.output_gradients.kernel.as_flattened());
        gradients.ready(10);
        gradients.buffer(9).copy_from_slice(&self.output_gradients.bias);
        gradients.ready(9);
        gradients.ready(8);
    }

    fn convolutions_backward(
        &mut self,
        pool: &ThreadPool,
        weights: &Weights,
        batch: Batch<'_>,
        drops: bool,
        gradients: &mut dyn GradientSink,
    ) {
        let forward = forward::Forward { kernels: &self.kernels, weights };
        let backward = backward::Backward { forward, scale: pooling::dropout_scale(0, drops) };
        let (activations, inputs) = (&self.activations, &self.dense.input_gradients);
        let (sums, scratch) = (DisjointSlice::new(&mut self.group_sums), DisjointSlice::new(&mut self.scratch));
        let n_groups = n_groups(batch.len());
        gradients.yield_point();
        for half in split_in_halves(n_groups, pool.len()) {
            parallel_for(pool, half.len(), |tiles, thread, item| {
                // The last images go first: their activations are still in cache.
                let group = n_groups - 1 - (half.start + item);
                // SAFETY: an item accesses the sums of its own group and the scratch buffers of its thread.
                let (sums, scratch) = unsafe { (sums.item_mut(group), scratch.item_mut(thread)) };
                for (index, image) in group_images(group, batch.len()).enumerate() {
                    let passed = backward::ForwardedImage {
                        pixels: &batch.images[image * IMAGE..][..IMAGE],
                        activations: &activations[image],
                        gradient: &inputs[image * dense::INPUT_ROWS..][..dense::INPUT_ROWS],
                    };
                    let scratch = (&mut scratch.forward, &mut scratch.backward);
                    // SAFETY: the CPU supports AVX-512, since an `AmxEngine` exists.
                    unsafe { backward.image(tiles, &passed, index == 0, scratch, sums) };
                }
            });
            gradients.yield_point();
        }
        self.conv_gradients.reduce(pool, &self.group_sums[..n_groups]);
        for parameter in (0..8).rev() {
            gradients.buffer(parameter).copy_from_slice(self.conv_gradients.parameter(parameter));
            gradients.ready(parameter);
        }
    }

    fn total_score(&self, images: usize) -> Score {
        let losses = &self.losses[..images];
        Score {
            loss: losses.iter().map(|loss| f64::from(loss.loss)).sum(),
            correct: losses.iter().filter(|loss| loss.is_correct).count(),
            images,
        }
    }
}

fn group_size(images: usize) -> usize {
    MIN_GROUP_IMAGES.max(images.div_ceil(MAX_GROUPS))
}

fn n_groups(images: usize) -> usize {
    images.div_ceil(group_size(images))
}

fn group_images(group: usize, images: usize) -> Range<usize> {
    group * group_size(images)..images.min((group + 1) * group_size(images))
}
