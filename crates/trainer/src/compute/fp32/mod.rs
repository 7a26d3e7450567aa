//! Step engine in single precision, generic over the instruction set.
//!
//! First each image goes through the convolutions on its own, since its activations fit the L2 cache. Then the batch
//! goes through the dense layers forward and backward, then each image backward through the convolutions. Images form
//! groups that depend on the batch size alone. Each group sums its own gradients and groups are added in order, so
//! results do not depend on the number of threads. Nor do they depend on work stealing, in which ranks of one host that
//! are ahead execute groups of those that are behind.

#![allow(clippy::needless_range_loop, reason = "indices of a tile are used as in the comments")]

mod convolution;
mod convolutions;
mod dense;
mod elementwise;
mod kernel_gradient;
mod matmul;
mod pooling;
mod tile;

use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use corro_collectives::optimizer::work_stealing::{Task, TaskPool, TaskQueue};

use self::convolutions::{CONV_PARAMETERS, FEATURES, ImageActivations, Kernels, Scratch};
use self::dense::Dense;
use self::pooling::DropoutMask;
use super::aligned::{AlignedBuf, BumpArena};
use super::disjoint_slice::DisjointSlice;
use super::simd::Simd;
use super::{Isa, StepEngine, split_in_halves};
use crate::network::{Batch, DROPOUTS, DropoutSeed, GradientSink, IMAGE, PARAMETERS, Score, Weights};
use crate::thread_pool::ThreadPool;

pub fn engine(isa: Isa, threads: usize, batch: usize) -> Box<dyn StepEngine> {
    match isa {
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 => Box::new(F32Engine::<super::simd::Avx512>::new(threads, batch)),
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => Box::new(F32Engine::<super::simd::Avx2>::new(threads, batch)),
        _ => Box::new(F32Engine::<super::simd::Portable>::new(threads, batch)),
    }
}

struct F32Engine<S> {
    kernels: Kernels,
    activations: Activations,
    /// By thread. The activations are for scoring, which keeps none per image.
    scratch_by_thread: Vec<Mutex<(Scratch, ImageActivations)>>,
    dense: Dense,
    batch: usize,
    /// Backward passes of the groups, when work stealing is disabled; otherwise the queue in shared memory is used.
    tasks: TaskQueue,
    peers: Option<StealPeers>,
    stolen: AtomicU64,
    simd: PhantomData<S>,
}

/// Activations and gradients of the backward pass.
struct Activations {
    /// By image.
    images: Vec<Mutex<ImageActivations>>,
    /// Gradients by group.
    groups: Vec<Mutex<[AlignedBuf; CONV_PARAMETERS]>>,
}

/// The other ranks of this host and their shared buffers.
struct StealPeers {
    task_pool: Arc<TaskPool>,
    /// Rank, its activations, and the gradients of its features.
    others: Vec<(usize, Activations, AlignedBuf)>,
}

/// Images per group. Large groups make a rank wait long for the last stolen one; small groups make adding them
/// expensive.
fn group_size(batch: usize) -> usize {
    batch.div_ceil(32).max(2)
}

impl Activations {
    fn new<S: Simd>(batch: usize, arena: &mut BumpArena) -> Activations {
        let max_groups = (1..=batch).map(|n| n.div_ceil(group_size(n))).max().unwrap_or(0);
        let images = (0..batch).map(|_| Mutex::new(ImageActivations::new::<S>(arena))).collect();
        let mut group = |_| Mutex::new(std::array::from_fn(|parameter| arena.alloc(PARAMETERS[parameter].size())));
        Activations { images, groups: (0..max_groups).map(&mut group).collect() }
    }

    /// Backward pass of one group through the convolutions; `features` has the gradients of all images.
    fn backward_group<S: Simd>(&self, task: Task, kernels: &Kernels, scratch: &mut Scratch, features: &[f32]) {
        let TaskParams { images, with_dropout } = TaskParams::decode(task.tag);
        let (first, group) = (task.number * group_size(images), group_size(images));
        let scales = [0, 1].map(|layer: usize| if with_dropout { DROPOUTS[layer].scale() } else { 1.0 });
        let gradients = &mut *lock(&self.groups[task.number]);
        gradients.iter_mut().for_each(|gradient| gradient.fill(0.0));
        for image in first..images.min(first + group) {
            let features = &features[image * FEATURES..][..FEATURES];
            convolutions::backward::<S>(&lock(&self.images[image]), scratch, kernels, features, scales, gradients);
        }
    }
}

/// Parameters of a batch's tasks, encoded in one word of the task queue.
struct TaskParams {
    images: usize,
    with_dropout: bool,
}

impl TaskParams {
    fn decode(word: u32) -> TaskParams {
        TaskParams { images: (word >> 1) as usize, with_dropout: word & 1 == 1 }
    }

    fn encode(&self) -> u32 {
        (self.images as u32) << 1 | u32::from(self.with_dropout)
    }
}

impl<S: Simd> F32Engine<S> {
    fn new(threads: usize, batch: usize) -> F32Engine<S> {
        let scratch = |_| Mutex::new((Scratch::new(), ImageActivations::new::<S>(&mut BumpArena::default())));
        F32Engine {
            kernels: Kernels::new(),
            activations: Activations::new::<S>(batch, &mut BumpArena::default()),
            scratch_by_thread: (0..threads.max(1)).map(scratch).collect(),
            dense: Dense::new(batch),
            batch,
            tasks: TaskQueue::default(),
            peers: None,
            stolen: AtomicU64::new(0),
            simd: PhantomData,
        }
    }

