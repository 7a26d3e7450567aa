//! Image augmentation as Keras' `ImageDataGenerator` does it with the settings of the tutorial's script: shifts by up
//! to a tenth of the side in both directions, and a horizontal flip with probability 1/2.
//!
//! Keras draws real-valued shifts, so new pixels are interpolated from four neighbours; beyond the edge the nearest
//! pixel is repeated. Then it flips. All pixels shift by the same amount, so the interpolation is done between rows
//! first (one pair of weights for the image), then within a row. Flipping an image shifted to the left equals shifting
//! the flipped image to the right, so the flip can be done in between, while a row is in cache.

use crate::network::{CHANNELS, IMAGE, SIDE};
use crate::random::Random;

const ROW: usize = SIDE * CHANNELS;
/// Largest shift in pixels.
const MAX_SHIFT: f32 = 0.1 * SIDE as f32;
/// Pixels beside a row that a shift may reach.
const MARGIN_PIXELS: usize = 4;
/// Domain separator: random streams of other modules with the same seed differ.
const AUGMENT_STREAM: u64 = u64::from_be_bytes(*b"augments");

/// Shift and flip of one image.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Augmentation {
    /// Vertical shift: each pixel is taken from `dy` pixels below. At most `MAX_SHIFT` in absolute value.
    pub dy: f32,
    /// Horizontal shift: each pixel is taken from `dx` pixels to the right.
    pub dx: f32,
    pub mirrored: bool,
}

impl Augmentation {
    /// The augmentation of a rank's image at a position of an epoch.
    pub fn draw(seed: u64, rank: usize, epoch: usize, position: usize) -> Augmentation {
        let mut random = Random::from_key(&[seed, rank as u64, epoch as u64, position as u64, AUGMENT_STREAM]);
        let mut shift = || (2.0 * random.uniform() - 1.0) * MAX_SHIFT;
        Augmentation { dy: shift(), dx: shift(), mirrored: random.uniform() < 0.5 }
    }
}

/// Augments an image and scales it to 0..=1.
pub fn augment(image: &[u8], augmentation: Augmentation, into: &mut [f32]) {
    assert_eq!((image.len(), into.len()), (IMAGE, IMAGE));
    let (above, weight_below) = split_shift(augmentation.dy);
    let (left, weight_right) = split_shift(if augmentation.mirrored { -augmentation.dx } else { augmentation.dx });
    let (weight_above, weight_left) = ((1.0 - weight_below) / 255.0, 1.0 - weight_right);
    let weight_below = weight_below / 255.0;
    // Offset of the left neighbour in a row with margins.
    let first = CHANNELS * left.wrapping_add_unsigned(MARGIN_PIXELS) as usize;
    let mut row = [0.0; ROW + 2 * MARGIN_PIXELS * CHANNELS];
    for (index, into) in into.chunks_exact_mut(ROW).enumerate() {
        let row_at = |offset: isize| {
            let index = (index as isize + offset).clamp(0, SIDE as isize - 1) as usize;
            &image[index * ROW..][..ROW]
        };
        let middle = &mut row[MARGIN_PIXELS * CHANNELS..][..ROW];
        for ((blend, above), below) in middle.iter_mut().zip(row_at(above)).zip(row_at(above + 1)) {
            *blend = f32::from(*above) * weight_above + f32::from(*below) * weight_below;
        }
        if augmentation.mirrored {
            middle.as_chunks_mut::<CHANNELS>().0.reverse();
        }
        fill_margins(&mut row);
        let (left, right) = (&row[first..][..ROW], &row[first + CHANNELS..][..ROW]);
        for ((into, left), right) in into.iter_mut().zip(left).zip(right) {
            *into = left * weight_left + right * weight_right;
        }
    }
}

/// Scales pixels to 0..=1 without augmentation.
pub fn scale(pixels: &[u8], into: &mut [f32]) {
    assert_eq!(pixels.len(), into.len());
    for (into, pixel) in into.iter_mut().zip(pixels) {
        *into = f32::from(*pixel) / 255.0;
    }
}

fn split_shift(shift: f32) -> (isize, f32) {
    debug_assert!(shift.abs() <= MAX_SHIFT);
    (shift.floor() as isize, shift - shift.floor())
}

