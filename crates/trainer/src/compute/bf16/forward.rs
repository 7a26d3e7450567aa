//! One image through the four convolutions, from pixels to what the dense layer reads. Leaves behind what the way back needs.
//!
//! Pixels lie row after row, and products go over them in runs of 32, as if the image were one long row: the pixel under a tap is a fixed
//! distance away. At the end of a row this reads into the next and gives sums nobody looks at. Where a border of zeros is wanted, rows are one
//! pixel longer than the image: it is the border to the right and, for the next row, to the left.
//!
//! The second pooling has no use for the last row and column of 13, so these are not computed, nor what only they would read:
//!
//! | layer | rows are | computed |
//! | --- | --- | --- |
//! | conv2d | 32 | 32 x 32 |
//! | conv2d_1 | 32 | 30 x 30 |
//! | pooling | 16, with border | 15 x 15 |
//! | conv2d_2 | 16 | 14 x 14 |
//! | conv2d_3 | 16 | 12 x 12 |
//! | pooling | 6 | 6 x 6 |

use super::kernels::{Kernels, taps};
use super::lines::{Line, NO_SUMS, NOTHING, Run, overlapped, packed, rows};
use super::pooling::{Pooling, Winners, draw, pool, rectify, scale};
use super::stack::{self, Bordered};
use super::tiles::{Left, Tiles};
use crate::network::Weights;

/// Pixels of zeros before and after the first of a bordered row of 16.
pub const BORDER: usize = 17;
/// Lines of an image for the dense layer.
pub const OUT: usize = 6 * 6 * 2;

pub const TAPS_32: [usize; 9] = taps(32, 1);
pub const TAPS_16: [usize; 9] = taps(16, 1);
pub const TAPS_16_64: [usize; 18] = taps(16, 2);

/// What the way back of an image needs, or the next layer reads. Longer than the pixels by what the last runs read beyond them.
pub struct Kept {
    pub winners: Vec<Winners>,
    pub pooled: Vec<Line>,
    /// Two lines a pixel.
    pub conv2d_2: Vec<Line>,
    /// Two a pixel.
    pub winners_2: Vec<Winners>,
}

impl Kept {
    pub fn new() -> Kept {
        Kept {
            winners: vec![[0; 4]; 15 * 15],
            pooled: vec![NOTHING; BORDER + 15 * 16 + 1],
            conv2d_2: vec![NOTHING; (14 * 16 + 2) * 2],
            winners_2: vec![[0; 4]; OUT],
        }
    }
}

/// Room a thread needs beside. The first convolution is computed again on the way back: it is the largest of all and the cheapest, so that
/// keeping it for each image costs more, in memory that is far away.
pub struct Scratch {
    pub stack: Vec<Line>,
    pub conv2d: Vec<Line>,
    bordered: Bordered,
    sums: [[Run; 2]; 2],
    /// By pixel after each pooling, what dropout leaves; one more than there are, as they are drawn in twos.
    kept: [u32; 15 * 15 + 1],
    kept_2: [u32; OUT],
}

impl Scratch {
    pub fn new() -> Scratch {
        Scratch {
            stack: stack::room(),
            conv2d: vec![NOTHING; 32 * 32 + 2],
            bordered: Bordered::new(),
            sums: [[NO_SUMS; 2]; 2],
            kept: [0; 15 * 15 + 1],
            kept_2: [0; OUT],
        }
    }
}

/// What all images of a step have in common, on the way forward.
pub struct Forward<'a> {
    pub kernels: &'a Kernels,
    pub weights: &'a Weights,
}

