//! Steps in single precision, with the vectors of one instruction set.
//!
//! First every image goes through the convolutions by itself, as what it needs fits the second cache; then the batch goes through the
//! dense layers and back; then every image back through the convolutions. Images form groups that depend on the size of the batch alone.
//! Each group sums its own gradients and groups are added in order, so the number of threads leaves no trace in the result. Nor does who has
//! done it: ranks of one host that are ahead take groups of those that are behind.

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
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use corro_collectives::optimizer::work_stealing::{Task, TaskPool, TaskQueue};

use self::convolutions::{FEATURES, Image, Kernels, PARAMETERS_HERE, Scratch};
use self::dense::Dense;
use self::pooling::Drops;
use super::aligned::{Aligned, Shelf};
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
    kept: Kept,
    /// By thread; the image is for scores, which remember nothing.
    scratches: Vec<Mutex<(Scratch, Image)>>,
    dense: Dense,
    batch: usize,
    /// The way back of each group. Others take some of them only where there is a yard.
    tasks: TaskQueue,
    neighbours: Option<Neighbours>,
    helped: AtomicU64,
    simd: PhantomData<S>,
}

/// What the way back needs and makes.
struct Kept {
    /// By image.
    images: Vec<Mutex<Image>>,
    /// Gradients by group.
    groups: Vec<Mutex<[Aligned; PARAMETERS_HERE]>>,
}

/// The ranks of this host, who see what the others keep.
struct Neighbours {
    yard: Arc<TaskPool>,
    /// Rank, what it keeps, and the gradients of its features.
    others: Vec<(usize, Kept, Aligned)>,
}

/// Images of a group: not so many that one who waits for another's last group waits long, not so few that adding groups takes time.
fn group_of(batch: usize) -> usize {
    batch.div_ceil(32).max(2)
}

impl Kept {
    fn new<S: Simd>(batch: usize, shelf: &mut Shelf) -> Kept {
        let most_groups = (1..=batch).map(|n| n.div_ceil(group_of(n))).max().unwrap_or(0);
        let images = (0..batch).map(|_| Mutex::new(Image::new::<S>(shelf))).collect();
        let mut group = |_| Mutex::new(std::array::from_fn(|parameter| shelf.take(PARAMETERS[parameter].size())));
        Kept { images, groups: (0..most_groups).map(&mut group).collect() }
    }

    /// Back through the convolutions with the images of one group; `features` are the gradients of all.
    fn back<S: Simd>(&self, task: Task, kernels: &Kernels, scratch: &mut Scratch, features: &[f32]) {
        let About { images, noisy } = About::of(task.tag);
        let (first, group) = (task.number * group_of(images), group_of(images));
        let scales = [0, 1].map(|layer: usize| if noisy { DROPOUTS[layer].scale() } else { 1.0 });
        let gradients = &mut *held(&self.groups[task.number]);
        gradients.iter_mut().for_each(|gradient| gradient.fill(0.0));
        for image in first..images.min(first + group) {
            let features = &features[image * FEATURES..][..FEATURES];
            convolutions::backward::<S>(&held(&self.images[image]), scratch, kernels, features, scales, gradients);
        }
    }
}

/// What all who take tasks of a batch must know.
struct About {
    images: usize,
    noisy: bool,
}

impl About {
    fn of(word: u32) -> About {
        About { images: (word >> 1) as usize, noisy: word & 1 == 1 }
    }

    fn word(&self) -> u32 {
        (self.images as u32) << 1 | u32::from(self.noisy)
    }
}

impl<S: Simd> Single<S> {
    fn new(threads: usize, batch: usize) -> Single<S> {
        let scratch = |_| Mutex::new((Scratch::new(), Image::new::<S>(&mut Shelf::default())));
        Single {
            kernels: Kernels::new(),
            kept: Kept::new::<S>(batch, &mut Shelf::default()),
            scratches: (0..threads.max(1)).map(scratch).collect(),
            dense: Dense::new(batch),
            batch,
            tasks: TaskQueue::default(),
            neighbours: None,
            helped: AtomicU64::new(0),
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
        let Single { kernels, kept: Kept { images, .. }, scratches, dense, .. } = self;
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

        let Single { kernels, kept, scratches, dense, tasks, neighbours, .. } = self;
        let tasks = neighbours.as_ref().map_or(&*tasks, |Neighbours { yard, .. }| yard.tasks(yard.rank()));
        let n_groups = batch.len().div_ceil(group_of(batch.len()));
        tasks.publish(n_groups, About { images: batch.len(), noisy: noise.is_some() }.word());
        gradients.between();
        for half in halves(n_groups, pool.len()) {
            pool.run(&|thread| {
                let (scratch, _) = &mut *held(&scratches[thread]);
                while let Some(task) = tasks.claim(half.end) {
                    kept.back::<S>(task, kernels, scratch, &dense.features);
                    tasks.finish();
                }
            });
            gradients.between();
        }
        if let Some(Neighbours { yard, .. }) = neighbours {
            // If one that helped is gone, so is the step that all make together: it will say who.
            let _ = yard.wait();
        }
        let groups = &kept.groups[..n_groups];
        for parameter in [6, 7, 4, 5, 2, 3, 0, 1] {
            add_groups(pool, groups, parameter, gradients.room(parameter));
            gradients.ready(parameter);
        }
        score
    }

    fn score(&mut self, pool: &Pool, weights: &Weights, batch: Batch<'_>) -> Score {
        self.forward(pool, weights, batch, None, false)
    }

    fn common_bytes(&self) -> usize {
        let mut shelf = Shelf::that_counts();
        Dense::features(self.batch, &mut shelf);
        Kept::new::<S>(self.batch, &mut shelf);
        shelf.used()
    }

    fn share(&mut self, yard: TaskPool) {
        let (yard, batch) = (Arc::new(yard), self.batch);
        let of = |rank| {
            let mut shelf = Shelf::of(&yard, rank);
            let features = Dense::features(batch, &mut shelf);
            (rank, Kept::new::<S>(batch, &mut shelf), features)
        };
        (_, self.kept, self.dense.features) = of(yard.rank());
        let others = (0..yard.n_ranks()).filter(|rank| *rank != yard.rank()).map(of).collect();
        self.neighbours = Some(Neighbours { yard, others });
    }

    fn help(&mut self, pool: &Pool) {
        let Single { kernels, scratches, neighbours: Some(Neighbours { yard, others }), helped, .. } = self else {
            return;
        };
        for (rank, kept, features) in others {
            let tasks = yard.tasks(*rank);
            if tasks.remaining() == 0 {
                continue;
            }
            pool.run(&|thread| {
                let (scratch, _) = &mut *held(&scratches[thread]);
                while let Some(task) = tasks.claim(usize::MAX) {
                    kept.back::<S>(task, kernels, scratch, features);
                    tasks.finish();
                    helped.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    }

    fn helped(&self) -> u64 {
        self.helped.load(Ordering::Relaxed)
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