fn fill_margins(row: &mut [f32; ROW + 2 * MARGIN_PIXELS * CHANNELS]) {
    let (pixels, _) = row.as_chunks_mut::<CHANNELS>();
    let (first, last) = (pixels[MARGIN_PIXELS], pixels[MARGIN_PIXELS + SIDE - 1]);
    pixels[..MARGIN_PIXELS].fill(first);
    pixels[MARGIN_PIXELS + SIDE..].fill(last);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Simple version of Keras' algorithm: SciPy's affine transform of order 1 with mode `nearest` for each value, then
    /// the flip.
    fn simple_augment(image: &[u8], augmentation: Augmentation) -> Vec<f32> {
        let last = (SIDE - 1) as f64;
        let at =
            |row: usize, column: usize, channel: usize| f64::from(image[(row * SIDE + column) * CHANNELS + channel]);
        let neighbours = |place: f64| {
            let place = place.clamp(0.0, last);
            let first = place.floor();
            (first as usize, (first + 1.0).min(last) as usize, place - first)
        };
        let value = |index: usize| {
            let (row, column, channel) = (index / ROW, index / CHANNELS % SIDE, index % CHANNELS);
            let column = if augmentation.mirrored { SIDE - 1 - column } else { column };
            let (above, below, down) = neighbours(row as f64 + f64::from(augmentation.dy));
            let (left, right, across) = neighbours(column as f64 + f64::from(augmentation.dx));
            let blend = |row| at(row, left, channel) * (1.0 - across) + at(row, right, channel) * across;
            ((blend(above) * (1.0 - down) + blend(below) * down) / 255.0) as f32
        };
        (0..IMAGE).map(value).collect()
    }

    fn image(seed: u64) -> Vec<u8> {
        let mut random = Random::from_key(&[seed]);
        (0..IMAGE).map(|_| random.draw() as u8).collect()
    }

    fn check(seed: u64, augmentation: Augmentation) {
        let (image, mut found) = (image(seed), vec![-1.0; IMAGE]);
        augment(&image, augmentation, &mut found);
        for (index, (found, expected)) in found.iter().zip(simple_augment(&image, augmentation)).enumerate() {
            assert!(
                (found - expected).abs() < 5e-7,
                "seed {seed}, {augmentation:?}, value {index}: {found} instead of {expected}"
            );
        }
    }

    #[test]
    fn random_augmentations_match_keras() {
        for seed in 0..200 {
            check(seed, Augmentation::draw(seed, 1, 2, 3));
        }
    }

    #[test]
    fn whole_pixels_and_extreme_shifts_match_keras() {
        let moves = [-MAX_SHIFT, -3.0, -1.0, 0.0, 0.5, 2.0, MAX_SHIFT];
        for (index, below) in moves.into_iter().enumerate() {
            for right in moves {
                for mirrored in [false, true] {
                    check(index as u64, Augmentation { dy: below, dx: right, mirrored });
                }
            }
        }
    }

    #[test]
    fn no_augmentation_only_scales() {
        let (image, mut found, mut scaled) = (image(1), vec![0.0; IMAGE], vec![0.0; IMAGE]);
        augment(&image, Augmentation { dy: 0.0, dx: 0.0, mirrored: false }, &mut found);
        scale(&image, &mut scaled);
        assert!(found.iter().zip(&scaled).all(|(found, scaled)| (found - scaled).abs() < 1e-7));
        assert_eq!(scaled, image.iter().map(|pixel| f32::from(*pixel) / 255.0).collect::<Vec<_>>());
    }

    #[test]
    fn augmentations_are_distributed_as_in_keras() {
        let augmentations: Vec<_> = (0..10_000).map(|position| Augmentation::draw(1, 0, 0, position)).collect();
        let share = |holds: fn(&Augmentation) -> bool| {
            augmentations.iter().filter(|augmentation| holds(augmentation)).count() as f32 / 1e4
        };
        assert!(augmentations.iter().all(|augmentation| augmentation.dy.abs() <= 3.2 && augmentation.dx.abs() <= 3.2));
        for (share, expected) in [
            (share(|augmentation| augmentation.mirrored), 0.5),
            (share(|augmentation| augmentation.dy < -1.6), 0.25),
            (share(|augmentation| augmentation.dx > 1.6), 0.25),
            (share(|augmentation| augmentation.dy > 0.0 && augmentation.dx > 0.0), 0.25),
            (share(|augmentation| augmentation.dy > 0.0 && augmentation.mirrored), 0.25),
        ] {
            assert!((share - expected).abs() < 0.03, "{share} instead of {expected}");
        }
    }
}
