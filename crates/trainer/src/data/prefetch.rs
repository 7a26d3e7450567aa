//! Prefetches a rank's batches on a thread of its own, so that the compute threads find the next one ready. The
//! contents of a batch depend on the plan, the epoch and the step, never on timing or threads.

use std::ops::Range;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::thread::{self, JoinHandle};

use super::augment::{self, Augmentation};
use super::{Images, epoch_order};
use crate::network::{Batch, IMAGE};

/// Maximum number of batches prepared ahead.
const PREFETCH_DEPTH: usize = 4;

/// Parameters of a rank's batches.
#[derive(Clone, Debug)]
pub struct BatchPlan {
    pub seed: u64,
    /// Selects the order and the augmentations; 0 for ranks that share an order.
    pub rank: usize,
    /// Images per step.
    pub batch: usize,
    pub augment: bool,
    /// First epoch to produce, after a resume.
    pub first_epoch: usize,
    /// `None`: this rank uses the whole order.
    pub share: Option<EpochShare>,
}

/// A rank's share of an order.
#[derive(Clone, Copy, Debug)]
pub struct EpochShare {
    pub rank: usize,
    pub size: usize,
    /// Positions of the first epoch that are used already.
    pub first_position: usize,
}

impl BatchPlan {
    /// Positions of a batch in the order of an epoch.
    pub fn positions(&self, n_images: usize, epoch: usize, step: usize) -> Range<usize> {
        let Some(share) = self.share else { return epoch_order::positions(n_images, self.batch, step) };
        let first = self.first_position(epoch) + step * self.batch * share.size;
        epoch_order::shared_positions(n_images, self.batch, first, share.rank, share.size)
    }

    fn first_position(&self, epoch: usize) -> usize {
        self.share.filter(|_| epoch == self.first_epoch).map_or(0, |share| share.first_position)
    }

    fn steps_of(&self, n_images: usize, epoch: usize) -> usize {
        let n_ranks = self.share.map_or(1, |share| share.size);
        epoch_order::steps_per_epoch(n_images - self.first_position(epoch), self.batch * n_ranks)
    }
}

/// Endless sequence of batches. Dropping it ends its thread.
pub struct BatchPrefetcher {
    steps_per_epoch: usize,
    /// The batch returned last.
    current: BatchBuffer,
    /// `None` once the prefetcher ends.
    channels: Option<BufferChannels<BatchBuffer>>,
    thread: Option<JoinHandle<()>>,
}

/// The next batch.
pub struct PrefetchedBatch<'a> {
    pub epoch: usize,
    /// Step within the epoch, from 0.
    pub step: usize,
    buffer: &'a BatchBuffer,
}

impl BatchPrefetcher {
    pub fn start(images: Arc<Images>, plan: BatchPlan) -> BatchPrefetcher {
        assert!(!images.is_empty() && plan.batch > 0, "{} images in batches of {}", images.len(), plan.batch);
        let steps_per_epoch = plan.steps_of(images.len(), plan.first_epoch + 1);
        let (full, filled) = mpsc::sync_channel(PREFETCH_DEPTH);
        let (used, empty) = mpsc::sync_channel(PREFETCH_DEPTH + 1);
        let largest = plan.batch.min(images.len());
        for _ in 0..PREFETCH_DEPTH {
            used.send(BatchBuffer::new(largest)).expect("the other end is still here");
        }
        let fill = move || fill(&images, &plan, &BufferChannels { incoming: empty, outgoing: full });
        let thread = thread::Builder::new().name("feed".to_owned()).spawn(fill).expect("a thread can be started");
        let channels = BufferChannels { incoming: filled, outgoing: used };
        BatchPrefetcher {
            steps_per_epoch,
            current: BatchBuffer::new(largest),
            channels: Some(channels),
            thread: Some(thread),
        }
    }

    /// Returns the next batch. Waits only if batches are consumed faster than they are prepared. A panic of the thread
    /// is propagated.
    #[expect(
        clippy::should_implement_trait,
        reason = "what it gives is lent until the next call, which no iterator can say"
    )]
    pub fn next(&mut self) -> PrefetchedBatch<'_> {
        let channels = self.channels.as_ref().expect("held until the prefetcher is dropped");
        let Ok(filled) = channels.incoming.recv() else { self.propagate_panic() };
        let used = std::mem::replace(&mut self.current, filled);
        // The thread may have ended in the meantime; the next call reports it.
        let _ = channels.outgoing.send(used);
        PrefetchedBatch { epoch: self.current.epoch, step: self.current.step, buffer: &self.current }
    }

    pub fn steps_per_epoch(&self) -> usize {
        self.steps_per_epoch
    }

    fn propagate_panic(&mut self) -> ! {
        let ended = self.thread.take().expect("nobody else ends the thread").join();
        std::panic::resume_unwind(ended.expect_err("the thread ends by itself only in a panic"))
    }
}

