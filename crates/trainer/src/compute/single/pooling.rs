//! The 2x2 maximum with the dropout behind it, over two rows of activations. Both come together, as both only decide which value goes on:
//! forward that is noted as one bit for each of the four places (the first of equal ones wins), backward the gradient goes there.
//!
//! A maximum of zero passes no gradient: the ReLU before it would stop it anyway.

use crate::compute::simd::{Simd, Work};
use crate::network::{DROPOUTS, Noise};
use crate::random;

/// The four places of a maximum, for the channels of one vector: bits where the gradient goes.
pub type Winners = [u16; 4];

/// What dropout does to the values of one image.
#[derive(Clone, Copy)]
pub struct Drops {
    pub key: u64,
    pub dropped: u8,
    pub scale: f32,
}

impl Drops {
    /// For an image of the batch and a layer of [`DROPOUTS`].
    pub fn of(noise: Noise, image: usize, layer: usize) -> Drops {
        let dropout = DROPOUTS[layer];
        Drops { key: noise.key(image, layer), dropped: dropout.dropped, scale: dropout.scale() }
    }
}

/// From two rows of activations with an even number of pixels to one row of half as many.
pub struct Pool<'a, const CHANNELS: usize> {
    pub upper: &'a [f32],
    pub lower: &'a [f32],
    pub drops: Option<Drops>,
    /// The place of the first value among those of the image.
    pub first: usize,
    pub output: &'a mut [f32],
    pub winners: &'a mut [Winners],
}

impl<const CHANNELS: usize> Pool<'_, CHANNELS> {
    pub fn run<S: Simd>(self) {
        let size = self.output.len();
        assert!(size.is_multiple_of(CHANNELS) && self.first.is_multiple_of(16) && CHANNELS.is_multiple_of(16));
        assert!(self.upper.len() >= 2 * size && self.lower.len() >= 2 * size && self.winners.len() >= size / S::LANES);
        // SAFETY: the engine is made only on processors that have `S`; the checks above are what the work needs.
        unsafe { S::enter(self) }
    }
}

impl<const CHANNELS: usize> Work for Pool<'_, CHANNELS> {
    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let Pool { upper, lower, drops, first, output, winners } = self;
        let scale = drops.map_or(1.0, |drops| drops.scale);
        for (vector, winners) in winners.iter_mut().enumerate().take(output.len() / S::LANES) {
            let value = vector * S::LANES;
            let corner = value / CHANNELS * 2 * CHANNELS + value % CHANNELS;
            // SAFETY: two pixels from the corner are inside of both rows, `value` inside of the output; see `Pool::run`.
            unsafe {
                let (upper, lower) = (upper.as_ptr().add(corner), lower.as_ptr().add(corner));
                let (right_upper, right_lower) = (upper.add(CHANNELS), lower.add(CHANNELS));
                let places = [S::load(upper), S::load(right_upper), S::load(lower), S::load(right_lower)];
                let mut best = places[0];
                let mut later = [0; 4];
                for place in 1..4 {
                    later[place] = places[place].above(best);
                    best = best.max(places[place]);
                }
                let mut free = best.above(S::splat(0.0));
                if let Some(drops) = drops {
                    free &= kept::<S>(drops, first + value);
                }
                best.mul(S::splat(scale)).keep(free).store(output.as_mut_ptr().add(value));
                // The last place that was above all before it is the first of the greatest.
                for place in (0..4).rev() {
                    winners[place] = if place == 0 { free } else { free & later[place] };
                    free &= !winners[place];
                }
            }
        }
    }
}

/// From the gradient of one row of maxima to those of two rows of activations.
pub struct Unpool<'a, const CHANNELS: usize> {
    pub gradient: &'a [f32],
    pub winners: &'a [Winners],
    /// Of the dropout.
    pub scale: f32,
    pub upper: &'a mut [f32],
    pub lower: &'a mut [f32],
    /// Adds to the gradient of the layer before: what goes anywhere goes through its bias.
    pub bias: &'a mut [f32],
}

impl<const CHANNELS: usize> Unpool<'_, CHANNELS> {
    pub fn run<S: Simd>(self) {
        let size = self.gradient.len();
        assert!(size.is_multiple_of(CHANNELS) && CHANNELS.is_multiple_of(16) && self.bias.len() == CHANNELS);
        assert!(self.upper.len() >= 2 * size && self.lower.len() >= 2 * size && self.winners.len() >= size / S::LANES);
        // SAFETY: the engine is made only on processors that have `S`; the checks above are what the work needs.
        unsafe { S::enter(self) }
    }
}

impl<const CHANNELS: usize> Work for Unpool<'_, CHANNELS> {
    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let Unpool { gradient, winners, scale, upper, lower, bias } = self;
        for (vector, winners) in winners.iter().enumerate().take(gradient.len() / S::LANES) {
            let value = vector * S::LANES;
            let corner = value / CHANNELS * 2 * CHANNELS + value % CHANNELS;
            // SAFETY: two pixels from the corner are inside of both rows, `value` inside of the gradient; see `Unpool::run`.
            unsafe {
                let gradient = S::load(gradient.as_ptr().add(value)).mul(S::splat(scale));
                let rows = [upper.as_mut_ptr().add(corner), lower.as_mut_ptr().add(corner)];
                for place in 0..4 {
                    gradient.keep(winners[place]).store(rows[place / 2].add(place % 2 * CHANNELS));
                }
                let bias = bias.as_mut_ptr().add(value % CHANNELS);
                let anywhere = winners[0] | winners[1] | winners[2] | winners[3];
                S::load(bias).add(gradient.keep(anywhere)).store(bias);
            }
        }
    }
}

/// Bits of the values, from `first` on, that are not dropped. See `Noise::key` for how that is drawn.
#[inline(always)]
pub fn kept<S: Simd>(drops: Drops, first: usize) -> u16 {
    let eight = |word: usize| u16::from(kept_of(random::word(drops.key, word as u64), drops.dropped));
    if const { S::LANES == 16 } { eight(first / 8) | (eight(first / 8 + 1) << 8) } else { eight(first / 8) }
}

/// A bit for each byte that is at least `least`, which is at most 128. Adding to seven bits of each byte carries into the eighth where they
/// are enough; the product brings the eighth bits together.
#[inline(always)]
fn kept_of(word: u64, least: u8) -> u8 {
    const ONES: u64 = 0x0101_0101_0101_0101;
    let enough = ((word & (ONES * 0x7f)) + ONES * u64::from(128 - least)) | word;
    (((enough >> 7) & ONES).wrapping_mul(0x0102_0408_1020_4080) >> 56) as u8
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    #[test]
    fn bits_of_bytes_that_are_enough() {
        let mut random = Random::of(&[1]);
        for least in [1, 63, 64, 65, 127, 128] {
            for _ in 0..1000 {
                let word = random.draw();
                let plain = (0..8).fold(0, |bits, byte| bits | (u8::from((word >> (8 * byte)) as u8 >= least) << byte));
                assert_eq!(kept_of(word, least), plain, "{word:x} against {least}");
            }
        }
    }
}
