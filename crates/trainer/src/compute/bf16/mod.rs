//! A step with products of bfloat16 on the tiles of AMX: weights, sums, loss and gradients are single precision, only what is multiplied
//! is rounded. Entered through [`super::Compute`]; made only where the processor has tiles.
//!
//! # Reading order
//!
//! `tiles` is the machine: four tiles of sums from rows in memory. `lines` is what it eats. `forward` and `backward` take one image through the
//! convolutions, with `kernels`, `stack` and `pooling`; `dense` and `classes` take the batch through the rest. Here they are put in order.
//!
//! A step is rounds of the threads, each of items that are taken one by one (`share`). Images are in groups that depend on the batch alone,
//! each with its own sums; these are added in the order of the groups. So the bits are the same for every number of threads.

mod backward;
mod classes;
mod dense;
mod forward;
mod gather;
mod kernels;
mod lines;
mod pooling;
mod share;
mod stack;
#[cfg(test)]
mod tests;
mod tiles;

use std::ops::Range;

use super::parts::Parts;
use super::{Engine, halves};
use crate::network::{Batch, CLASSES, Gradients, IMAGE, Noise, Score, Weights};
use crate::threads::Pool;
use classes::{Classes, Outcome};
use dense::{Dense, OUTPUTS};
use forward::Kept;
use gather::Gathered;
use kernels::Kernels;
use share::each;
pub use tiles::are_here;

/// Room for the steps of one rank.
pub struct Tiled {
    kernels: Kernels,
    classes: Classes,
    /// By image.
    kept: Vec<Kept>,
    outcomes: Vec<Outcome>,
    dense: Dense,
    /// By group.
    sums: Vec<backward::Sums>,
    gathered: Gathered,
    last: Last,
    /// By thread.
    scratch: Vec<Scratch>,
}

struct Scratch {
    forward: forward::Scratch,
    dense: dense::Scratch,
    backward: backward::Scratch,
}

/// Gradients of what comes after the dense kernel.
struct Last {
    bias: Vec<f32>,
    kernel: Vec<[f32; CLASSES]>,
}

/// A group has at least eight images, so that adding up the groups costs little, and there are at most 16, so that their sums stay near.
const GROUP: usize = 8;
const GROUPS: usize = 16;
/// Parts into which [`Last`] is cut.
const LAST_PARTS: usize = 8;

impl Tiled {
    /// For batches of up to that many images. Only where [`are_here`] says yes.
    pub fn new(batch: usize, threads: usize) -> Tiled {
        assert!(are_here(), "tiles");
        let dense = Dense::new(batch);
        let scratch = |_| Scratch {
            forward: forward::Scratch::new(),
            dense: dense.scratch(),
            backward: backward::Scratch::new(),
        };
        Tiled {
            kernels: Kernels::new(),
            classes: Classes::new(),
            kept: (0..batch).map(|_| Kept::new()).collect(),
            outcomes: vec![Outcome::default(); batch.next_multiple_of(32)],
            sums: (0..GROUPS.min(batch.div_ceil(GROUP))).map(|_| backward::Sums::new()).collect(),
            gathered: Gathered::new(),
            last: Last { bias: vec![0.0; OUTPUTS], kernel: vec![[0.0; CLASSES]; OUTPUTS] },
            scratch: (0..threads.max(1)).map(scratch).collect(),
            dense,
        }
    }
}

impl Engine for Tiled {
    fn step(
        &mut self,
        pool: &Pool,
        weights: &Weights,
        batch: Batch<'_>,
        noise: Option<Noise>,
        gradients: &mut dyn Gradients,
    ) -> Score {
        self.pack(pool, weights);
        self.convolutions(pool, weights, batch, noise);
        self.dense(pool, weights, batch.len(), noise.is_some());
        self.classes(pool, batch, noise.is_some());
        self.dense_back(pool, weights, batch.len(), noise.is_some(), gradients);
        self.convolutions_back(pool, weights, batch, noise.is_some(), gradients);
        self.total(batch.len())
    }

    fn score(&mut self, pool: &Pool, weights: &Weights, batch: Batch<'_>) -> Score {
        self.pack(pool, weights);
        self.convolutions(pool, weights, batch, None);
        self.dense(pool, weights, batch.len(), false);
        self.classes(pool, batch, false);
        self.total(batch.len())
    }
}

