//! Steps in single precision, with the vectors of one instruction set.
//!
//! First every image goes through the convolutions by itself, as what it needs fits the second cache; then the batch goes through the
//! dense layers and back; then every image back through the convolutions. Images form groups that depend on the size of the batch alone.
//! Each group sums its own gradients and groups are added in order, so the number of threads leaves no trace in the result.

#![allow(clippy::needless_range_loop, reason = "places in a tile have numbers, as in the prose")]

mod convolution;
mod convolutions;
mod dense;
mod elementwise;
mod kernel_gradient;
mod pooling;
mod product;
mod tile;

use std::marker::PhantomData;
use std::sync::{Mutex, MutexGuard};

use self::convolutions::{FEATURES, Image, Kernels, PARAMETERS_HERE, Scratch};
use self::dense::Dense;
use self::pooling::Drops;
use super::aligned::Aligned;
use super::parts::Parts;
use super::simd::Simd;
use super::{Engine, Isa, halves};
use crate::network::{Batch, DROPOUTS, Gradients, IMAGE, Noise, PARAMETERS, Score, Weights};
use crate::threads::Pool;

pub fn engine(isa: Isa, threads: usize, batch: usize) -> Box<dyn Engine> {
    match isa {
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 => Box::new(Single::<super::simd::Avx512>::new(threads, batch)),
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => Box::new(Single::<super::simd::Avx2>::new(threads, batch)),
        _ => Box::new(Single::<super::simd::Portable>::new(threads, batch)),
    }
}

struct Single<S> {
    kernels: Kernels,
    /// What the backward pass remembers, by image.
    images: Vec<Mutex<Image>>,
    /// By thread; the image is for scores, which remember nothing.
    scratches: Vec<Mutex<(Scratch, Image)>>,
    /// By group.
    gradients: Vec<Mutex<[Aligned; PARAMETERS_HERE]>>,
    dense: Dense,
    simd: PhantomData<S>,
}

/// Images of a group: enough groups for many threads, not so many that adding them takes time.
fn group_of(batch: usize) -> usize {
    batch.div_ceil(16).max(4)
}

impl<S: Simd> Single<S> {
    fn new(threads: usize, batch: usize) -> Single<S> {
        let most_groups = (1..=batch).map(|n| n.div_ceil(group_of(n))).max().unwrap_or(0);
        let gradients = || std::array::from_fn(|parameter| Aligned::zeros(PARAMETERS[parameter].size()));
        Single {
            kernels: Kernels::new(),
            images: (0..batch).map(|_| Mutex::new(Image::new::<S>())).collect(),
            scratches: (0..threads.max(1)).map(|_| Mutex::new((Scratch::new(), Image::new::<S>()))).collect(),
            gradients: (0..most_groups).map(|_| Mutex::new(gradients())).collect(),
            dense: Dense::new(batch),
            simd: PhantomData,
        }
    }

    fn forward(
        &mut self,
        pool: &Pool,
        weights: &Weights,
        batch: Batch<'_>,
        noise: Option<Noise>,
        remember: bool,
    ) -> Score {
        self.kernels.take(weights);
        self.dense.take(weights);
        let Single { kernels, images, scratches, dense, .. } = self;
        let features = Parts::of(&mut dense.features);
        pool.share(batch.len(), &|thread, image| {
            let (scratch, forgotten) = &mut *held(&scratches[thread]);
            let mut remembered = if remember { Some(held(&images[image])) } else { None };
            let kept = remembered.as_deref_mut().unwrap_or(forgotten);
            let pixels = &batch.images[image * IMAGE..][..IMAGE];
            let drops = [0, 1].map(|layer| noise.map(|noise| Drops::of(noise, image, layer)));
            // SAFETY: the features of an image are taken by its task alone.
            let features = unsafe { features.part(image * FEATURES..(image + 1) * FEATURES) };
            convolutions::forward::<S>(kept, scratch, kernels, weights, pixels, drops, features);
        });
        dense.forward::<S>(pool, weights, batch, noise)
    }
}

impl<S: Simd> Engine for Single<S> {
    fn step(
        &mut self,
        pool: &Pool,
        weights: &Weights,
        batch: Batch<'_>,
        noise: Option<Noise>,
        gradients: &mut dyn Gradients,
    ) -> Score {
        let score = self.forward(pool, weights, batch, noise, true);
        self.dense.backward::<S>(pool, weights, batch.len(), gradients);

        let Single { kernels, images, scratches, dense, gradients: groups, .. } = self;
        let (n, group) = (batch.len(), group_of(batch.len()));
        let groups = &groups[..n.div_ceil(group)];
        let scales = [0, 1].map(|layer: usize| noise.map_or(1.0, |_| DROPOUTS[layer].scale()));
        let features = &dense.features;
        gradients.between();
        for half in halves(groups.len(), pool.len()) {
            pool.share(half.len(), &|thread, task| {
                let (scratch, _) = &mut *held(&scratches[thread]);
                let index = half.start + task;
                let gradients = &mut *held(&groups[index]);
                gradients.iter_mut().for_each(|gradient| gradient.fill(0.0));
                for image in index * group..n.min((index + 1) * group) {
                    let features = &features[image * FEATURES..][..FEATURES];
                    convolutions::backward::<S>(&held(&images[image]), scratch, kernels, features, scales, gradients);
                }
            });
            gradients.between();
        }
        for parameter in [6, 7, 4, 5, 2, 3, 0, 1] {
            add_groups(pool, groups, parameter, gradients.room(parameter));
            gradients.ready(parameter);
        }
        score
    }

    fn score(&mut self, pool: &Pool, weights: &Weights, batch: Batch<'_>) -> Score {
        self.forward(pool, weights, batch, None, false)
    }
}

/// The sum over groups, in their order.
fn add_groups(pool: &Pool, groups: &[Mutex<[Aligned; PARAMETERS_HERE]>], parameter: usize, room: &mut [f32]) {
    const PIECE: usize = 4096;
    let size = room.len();
    let room = Parts::of(room);
    pool.share(size.div_ceil(PIECE), &|_, piece| {
        let (first, len) = (piece * PIECE, PIECE.min(size - piece * PIECE));
        // SAFETY: a piece is taken by its task alone.
        let room = unsafe { room.part(first..first + len) };
        room.fill(0.0);
        for group in groups {
            for (sum, value) in room.iter_mut().zip(&held(group)[parameter][first..]) {
                *sum += value;
            }
        }
    });
}

fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("a panic of a task ends the step")
}

#[cfg(test)]
mod tests;
