//! Order in which a rank sees the images: as Keras' `datagen.flow(shuffle=True)` under Horovod, every rank sees the
//! whole set in each epoch, in an order of its own. It depends on seed, rank and epoch alone. In an elastic training
//! the ranks, whose number changes, share one order.

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

/// Positions of a rank in a step of ranks that share an order, if those before `first` are used. The last step of an
/// epoch is divided evenly; a rank may get none of it.
pub fn shared_positions(n_images: usize, batch: usize, first: usize, rank: usize, size: usize) -> Range<usize> {
    let n_step = images_of_step(n_images, batch, first, size);
    first + n_step * rank / size..first + n_step * (rank + 1) / size
}

/// Number of images of such a step.
pub fn images_of_step(n_images: usize, batch: usize, first: usize, size: usize) -> usize {
    n_images.saturating_sub(first).min(batch * size)
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
    fn ranks_of_changing_number_use_every_position_once() {
        let (n_images, batch) = (103, 4);
        let mut used = Vec::new();
        // One step of each size in turn.
        for size in [3, 4, 1, 2, 7].into_iter().cycle() {
            let first = used.len();
            for rank in 0..size {
                let positions = shared_positions(n_images, batch, first, rank, size);
                assert!(positions.len() <= batch, "{positions:?}");
                used.extend(positions);
            }
            assert_eq!(used.len(), first + images_of_step(n_images, batch, first, size));
            if used.len() == n_images {
                break;
            }
            assert_eq!(used.len(), first + batch * size);
        }
        assert_eq!(used, (0..n_images).collect::<Vec<_>>());
        assert_eq!(shared_positions(10, 4, 8, 0, 3), 8..8);
        assert_eq!(shared_positions(10, 4, 8, 2, 3), 9..10);
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
