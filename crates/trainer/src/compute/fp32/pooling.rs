//! 2x2 max pooling followed by dropout, over two rows of activations. Both are one kernel, since both only select which
//! value passes: the forward pass stores one bit for each of the four window corners (the first of equal values wins),
//! and the backward pass routes the gradient there.
//!
//! A maximum of zero passes no gradient: the ReLU before it would block it anyway.

use crate::compute::simd::{Simd, SimdKernel};
use crate::network::{DROPOUTS, DropoutSeed};
use crate::random;

/// For each of the four corners of a window, the channels of one vector whose gradient goes there.
pub type ArgmaxMasks = [u16; 4];

/// Dropout of one layer for one image.
#[derive(Clone, Copy)]
pub struct DropoutMask {
    pub key: u64,
    pub dropped: u8,
    pub scale: f32,
}

impl DropoutMask {
    /// For an image of the batch and a layer of [`DROPOUTS`].
    pub fn new(dropout_seed: DropoutSeed, image: usize, layer: usize) -> DropoutMask {
        let dropout = DROPOUTS[layer];
        DropoutMask { key: dropout_seed.key(image, layer), dropped: dropout.dropped, scale: dropout.scale() }
    }
}

/// Pools two rows with an even number of pixels into one row of half as many.
pub struct Pool<'a, const CHANNELS: usize> {
    pub upper: &'a [f32],
    pub lower: &'a [f32],
    pub dropout: Option<DropoutMask>,
    /// Index of the first output value within the image's layer.
    pub first: usize,
    pub output: &'a mut [f32],
    pub argmax: &'a mut [ArgmaxMasks],
}

impl<const CHANNELS: usize> Pool<'_, CHANNELS> {
    pub fn run<S: Simd>(self) {
        let size = self.output.len();
        assert!(size.is_multiple_of(CHANNELS) && self.first.is_multiple_of(16) && CHANNELS.is_multiple_of(16));
        assert!(self.upper.len() >= 2 * size && self.lower.len() >= 2 * size && self.argmax.len() >= size / S::LANES);
        // SAFETY: the engine is created only if the CPU supports `S`; the assertions above are what the kernel
        // requires.
        unsafe { S::dispatch(self) }
    }
}

impl<const CHANNELS: usize> SimdKernel for Pool<'_, CHANNELS> {
    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let Pool { upper, lower, dropout, first, output, argmax } = self;
        let scale = dropout.map_or(1.0, |dropout| dropout.scale);
        for (vector, argmax) in argmax.iter_mut().enumerate().take(output.len() / S::LANES) {
            let value = vector * S::LANES;
            let corner = value / CHANNELS * 2 * CHANNELS + value % CHANNELS;
            // SAFETY: two pixels starting at `corner` are in bounds of both rows, and `value` of the output; see
            // `Pool::run`.
            unsafe {
                let (upper, lower) = (upper.as_ptr().add(corner), lower.as_ptr().add(corner));
                let (right_upper, right_lower) = (upper.add(CHANNELS), lower.add(CHANNELS));
                let window = [S::load(upper), S::load(right_upper), S::load(lower), S::load(right_lower)];
                let mut best = window[0];
                let mut later = [0; 4];
                for corner_idx in 1..4 {
                    later[corner_idx] = window[corner_idx].gt_mask(best);
                    best = best.max(window[corner_idx]);
                }
                let mut free = best.gt_mask(S::splat(0.0));
                if let Some(dropout) = dropout {
                    free &= keep_lanes::<S>(dropout, first + value);
                }
                best.mul(S::splat(scale)).mask_lanes(free).store(output.as_mut_ptr().add(value));
                // The last corner that exceeded all earlier ones is the first of the largest values.
                for corner_idx in (0..4).rev() {
                    argmax[corner_idx] = if corner_idx == 0 { free } else { free & later[corner_idx] };
                    free &= !argmax[corner_idx];
                }
            }
        }
    }
}

