//! Order in which a rank sees the images: as Keras' `datagen.flow(shuffle=True)` under Horovod, every rank sees the
//! whole set in each epoch, in an order of its own. It depends on seed, rank and epoch alone.

use std::ops::Range;

use crate::random::Random;

/// Domain separator: random streams of other modules with the same seed differ.
const ORDER_STREAM: u64 = u64::from_be_bytes(*b"theorder");

/// Fills `into` with a permutation of the numbers below `n_images`.
pub fn fill_order(seed: u64, rank: usize, epoch: usize, n_images: usize, into: &mut Vec<u32>) {
    let n_images = u32::try_from(n_images).expect("a data set in memory has fewer images than this");
    into.clear();
    into.extend(0..n_images);
    Random::from_key(&[seed, rank as u64, epoch as u64, ORDER_STREAM]).shuffle(into);
}

/// Number of batches per epoch; the last one may be smaller.
pub fn steps_per_epoch(n_images: usize, batch: usize) -> usize {
    n_images.div_ceil(batch)
}

/// Positions in the epoch's order that form the batch of a step.
pub fn positions(n_images: usize, batch: usize, step: usize) -> Range<usize> {
    step * batch..((step + 1) * batch).min(n_images)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(seed: u64, rank: usize, epoch: usize) -> Vec<u32> {
        let mut order = vec![9; 3];
        fill_order(seed, rank, epoch, 1000, &mut order);
        order
    }

    #[test]
    fn every_image_appears_once_per_epoch() {
        let mut order = order(1, 2, 3);
        order.sort_unstable();
        assert_eq!(order, (0..1000).collect::<Vec<_>>());
    }

    #[test]
    fn every_seed_rank_and_epoch_has_its_own_order() {
        let orders = [order(1, 0, 0), order(2, 0, 0), order(1, 1, 0), order(1, 0, 1)];
        for (index, one) in orders.iter().enumerate() {
            assert!(!orders[..index].contains(one), "order {index} comes twice");
        }
        assert_eq!(order(1, 1, 0), orders[2]);
    }

    #[test]
    fn the_steps_of_an_epoch_cover_every_position_once() {
        for (n_images, batch, steps) in [(10, 4, 3), (12, 4, 3), (1, 4, 1), (50_000, 32, 1563)] {
            assert_eq!(steps_per_epoch(n_images, batch), steps);
            let all: Vec<_> = (0..steps).flat_map(|step| positions(n_images, batch, step)).collect();
            assert_eq!(all, (0..n_images).collect::<Vec<_>>());
        }
    }
}