/// The rounds. Their items call functions for AVX-512: sound, as `Tiled` is only made where `are_here` has seen it. Items that take a thread's
/// scratch are alone with it: a thread has one item at a time.
impl Tiled {
    fn pack(&mut self, pool: &Pool, weights: &Weights) {
        let mut parts = self.kernels.parts();
        let parts = Parts::of(&mut parts);
        let classes = Parts::of(std::slice::from_mut(&mut self.classes));
        each(pool, kernels::PARTS + 1, |_, _, item| {
            // SAFETY: each item is taken once.
            unsafe {
                if item == kernels::PARTS {
                    classes.one(0).pack(weights);
                } else {
                    let (part, room) = parts.one(item);
                    part.pack(weights, room);
                }
            }
        });
    }

    fn convolutions(&mut self, pool: &Pool, weights: &Weights, batch: Batch<'_>, noise: Option<Noise>) {
        let forward = forward::Forward { kernels: &self.kernels, weights };
        let (kept, scratch) = (Parts::of(&mut self.kept), Parts::of(&mut self.scratch));
        let (inputs, dropped) = (Parts::of(&mut self.dense.inputs), Parts::of(&mut self.dense.kept));
        each(pool, batch.len(), |tiles, thread, image| {
            let key = |layer: usize| noise.map(|noise| noise.key(image, layer));
            let pixels = &batch.images[image * IMAGE..][..IMAGE];
            // SAFETY: an image has its own parts; a thread its scratch.
            unsafe {
                let out = inputs.part(image * dense::INPUT..(image + 1) * dense::INPUT);
                let scratch = &mut scratch.one(thread).forward;
                forward.image(tiles, pixels, [key(0), key(1)], scratch, kept.one(image), out);
                pooling::draw(2, key(2), dropped.one(image));
            }
        });
    }

    fn dense(&mut self, pool: &Pool, weights: &Weights, images: usize, drops: bool) {
        let forward = dense::Forward {
            blocks: images.div_ceil(32),
            kernel: &weights.0[8],
            bias: &weights.0[9],
            scale: pooling::scale(2, drops),
            inputs: &self.dense.inputs,
            kept: &self.dense.kept,
            outputs: Parts::of(&mut self.dense.outputs),
        };
        let scratch = Parts::of(&mut self.scratch);
        // SAFETY: a thread has its scratch.
        each(pool, dense::SLICES, |tiles, thread, slice| unsafe {
            forward.slice(tiles, slice, &mut scratch.one(thread).dense);
        });
    }

    /// Outcomes, and the gradients that go back into the dense layer, also those of images that are none.
    fn classes(&mut self, pool: &Pool, batch: Batch<'_>, drops: bool) {
        let (blocks, share) = (batch.len().div_ceil(32), 1.0 / batch.len() as f32);
        let (classes, outputs, scale) = (&self.classes, self.dense.outputs.as_chunks().0, pooling::scale(2, drops));
        let (outcomes, gradients) = (Parts::of(&mut self.outcomes), Parts::of(self.dense.gradients.as_chunks_mut().0));
        let (over_images, over_outputs) =
            (Parts::of(&mut self.dense.over_images), Parts::of(&mut self.dense.over_outputs));
        each(pool, blocks * 2, |_, _, item| {
            let images = item * 16..(item + 1) * 16;
            // SAFETY: 16 images have their own parts.
            unsafe {
                let (outcomes, gradients) = (outcomes.part(images.clone()), gradients.part(images.clone()));
                for ((image, outcome), gradients) in images.zip(outcomes).zip(&mut *gradients) {
                    *outcome = match batch.labels.get(image) {
                        Some(label) => classes.forward(&outputs[image], *label, share),
                        None => Outcome::default(),
                    };
                    classes.back(outcome, &outputs[image], scale, gradients);
                }
                let place = (item / 2, item % 2);
                dense::pack_gradients(gradients.as_flattened(), place, blocks, &over_images, &over_outputs);
            }
        });
    }