    fn forward(
        &mut self,
        pool: &ThreadPool,
        weights: &Weights,
        batch: Batch<'_>,
        dropout_seed: Option<DropoutSeed>,
        for_training: bool,
    ) -> Score {
        self.kernels.load_weights(weights);
        self.dense.load_weights(weights);
        let F32Engine { kernels, activations: Activations { images, .. }, scratch_by_thread, dense, .. } = self;
        let features = DisjointSlice::new(&mut dense.features);
        pool.for_each_task(batch.len(), &|thread, image| {
            let (scratch, unused) = &mut *lock(&scratch_by_thread[thread]);
            let mut stored = if for_training { Some(lock(&images[image])) } else { None };
            let activations = stored.as_deref_mut().unwrap_or(unused);
            let pixels = &batch.images[image * IMAGE..][..IMAGE];
            let dropout =
                [0, 1].map(|layer| dropout_seed.map(|dropout_seed| DropoutMask::new(dropout_seed, image, layer)));
            // SAFETY: only the task of this image accesses its features.
            let features = unsafe { features.range_mut(image * FEATURES..(image + 1) * FEATURES) };
            convolutions::forward::<S>(activations, scratch, kernels, weights, pixels, dropout, features);
        });
        dense.forward::<S>(pool, weights, batch, dropout_seed)
    }
}

impl<S: Simd> StepEngine for F32Engine<S> {
    fn step(
        &mut self,
        pool: &ThreadPool,
        weights: &Weights,
        batch: Batch<'_>,
        dropout_seed: Option<DropoutSeed>,
        gradients: &mut dyn GradientSink,
    ) -> Score {
        let score = self.forward(pool, weights, batch, dropout_seed, true);
        self.dense.backward::<S>(pool, weights, batch.len(), gradients);

        let F32Engine { kernels, activations, scratch_by_thread, dense, tasks, peers, .. } = self;
        let tasks = peers.as_ref().map_or(&*tasks, |StealPeers { task_pool, .. }| task_pool.tasks(task_pool.rank()));
        let n_groups = batch.len().div_ceil(group_size(batch.len()));
        tasks.publish(n_groups, TaskParams { images: batch.len(), with_dropout: dropout_seed.is_some() }.encode());
        gradients.yield_point();
        for half in split_in_halves(n_groups, pool.len()) {
            pool.run(&|thread| {
                let (scratch, _) = &mut *lock(&scratch_by_thread[thread]);
                while let Some(task) = tasks.claim(half.end) {
                    activations.backward_group::<S>(task, kernels, scratch, &dense.features);
                    tasks.finish();
                }
            });
            gradients.yield_point();
        }
        if let Some(StealPeers { task_pool, .. }) = peers {
            // If a rank that stole a task has died, the collective step that follows reports it by name.
            let _ = task_pool.wait();
        }
        let groups = &activations.groups[..n_groups];
        for parameter in [6, 7, 4, 5, 2, 3, 0, 1] {
            add_groups(pool, groups, parameter, gradients.buffer(parameter));
            gradients.ready(parameter);
        }
        score
    }

    fn score(&mut self, pool: &ThreadPool, weights: &Weights, batch: Batch<'_>) -> Score {
        self.forward(pool, weights, batch, None, false)
    }

    fn shared_bytes(&self) -> usize {
        let mut arena = BumpArena::counting();
        Dense::features(self.batch, &mut arena);
        Activations::new::<S>(self.batch, &mut arena);
        arena.used()
    }

    fn enable_stealing(&mut self, task_pool: TaskPool) {
        let (task_pool, batch) = (Arc::new(task_pool), self.batch);
        let buffers_of = |rank| {
            let mut arena = BumpArena::in_shared_memory(&task_pool, rank);
            let features = Dense::features(batch, &mut arena);
            (rank, Activations::new::<S>(batch, &mut arena), features)
        };
        (_, self.activations, self.dense.features) = buffers_of(task_pool.rank());
        let others = (0..task_pool.n_ranks()).filter(|rank| *rank != task_pool.rank()).map(buffers_of).collect();
        self.peers = Some(StealPeers { task_pool, others });
    }

    fn steal_tasks(&mut self, pool: &ThreadPool) {
        let F32Engine { kernels, scratch_by_thread, peers: Some(StealPeers { task_pool, others }), stolen, .. } = self
        else {
            return;
        };
        for (rank, activations, features) in others {
            let tasks = task_pool.tasks(*rank);
            if tasks.remaining() == 0 {
                continue;
            }
            pool.run(&|thread| {
                let (scratch, _) = &mut *lock(&scratch_by_thread[thread]);
                while let Some(task) = tasks.claim(usize::MAX) {
                    activations.backward_group::<S>(task, kernels, scratch, features);
                    tasks.finish();
                    stolen.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    }

    fn n_stolen(&self) -> u64 {
        self.stolen.load(Ordering::Relaxed)
    }
}

/// Sums the gradients of the groups in order.
fn add_groups(pool: &ThreadPool, groups: &[Mutex<[AlignedBuf; CONV_PARAMETERS]>], parameter: usize, out: &mut [f32]) {
    const CHUNK: usize = 4096;
    let size = out.len();
    let out = DisjointSlice::new(out);
    pool.for_each_task(size.div_ceil(CHUNK), &|_, chunk| {
        let (first, len) = (chunk * CHUNK, CHUNK.min(size - chunk * CHUNK));
        // SAFETY: only this task accesses its chunk.
        let out = unsafe { out.range_mut(first..first + len) };
        out.fill(0.0);
        for group in groups {
            for (sum, value) in out.iter_mut().zip(&lock(group)[parameter][first..]) {
                *sum += value;
            }
        }
    });
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("a panic of a task ends the step")
}

#[cfg(test)]
mod tests;