impl Forward<'_> {
    /// `keys` are those of the first two dropouts, if there are any.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512bf16")]
    pub fn image(
        &self,
        tiles: &Tiles,
        image: &[f32],
        keys: [Option<u64>; 2],
        scratch: &mut Scratch,
        kept: &mut Kept,
        out: &mut [Line],
    ) {
        draw(0, keys[0], &mut scratch.kept);
        draw(1, keys[1], &mut scratch.kept_2);
        self.first(tiles, image, scratch);
        self.second(tiles, scale(0, keys[0].is_some()), scratch, kept);
        self.third(tiles, scratch, kept);
        self.fourth(tiles, scale(1, keys[1].is_some()), scratch, kept, out);
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
    pub fn first(&self, tiles: &Tiles, image: &[f32], scratch: &mut Scratch) {
        scratch.bordered.stack(image, &mut scratch.stack);
        let make = |row: usize, [sums, _]: &mut [Run; 2]| {
            let stack = scratch.stack[row * stack::ROW..][..stack::ROW].as_ptr();
            let left = Left { first: stack.cast(), down: 16 * stack::STRIDE, stride: stack::STRIDE };
            // SAFETY: the last tile reads 64 bytes from pixel 31, up to byte 622 of 640; the kernel is one step.
            unsafe { tiles.multiply(left, &[0], packed(self.kernels.first.as_ptr()), sums.sums(false)) };
        };
        let finish = |row: usize, [sums, _]: &[Run; 2]| {
            rectify(&sums.0, &self.weights.0[1], &mut scratch.conv2d[row * 32..][..32], 1);
        };
        overlapped(&mut scratch.sums, 32, make, finish);
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
    fn second(&self, tiles: &Tiles, scale: f32, scratch: &mut Scratch, kept: &mut Kept) {
        let kernel = self.kernels.forward[0].as_ptr();
        let make = |row: usize, sums: &mut [Run; 2]| {
            for (below, sums) in sums.iter_mut().enumerate() {
                let pixels = &scratch.conv2d[(2 * row + below) * 32..][..32 + 66];
                // SAFETY: under the last tap, the last of 32 pixels is 66 further.
                unsafe { tiles.multiply(rows(pixels.as_ptr(), 1), &TAPS_32, packed(kernel), sums.sums(false)) };
            }
        };
        let finish = |row: usize, [top, bottom]: &[Run; 2]| {
            let pooling = Pooling { bias: &self.weights.0[3], kept: &scratch.kept[row * 15..][..15], scale };
            let out = &mut kept.pooled[BORDER + row * 16..][..15];
            pool(&top.0[..30], &bottom.0[..30], &pooling, out, &mut kept.winners[row * 15..][..15], 1);
        };
        overlapped(&mut scratch.sums, 15, make, finish);
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
    fn third(&self, tiles: &Tiles, scratch: &mut Scratch, kept: &mut Kept) {
        // Twice, for 32 output channels each, seven times two rows.
        let make = |index: usize, [sums, _]: &mut [Run; 2]| {
            let (half, run) = (index / 7, index % 7);
            let kernel = self.kernels.forward[1][half * 9 * 32..][..9 * 32].as_ptr();
            let pixels = &kept.pooled[run * 32..][..32 + 34];
            // SAFETY: under the last tap, the last of 32 pixels is 34 further.
            unsafe { tiles.multiply(rows(pixels.as_ptr(), 1), &TAPS_16, packed(kernel), sums.sums(false)) };
        };
        let finish = |index: usize, [sums, _]: &[Run; 2]| {
            let (half, run) = (index / 7, index % 7);
            let out = &mut kept.conv2d_2[run * 32 * 2 + half..][..32 * 2 - half];
            rectify(&sums.0, &self.weights.0[5][32 * half..][..32], out, 2);
        };
        overlapped(&mut scratch.sums, 2 * 7, make, finish);
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
    fn fourth(&self, tiles: &Tiles, scale: f32, scratch: &mut Scratch, kept: &mut Kept, out: &mut [Line]) {
        let make = |index: usize, [sums, _]: &mut [Run; 2]| {
            let (half, row) = (index / 6, index % 6);
            let kernel = self.kernels.forward[2][half * 18 * 32..][..18 * 32].as_ptr();
            let pixels = &kept.conv2d_2[row * 32 * 2..][..(32 + 34) * 2];
            // SAFETY: under the last tap, the last of 32 pixels is 34 further.
            unsafe { tiles.multiply(rows(pixels.as_ptr(), 2), &TAPS_16_64, packed(kernel), sums.sums(false)) };
        };
        let finish = |index: usize, [sums, _]: &[Run; 2]| {
            let (half, row) = (index / 6, index % 6);
            let place = row * 12 + half..row * 12 + 12;
            let bias = &self.weights.0[7][32 * half..][..32];
            let pooling = Pooling { bias, kept: &scratch.kept_2[place.clone()], scale };
            let (top, bottom) = (&sums.0[..12], &sums.0[16..28]);
            pool(top, bottom, &pooling, &mut out[place.clone()], &mut kept.winners_2[place], 2);
        };
        overlapped(&mut scratch.sums, 2 * 6, make, finish);
    }
}