    fn dense_back(
        &mut self,
        pool: &Pool,
        weights: &Weights,
        images: usize,
        drops: bool,
        gradients: &mut dyn Gradients,
    ) {
        let backward = dense::Backward {
            blocks: images.div_ceil(32),
            kernel: &weights.0[8],
            scale: pooling::scale(1, drops),
            inputs: &self.dense.inputs,
            over_images: &self.dense.over_images,
            over_outputs: &self.dense.over_outputs,
            steps: &self.dense.steps,
            input_gradients: Parts::of(&mut self.dense.input_gradients),
            kernel_gradient: Parts::of(gradients.room(8)),
        };
        let (bias, kernel) = (Parts::of(&mut self.last.bias), Parts::of(&mut self.last.kernel));
        let (outcomes, outputs, back) = (&self.outcomes[..images], &self.dense.outputs, &self.dense.gradients);
        let scratch = Parts::of(&mut self.scratch);
        each(pool, LAST_PARTS + dense::BLOCKS, |tiles, thread, item| {
            // SAFETY: a part has its columns, a block its inputs, a thread its scratch.
            unsafe {
                if item < LAST_PARTS {
                    let part = item * OUTPUTS / LAST_PARTS..(item + 1) * OUTPUTS / LAST_PARTS;
                    let (bias, kernel) = (bias.part(part.clone()), kernel.part(part.clone()));
                    classes::last_gradients(part.start, outcomes, outputs, back, bias, kernel);
                } else {
                    backward.block(tiles, item - LAST_PARTS, &mut scratch.one(thread).dense);
                }
            }
        });
        let mut last_bias = [0.0; CLASSES];
        for outcome in outcomes {
            last_bias.iter_mut().zip(&outcome.gradient).for_each(|(sum, gradient)| *sum += gradient);
        }
        gradients.room(11).copy_from_slice(&last_bias);
        gradients.ready(11);
        gradients.room(10).copy_from_slice(self.last.kernel.as_flattened());
        gradients.ready(10);
        gradients.room(9).copy_from_slice(&self.last.bias);
        gradients.ready(9);
        gradients.ready(8);
    }

    fn convolutions_back(
        &mut self,
        pool: &Pool,
        weights: &Weights,
        batch: Batch<'_>,
        drops: bool,
        gradients: &mut dyn Gradients,
    ) {
        let forward = forward::Forward { kernels: &self.kernels, weights };
        let backward = backward::Backward { forward, scale: pooling::scale(0, drops) };
        let (kept, inputs) = (&self.kept, &self.dense.input_gradients);
        let (sums, scratch) = (Parts::of(&mut self.sums), Parts::of(&mut self.scratch));
        let groups = groups(batch.len());
        gradients.between();
        for half in halves(groups, pool.len()) {
            each(pool, half.len(), |tiles, thread, item| {
                // The last images are the first to go back: what the way forward left of them is still near.
                let group = groups - 1 - (half.start + item);
                // SAFETY: a group has its sums, a thread its scratch.
                let (sums, scratch) = unsafe { (sums.one(group), scratch.one(thread)) };
                for (index, image) in members(group, batch.len()).enumerate() {
                    let passed = backward::Passed {
                        pixels: &batch.images[image * IMAGE..][..IMAGE],
                        kept: &kept[image],
                        gradient: &inputs[image * dense::INPUT..][..dense::INPUT],
                    };
                    let scratch = (&mut scratch.forward, &mut scratch.backward);
                    // SAFETY: see above.
                    unsafe { backward.image(tiles, &passed, index == 0, scratch, sums) };
                }
            });
            gradients.between();
        }
        self.gathered.gather(pool, &self.sums[..groups]);
        for parameter in (0..8).rev() {
            gradients.room(parameter).copy_from_slice(self.gathered.of(parameter));
            gradients.ready(parameter);
        }
    }

    fn total(&self, images: usize) -> Score {
        let outcomes = &self.outcomes[..images];
        Score {
            loss: outcomes.iter().map(|outcome| f64::from(outcome.loss)).sum(),
            right: outcomes.iter().filter(|outcome| outcome.is_right).count(),
            images,
        }
    }
}

fn group_size(images: usize) -> usize {
    GROUP.max(images.div_ceil(GROUPS))
}

fn groups(images: usize) -> usize {
    images.div_ceil(group_size(images))
}

fn members(group: usize, images: usize) -> Range<usize> {
    group * group_size(images)..images.min((group + 1) * group_size(images))
}