impl Drop for BatchPrefetcher {
    fn drop(&mut self) {
        // The thread is blocked on one of the channels; closing them ends it.
        self.channels = None;
        if let Some(thread) = self.thread.take() {
            // `next` would have propagated a panic. A panic in a batch that nobody requested does not matter.
            let _ = thread.join();
        }
    }
}

impl PrefetchedBatch<'_> {
    pub fn batch(&self) -> Batch<'_> {
        Batch { images: &self.buffer.images, labels: &self.buffer.labels }
    }
}

/// Buffer of one batch, recycled between the two threads.
struct BatchBuffer {
    epoch: usize,
    step: usize,
    images: Vec<f32>,
    labels: Vec<u8>,
}

impl BatchBuffer {
    fn new(largest: usize) -> BatchBuffer {
        BatchBuffer {
            epoch: 0,
            step: 0,
            images: Vec::with_capacity(largest * IMAGE),
            labels: Vec::with_capacity(largest),
        }
    }
}

/// One thread's ends of both channels.
struct BufferChannels<T> {
    incoming: Receiver<T>,
    outgoing: SyncSender<T>,
}

/// Main loop of the prefetch thread: fills buffers until the channels close.
fn fill(images: &Images, plan: &BatchPlan, channels: &BufferChannels<BatchBuffer>) {
    let mut order = Vec::with_capacity(images.len());
    for epoch in plan.first_epoch.. {
        epoch_order::fill_order(plan.seed, plan.rank, epoch, images.len(), &mut order);
        for step in 0..plan.steps_of(images.len(), epoch) {
            let Ok(mut buffer) = channels.incoming.recv() else { return };
            (buffer.epoch, buffer.step) = (epoch, step);
            fill_buffer(images, plan, &order, &mut buffer);
            if channels.outgoing.send(buffer).is_err() {
                return;
            }
        }
    }
}

