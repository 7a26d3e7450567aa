//! A rank's batches, one after the other, made ahead by a thread of their own: the compute threads find the next one ready. Entered by
//! `train`. What a batch holds follows from the plan, its epoch and its step, never from the time or from the threads.

use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::thread::{self, JoinHandle};

use super::augment::{self, Change};
use super::{Images, order};
use crate::network::{Batch, IMAGE};

/// Batches that are made ahead at most.
const AHEAD: usize = 4;

/// What a rank wants to see.
#[derive(Clone, Debug)]
pub struct Plan {
    pub seed: u64,
    pub rank: usize,
    /// Images a step.
    pub batch: usize,
    pub augment: bool,
    /// Epochs before this one are done with, as after resuming.
    pub first_epoch: usize,
}

/// Endless. Ends its thread when dropped.
pub struct Feed {
    steps_per_epoch: usize,
    /// The batch that was given out last.
    current: Tray,
    /// None when the feed ends.
    trays: Option<Trays<Tray>>,
    thread: Option<JoinHandle<()>>,
}

/// The next batch.
pub struct Fed<'a> {
    pub epoch: usize,
    /// Within the epoch, from 0.
    pub step: usize,
    tray: &'a Tray,
}

impl Feed {
    pub fn start(images: Arc<Images>, plan: Plan) -> Feed {
        assert!(!images.is_empty() && plan.batch > 0, "{} images in batches of {}", images.len(), plan.batch);
        let steps_per_epoch = order::steps_per_epoch(images.len(), plan.batch);
        let (full, filled) = mpsc::sync_channel(AHEAD);
        let (used, empty) = mpsc::sync_channel(AHEAD + 1);
        let largest = plan.batch.min(images.len());
        for _ in 0..AHEAD {
            used.send(Tray::new(largest)).expect("the other end is still here");
        }
        let fill = move || fill(&images, &plan, &Trays { incoming: empty, outgoing: full });
        let thread = thread::Builder::new().name("feed".to_owned()).spawn(fill).expect("a thread can be started");
        let trays = Trays { incoming: filled, outgoing: used };
        Feed { steps_per_epoch, current: Tray::new(largest), trays: Some(trays), thread: Some(thread) }
    }

    /// Waits only if it is asked for batches faster than they can be made. A panic of the feeding thread is passed on.
    #[expect(
        clippy::should_implement_trait,
        reason = "what it gives is lent until the next call, which no iterator can say"
    )]
    pub fn next(&mut self) -> Fed<'_> {
        let trays = self.trays.as_ref().expect("held until the feed is dropped");
        let Ok(filled) = trays.incoming.recv() else { self.pass_panic_on() };
        let used = std::mem::replace(&mut self.current, filled);
        // The thread may have ended since: the next call says so.
        let _ = trays.outgoing.send(used);
        Fed { epoch: self.current.epoch, step: self.current.step, tray: &self.current }
    }

    pub fn steps_per_epoch(&self) -> usize {
        self.steps_per_epoch
    }

    fn pass_panic_on(&mut self) -> ! {
        let ended = self.thread.take().expect("nobody else ends the thread").join();
        std::panic::resume_unwind(ended.expect_err("the thread ends by itself only in a panic"))
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        // The thread waits for a tray or for room to put one: without the other ends it ends.
        self.trays = None;
        if let Some(thread) = self.thread.take() {
            // Its panic would have been passed on by `next`; for a batch nobody wanted it does not matter.
            let _ = thread.join();
        }
    }
}

impl Fed<'_> {
    pub fn batch(&self) -> Batch<'_> {
        Batch { images: &self.tray.images, labels: &self.tray.labels }
    }
}

/// The room of one batch, which goes around between the two threads.
struct Tray {
    epoch: usize,
    step: usize,
    images: Vec<f32>,
    labels: Vec<u8>,
}

impl Tray {
    fn new(largest: usize) -> Tray {
        Tray { epoch: 0, step: 0, images: Vec::with_capacity(largest * IMAGE), labels: Vec::with_capacity(largest) }
    }
}

/// One thread's ends of both directions.
struct Trays<T> {
    incoming: Receiver<T>,
    outgoing: SyncSender<T>,
}

/// The life of the feeding thread: fills trays until nobody takes them.
fn fill(images: &Images, plan: &Plan, trays: &Trays<Tray>) {
    let mut order = Vec::with_capacity(images.len());
    for epoch in plan.first_epoch.. {
        order::of_epoch(plan.seed, plan.rank, epoch, images.len(), &mut order);
        for step in 0..order::steps_per_epoch(images.len(), plan.batch) {
            let Ok(mut tray) = trays.incoming.recv() else { return };
            (tray.epoch, tray.step) = (epoch, step);
            fill_tray(images, plan, &order, &mut tray);
            if trays.outgoing.send(tray).is_err() {
                return;
            }
        }
    }
}

