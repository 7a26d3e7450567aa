//! Dropout masks. A mask depends on the seed, the step, the image's index among those of all ranks, the layer and the
//! value's index in it. It is the same for one rank of 128 images as for four ranks of 32, and for any number of
//! threads.

use crate::random;

/// A dropout layer. Values that are kept are scaled up, so that the expectation is unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dropout {
    /// Values per image in this layer (NHWC).
    pub size: usize,
    /// Number of values out of 256 that are dropped.
    pub dropped: u8,
}

impl Dropout {
    /// Factor for the values that are kept.
    pub fn scale(&self) -> f32 {
        256.0 / (256.0 - f32::from(self.dropped))
    }
}

/// After the first pooling, the second pooling and the dense layer.
pub const DROPOUTS: [Dropout; 3] = [
    Dropout { size: 15 * 15 * 32, dropped: 64 },
    Dropout { size: 6 * 6 * 64, dropped: 64 },
    Dropout { size: 512, dropped: 128 },
];

/// Seed of all dropout masks of one rank in one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DropoutSeed {
    pub seed: u64,
    pub step: u64,
    /// Index of this rank's first image among those of all ranks in this step.
    pub first: u64,
}

impl DropoutSeed {
    /// Random key for an image of the batch and a layer of [`DROPOUTS`]. Value `8 * i + b` is dropped if byte `b`
    /// (lowest first) of `random::word_at(key, i)` is less than `dropped`.
    pub fn key(&self, image: usize, layer: usize) -> u64 {
        random::hash_key(&[self.seed, self.step, self.first + image as u64, layer as u64])
    }

    /// Whether a value is dropped; the simple version of what kernels vectorise.
    pub fn drops(&self, image: usize, layer: usize, value: usize) -> bool {
        let word = random::word_at(self.key(image, layer), (value / 8) as u64);
        ((word >> (8 * (value % 8))) as u8) < DROPOUTS[layer].dropped
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_drop_rate_is_that_of_the_layer() {
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
    fn masks_do_not_depend_on_the_number_of_ranks() {
        let (all, second) = (DropoutSeed { seed: 1, step: 5, first: 0 }, DropoutSeed { seed: 1, step: 5, first: 32 });
        assert!((0..100).all(|value| all.drops(40, 0, value) == second.drops(8, 0, value)));
        assert!((0..100).any(|value| all.drops(40, 0, value) != second.drops(9, 0, value)));
    }
}