fn fill_buffer(images: &Images, plan: &BatchPlan, order: &[u32], buffer: &mut BatchBuffer) {
    let positions = plan.positions(order.len(), buffer.epoch, buffer.step);
    buffer.images.resize(positions.len() * IMAGE, 0.0);
    buffer.labels.clear();
    for (position, into) in positions.zip(buffer.images.chunks_exact_mut(IMAGE)) {
        let index = order[position] as usize;
        buffer.labels.push(images.labels[index]);
        if plan.augment {
            let augmentation = Augmentation::draw(plan.seed, plan.rank, buffer.epoch, position);
            augment::augment(images.image(index), augmentation, into);
        } else {
            augment::scale(images.image(index), into);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAN: BatchPlan = BatchPlan { seed: 3, rank: 1, batch: 4, augment: true, first_epoch: 0, share: None };

    /// Every image has its index as its label and in all of its pixels.
    fn images(n: u8) -> Arc<Images> {
        let mut images = Images::blank(n.into());
        for index in 0..n {
            images.labels[usize::from(index)] = index;
            images.pixels[usize::from(index) * IMAGE..][..IMAGE].fill(index);
        }
        Arc::new(images)
    }

    /// Epoch, step, images and labels of the next batches.
    fn next_batches(prefetcher: &mut BatchPrefetcher, n: usize) -> Vec<(usize, usize, Vec<f32>, Vec<u8>)> {
        let mut one = || {
            let batch = prefetcher.next();
            (batch.epoch, batch.step, batch.batch().images.to_vec(), batch.batch().labels.to_vec())
        };
        (0..n).map(|_| one()).collect()
    }

    #[test]
    fn an_epoch_has_every_image_once_and_a_smaller_last_batch() {
        let mut prefetcher = BatchPrefetcher::start(images(10), PLAN);
        assert_eq!(prefetcher.steps_per_epoch(), 3);
        for epoch in 0..3 {
            let batches = next_batches(&mut prefetcher, 3);
            let places: Vec<_> = batches.iter().map(|(epoch, step, ..)| (*epoch, *step)).collect();
            assert_eq!(places, [(epoch, 0), (epoch, 1), (epoch, 2)]);
            let labels: Vec<u32> =
                batches.iter().flat_map(|(.., labels)| labels).map(|label| u32::from(*label)).collect();
            let mut order = Vec::new();
            epoch_order::fill_order(PLAN.seed, PLAN.rank, epoch, 10, &mut order);
            assert_eq!(labels, order);
            for (_, _, images, labels) in batches {
                assert_eq!(images.len(), labels.len() * IMAGE);
                let of_label = |label: &u8| f32::from(*label) / 255.0;
                assert!(
                    images.chunks(IMAGE).zip(&labels).all(|(image, label)| (image[77] - of_label(label)).abs() < 1e-6)
                );
            }
        }
    }

    #[test]
    fn ranks_that_share_an_order_use_the_rest_of_an_epoch_once() {
        let images = images(50);
        let (size, first_position) = (3, 7);
        let mut order = Vec::new();
        epoch_order::fill_order(PLAN.seed, 0, 2, 50, &mut order);
        let mut labels = vec![Vec::new(); 4];
        for rank in 0..size {
            let share = Some(EpochShare { rank, size, first_position });
            let plan = BatchPlan { rank: 0, first_epoch: 2, share, ..PLAN };
            let batches = next_batches(&mut BatchPrefetcher::start(images.clone(), plan), 5);
            assert_eq!(batches.iter().map(|batch| batch.0).collect::<Vec<_>>(), [2, 2, 2, 2, 3]);
            for (labels, batch) in labels.iter_mut().zip(batches) {
                labels.extend(batch.3);
            }
        }
        let used: Vec<u32> = labels.concat().into_iter().map(u32::from).collect();
        assert_eq!(used, order[first_position..]);
    }

    #[test]
    fn a_later_first_epoch_continues_identically() {
        let images = Arc::new(super::super::synthetic::images(11, 1, 0));
        let all = next_batches(&mut BatchPrefetcher::start(images.clone(), PLAN), 9);
        let resumed = next_batches(&mut BatchPrefetcher::start(images, BatchPlan { first_epoch: 2, ..PLAN }), 3);
        assert_eq!(all[6..], resumed);
    }

    #[test]
    fn augmentation_depends_on_the_position() {
        let images = Arc::new(super::super::synthetic::images(5, 1, 0));
        let mut prefetcher = BatchPrefetcher::start(images.clone(), PLAN);
        let batches = next_batches(&mut prefetcher, 2);
        let mut order = Vec::new();
        epoch_order::fill_order(PLAN.seed, PLAN.rank, 0, 5, &mut order);
        let mut expected = vec![0.0; IMAGE];
        augment::augment(
            images.image(order[4] as usize),
            Augmentation::draw(PLAN.seed, PLAN.rank, 0, 4),
            &mut expected,
        );
        assert_eq!(batches[1].2, expected);
        let plain = next_batches(&mut BatchPrefetcher::start(images.clone(), BatchPlan { augment: false, ..PLAN }), 2);
        augment::scale(images.image(order[4] as usize), &mut expected);
        assert_eq!(plain[1].2, expected);
    }

    #[test]
    fn dropping_the_prefetcher_ends_its_thread() {
        for taken in 0..8 {
            let images = images(10);
            let mut prefetcher = BatchPrefetcher::start(images.clone(), PLAN);
            next_batches(&mut prefetcher, taken);
            drop(prefetcher);
            assert_eq!(Arc::strong_count(&images), 1, "the thread still holds the images after {taken} batches");
        }
    }

    #[test]
    fn buffers_are_recycled() {
        let mut prefetcher = BatchPrefetcher::start(images(100), PLAN);
        let mut buffers: Vec<_> = (0..50).map(|_| prefetcher.next().batch().images.as_ptr()).collect();
        buffers.sort_unstable();
        buffers.dedup();
        assert!(buffers.len() <= PREFETCH_DEPTH + 1, "{} buffers", buffers.len());
    }

    #[test]
    #[should_panic(expected = "out of range")]
    fn a_panic_of_the_thread_is_propagated() {
        // Fewer pixels than labels, which no data set has.
        let images = Arc::new(Images { pixels: vec![0; IMAGE], labels: vec![0; 10] });
        let mut prefetcher = BatchPrefetcher::start(images, PLAN);
        loop {
            prefetcher.next();
        }
    }
}
