//! Which values a step drops. Follows from seed, step, the image's place among those of all ranks, the layer and the value's place in it: the
//! same for one rank of 128 images as for four ranks of 32, and for any number of threads.

use crate::random;

/// A layer that drops values in training. The others are scaled up, so that the expectation stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dropout {
    /// Values of one image there, in the order of the layer (NHWC).
    pub size: usize,
    /// Of 256 values so many are dropped.
    pub dropped: u8,
}

impl Dropout {
    /// By which the values that stay are multiplied.
    pub fn scale(&self) -> f32 {
        256.0 / (256.0 - f32::from(self.dropped))
    }
}

/// After the first pooling, the second, the dense layer.
pub const DROPOUTS: [Dropout; 3] = [
    Dropout { size: 15 * 15 * 32, dropped: 64 },
    Dropout { size: 6 * 6 * 64, dropped: 64 },
    Dropout { size: 512, dropped: 128 },
];

/// The chance in one step of one rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DropoutSeed {
    pub seed: u64,
    pub step: u64,
    /// The place of this rank's first image among those of all ranks in this step.
    pub first: u64,
}

impl DropoutSeed {
    /// For an image of the batch and a layer of [`DROPOUTS`]: its key. Value `8 * i + b` is dropped if byte `b` (from the lowest) of
    /// `random::word_at(key, i)` is less than `dropped`.
    pub fn key(&self, image: usize, layer: usize) -> u64 {
        random::hash_key(&[self.seed, self.step, self.first + image as u64, layer as u64])
    }

    /// The plain way to ask.
    pub fn drops(&self, image: usize, layer: usize, value: usize) -> bool {
        let word = random::word_at(self.key(image, layer), (value / 8) as u64);
        ((word >> (8 * (value % 8))) as u8) < DROPOUTS[layer].dropped
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_are_dropped_as_the_layer_says() {
        let dropout_seed = DropoutSeed { seed: 1, step: 2, first: 0 };
        for (layer, dropout) in DROPOUTS.iter().enumerate() {
            let dropped = (0..10).flat_map(|image| (0..dropout.size).map(move |value| (image, value)));
            let dropped = dropped.filter(|(image, value)| dropout_seed.drops(*image, layer, *value)).count();
            let share = dropped as f32 / (10 * dropout.size) as f32;
            let wanted = f32::from(dropout.dropped) / 256.0;
            assert!((share - wanted).abs() < 0.03, "layer {layer}: {share} instead of {wanted}");
        }
    }

    #[test]
    fn one_rank_of_many_images_drops_what_many_ranks_drop() {
        let (all, second) = (DropoutSeed { seed: 1, step: 5, first: 0 }, DropoutSeed { seed: 1, step: 5, first: 32 });
        assert!((0..100).all(|value| all.drops(40, 0, value) == second.drops(8, 0, value)));
        assert!((0..100).any(|value| all.drops(40, 0, value) != second.drops(9, 0, value)));
    }
}