fn fill_tray(images: &Images, plan: &Plan, order: &[u32], tray: &mut Tray) {
    let positions = order::positions(order.len(), plan.batch, tray.step);
    tray.images.resize(positions.len() * IMAGE, 0.0);
    tray.labels.clear();
    for (position, into) in positions.zip(tray.images.chunks_exact_mut(IMAGE)) {
        let index = order[position] as usize;
        tray.labels.push(images.labels[index]);
        if plan.augment {
            let change = Change::draw(plan.seed, plan.rank, tray.epoch, position);
            augment::augment(images.image(index), change, into);
        } else {
            augment::scale(images.image(index), into);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAN: Plan = Plan { seed: 3, rank: 1, batch: 4, augment: true, first_epoch: 0 };

    /// Every image has its number as its label and in its first pixel.
    fn images(n: u8) -> Arc<Images> {
        let mut images = Images::blank(n.into());
        for index in 0..n {
            images.labels[usize::from(index)] = index;
            images.pixels[usize::from(index) * IMAGE..][..IMAGE].fill(index);
        }
        Arc::new(images)
    }

    /// Epoch, step, images and labels of the next batches.
    fn take(feed: &mut Feed, n: usize) -> Vec<(usize, usize, Vec<f32>, Vec<u8>)> {
        let mut one = || {
            let fed = feed.next();
            (fed.epoch, fed.step, fed.batch().images.to_vec(), fed.batch().labels.to_vec())
        };
        (0..n).map(|_| one()).collect()
    }

    #[test]
    fn an_epoch_shows_every_image_once_in_its_order_and_ends_with_what_is_left() {
        let mut feed = Feed::start(images(10), PLAN);
        assert_eq!(feed.steps_per_epoch(), 3);
        for epoch in 0..3 {
            let batches = take(&mut feed, 3);
            let places: Vec<_> = batches.iter().map(|(epoch, step, ..)| (*epoch, *step)).collect();
            assert_eq!(places, [(epoch, 0), (epoch, 1), (epoch, 2)]);
            let labels: Vec<u32> =
                batches.iter().flat_map(|(.., labels)| labels).map(|label| u32::from(*label)).collect();
            let mut order = Vec::new();
            order::of_epoch(PLAN.seed, PLAN.rank, epoch, 10, &mut order);
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
    fn a_later_start_goes_on_as_if_there_had_been_no_break() {
        let images = Arc::new(super::super::synthetic::images(11, 1, 0));
        let all = take(&mut Feed::start(images.clone(), PLAN), 9);
        let resumed = take(&mut Feed::start(images, Plan { first_epoch: 2, ..PLAN }), 3);
        assert_eq!(all[6..], resumed);
    }

    #[test]
    fn augmented_images_are_changed_by_their_place() {
        let images = Arc::new(super::super::synthetic::images(5, 1, 0));
        let mut feed = Feed::start(images.clone(), PLAN);
        let batches = take(&mut feed, 2);
        let mut order = Vec::new();
        order::of_epoch(PLAN.seed, PLAN.rank, 0, 5, &mut order);
        let mut expected = vec![0.0; IMAGE];
        augment::augment(images.image(order[4] as usize), Change::draw(PLAN.seed, PLAN.rank, 0, 4), &mut expected);
        assert_eq!(batches[1].2, expected);
        let plain = take(&mut Feed::start(images.clone(), Plan { augment: false, ..PLAN }), 2);
        augment::scale(images.image(order[4] as usize), &mut expected);
        assert_eq!(plain[1].2, expected);
    }

    #[test]
    fn a_feed_ends_wherever_it_is_dropped() {
        for taken in 0..8 {
            let images = images(10);
            let mut feed = Feed::start(images.clone(), PLAN);
            take(&mut feed, taken);
            drop(feed);
            assert_eq!(Arc::strong_count(&images), 1, "the thread still holds the images after {taken} batches");
        }
    }

    #[test]
    fn trays_go_around() {
        let mut feed = Feed::start(images(100), PLAN);
        let mut rooms: Vec<_> = (0..50).map(|_| feed.next().batch().images.as_ptr()).collect();
        rooms.sort_unstable();
        rooms.dedup();
        assert!(rooms.len() <= AHEAD + 1, "{} trays", rooms.len());
    }

    #[test]
    #[should_panic(expected = "out of range")]
    fn a_panic_of_the_thread_is_passed_on() {
        // Fewer pixels than labels, which no data set has.
        let images = Arc::new(Images { pixels: vec![0; IMAGE], labels: vec![0; 10] });
        let mut feed = Feed::start(images, PLAN);
        loop {
            feed.next();
        }
    }
}