/// Routes the gradient of one pooled row back to two rows of activations.
pub struct Unpool<'a, const CHANNELS: usize> {
    pub gradient: &'a [f32],
    pub argmax: &'a [ArgmaxMasks],
    /// Scale of the dropout.
    pub scale: f32,
    pub upper: &'a mut [f32],
    pub lower: &'a mut [f32],
    /// Bias gradient of the layer before, to which all routed gradients are added.
    pub bias: &'a mut [f32],
}

impl<const CHANNELS: usize> Unpool<'_, CHANNELS> {
    pub fn run<S: Simd>(self) {
        let size = self.gradient.len();
        assert!(size.is_multiple_of(CHANNELS) && CHANNELS.is_multiple_of(16) && self.bias.len() == CHANNELS);
        assert!(self.upper.len() >= 2 * size && self.lower.len() >= 2 * size && self.argmax.len() >= size / S::LANES);
        // SAFETY: the engine is created only if the CPU supports `S`; the assertions above are what the kernel
        // requires.
        unsafe { S::dispatch(self) }
    }
}

impl<const CHANNELS: usize> SimdKernel for Unpool<'_, CHANNELS> {
    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let Unpool { gradient, argmax, scale, upper, lower, bias } = self;
        for (vector, argmax) in argmax.iter().enumerate().take(gradient.len() / S::LANES) {
            let value = vector * S::LANES;
            let corner = value / CHANNELS * 2 * CHANNELS + value % CHANNELS;
            // SAFETY: two pixels starting at `corner` are in bounds of both rows, and `value` of the gradient; see
            // `Unpool::run`.
            unsafe {
                let gradient = S::load(gradient.as_ptr().add(value)).mul(S::splat(scale));
                let rows = [upper.as_mut_ptr().add(corner), lower.as_mut_ptr().add(corner)];
                for corner_idx in 0..4 {
                    gradient.mask_lanes(argmax[corner_idx]).store(rows[corner_idx / 2].add(corner_idx % 2 * CHANNELS));
                }
                let bias = bias.as_mut_ptr().add(value % CHANNELS);
                let anywhere = argmax[0] | argmax[1] | argmax[2] | argmax[3];
                S::load(bias).add(gradient.mask_lanes(anywhere)).store(bias);
            }
        }
    }
}

/// Bit mask of the values, starting at `first`, that are not dropped. `DropoutSeed::key` defines the random numbers.
#[inline(always)]
pub fn keep_lanes<S: Simd>(dropout: DropoutMask, first: usize) -> u16 {
    let eight = |word: usize| u16::from(keep_bits(random::word_at(dropout.key, word as u64), dropout.dropped));
    if const { S::LANES == 16 } { eight(first / 8) | (eight(first / 8 + 1) << 8) } else { eight(first / 8) }
}

/// Bit mask of the bytes that are at least `least`, which must be at most 128. Adding to the low seven bits of each
/// byte carries into the eighth if they suffice; the multiplication gathers the eighth bits.
#[inline(always)]
fn keep_bits(word: u64, least: u8) -> u8 {
    const ONES: u64 = 0x0101_0101_0101_0101;
    let enough = ((word & (ONES * 0x7f)) + ONES * u64::from(128 - least)) | word;
    (((enough >> 7) & ONES).wrapping_mul(0x0102_0408_1020_4080) >> 56) as u8
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    #[test]
    fn keep_bits_matches_a_bytewise_comparison() {
        let mut random = Random::from_key(&[1]);
        for least in [1, 63, 64, 65, 127, 128] {
            for _ in 0..1000 {
                let word = random.draw();
                let plain = (0..8).fold(0, |bits, byte| bits | (u8::from((word >> (8 * byte)) as u8 >= least) << byte));
                assert_eq!(keep_bits(word, least), plain, "{word:x} against {least}");
            }
        }
    }
}
