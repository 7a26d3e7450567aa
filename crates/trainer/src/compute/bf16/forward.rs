//! Forward pass of one image through the four convolutions, from pixels to the inputs of the dense layer. Stores the
//! activations that the backward pass needs.
//!
//! Pixels are stored row after row, and products process them 32 at a time as if the image were one long row: the pixel
//! under a tap is at a fixed distance. At the end of a row this reads into the next one and produces sums that are
//! ignored. If a zero border is needed, rows are one pixel longer than the image. That pixel is the right border of its
//! row and the left border of the next.
//!
//! The second pooling ignores the last row and column of 13. They are not computed, nor is what only they would read:
//!
//! | layer | row length | computed |
//! | --- | --- | --- |
//! | conv2d | 32 | 32 x 32 |
//! | conv2d_1 | 32 | 30 x 30 |
//! | pooling | 16, with border | 15 x 15 |
//! | conv2d_2 | 16 | 14 x 14 |
//! | conv2d_3 | 16 | 12 x 12 |
//! | pooling | 6 | 6 x 6 |

use super::amx::{AmxTiles, LeftOperand};
use super::first_conv_patches::{self as patches, PaddedImage};
use super::kernels::{PackedKernels, taps};
use super::pooling::{ArgmaxMasks, Pooling, bias_relu, draw_keep_mask, dropout_scale, pool};
use super::tile_layout::{AccTile, Bf16Row, ZERO_ACC, ZERO_ROW, left_rows, packed_right, pipelined};
use crate::network::Weights;

/// Zero pixels before the first and after the last pixel of an image with bordered rows of 16.
pub const BORDER_PIXELS: usize = 17;
/// Bf16 rows of one image's inputs to the dense layer.
pub const OUT_ROWS: usize = 6 * 6 * 2;

pub const TAPS_32: [usize; 9] = taps(32, 1);
pub const TAPS_16: [usize; 9] = taps(16, 1);
pub const TAPS_16_64: [usize; 18] = taps(16, 2);

/// Activations of one image that the backward pass or the next layer reads. Buffers are longer than the image by what
/// the last tiles read beyond it.
pub struct Activations {
    pub argmax: Vec<ArgmaxMasks>,
    pub pooled: Vec<Bf16Row>,
    /// Two rows per pixel.
    pub conv2d_2: Vec<Bf16Row>,
    /// Two masks per pixel.
    pub argmax_2: Vec<ArgmaxMasks>,
}

impl Activations {
    pub fn new() -> Activations {
        Activations {
            argmax: vec![[0; 4]; 15 * 15],
            pooled: vec![ZERO_ROW; BORDER_PIXELS + 15 * 16 + 1],
            conv2d_2: vec![ZERO_ROW; (14 * 16 + 2) * 2],
            argmax_2: vec![[0; 4]; OUT_ROWS],
        }
    }
}

/// Buffers of one thread. The first convolution is recomputed in the backward pass: it has the largest and cheapest
/// output, and storing it for each image costs more memory bandwidth than computing it again.
pub struct Scratch {
    pub patches: Vec<Bf16Row>,
    pub conv2d: Vec<Bf16Row>,
    padded: PaddedImage,
    sums: [[AccTile; 2]; 2],
    /// Per pixel after each pooling, the channels that dropout keeps. One more than needed, since masks are drawn in
    /// pairs.
    keep_mask: [u32; 15 * 15 + 1],
    keep_mask_2: [u32; OUT_ROWS],
}

impl Scratch {
    pub fn new() -> Scratch {
        Scratch {
            patches: patches::zeroed(),
            conv2d: vec![ZERO_ROW; 32 * 32 + 2],
            padded: PaddedImage::new(),
            sums: [[ZERO_ACC; 2]; 2],
            keep_mask: [0; 15 * 15 + 1],
            keep_mask_2: [0; OUT_ROWS],
        }
    }
}

/// Inputs that all images of a step share.
pub struct Forward<'a> {
    pub kernels: &'a PackedKernels,
    pub weights: &'a Weights,
}

impl Forward<'_> {
    /// `keys` are the random keys of the first two dropout layers; `None` without dropout.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512bf16")]
    pub fn image(
        &self,
        tiles: &AmxTiles,
        image: &[f32],
        keys: [Option<u64>; 2],
        scratch: &mut Scratch,
        activations: &mut Activations,
        out: &mut [Bf16Row],
    ) {
        draw_keep_mask(0, keys[0], &mut scratch.keep_mask);
        draw_keep_mask(1, keys[1], &mut scratch.keep_mask_2);
        self.first(tiles, image, scratch);
        self.second(tiles, dropout_scale(0, keys[0].is_some()), scratch, activations);
        self.third(tiles, scratch, activations);
        self.fourth(tiles, dropout_scale(1, keys[1].is_some()), scratch, activations, out);
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
    pub fn first(&self, tiles: &AmxTiles, image: &[f32], scratch: &mut Scratch) {
        scratch.padded.fill_patches(image, &mut scratch.patches);
        let make = |row: usize, [sums, _]: &mut [AccTile; 2]| {
            let patch_row =
                scratch.patches[row * patches::ROWS_PER_IMAGE_ROW..][..patches::ROWS_PER_IMAGE_ROW].as_ptr();
            let left = LeftOperand {
                first: patch_row.cast(),
                down: 16 * patches::PIXEL_STRIDE,
                stride: patches::PIXEL_STRIDE,
            };
            // SAFETY: the last tile reads 64 bytes from pixel 31, up to byte 622 of 640; the kernel has one step.
            unsafe { tiles.multiply(left, &[0], packed_right(self.kernels.first.as_ptr()), sums.output(false)) };
        };
        let finish = |row: usize, [sums, _]: &[AccTile; 2]| {
            bias_relu(&sums.0, &self.weights.0[1], &mut scratch.conv2d[row * 32..][..32], 1);
        };
        pipelined(&mut scratch.sums, 32, make, finish);
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
    fn second(&self, tiles: &AmxTiles, scale: f32, scratch: &mut Scratch, activations: &mut Activations) {
        let kernel = self.kernels.forward[0].as_ptr();
        let make = |row: usize, sums: &mut [AccTile; 2]| {
            for (below, sums) in sums.iter_mut().enumerate() {
                let pixels = &scratch.conv2d[(2 * row + below) * 32..][..32 + 66];
                // SAFETY: `pixels` has 32 + 66 rows: under the last tap, the last of 32 pixels is 66 pixels further.
                unsafe {
                    tiles.multiply(left_rows(pixels.as_ptr(), 1), &TAPS_32, packed_right(kernel), sums.output(false))
                };
            }
        };
        let finish = |row: usize, [top, bottom]: &[AccTile; 2]| {
            let pooling = Pooling { bias: &self.weights.0[3], keep_mask: &scratch.keep_mask[row * 15..][..15], scale };
            let out = &mut activations.pooled[BORDER_PIXELS + row * 16..][..15];
            pool(&top.0[..30], &bottom.0[..30], &pooling, out, &mut activations.argmax[row * 15..][..15], 1);
        };
        pipelined(&mut scratch.sums, 15, make, finish);
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
    fn third(&self, tiles: &AmxTiles, scratch: &mut Scratch, activations: &mut Activations) {
        // Two passes of 32 output channels, each over seven pairs of rows.
        let make = |index: usize, [sums, _]: &mut [AccTile; 2]| {
            let (half, run) = (index / 7, index % 7);
            let kernel = self.kernels.forward[1][half * 9 * 32..][..9 * 32].as_ptr();
            let pixels = &activations.pooled[run * 32..][..32 + 34];
            // SAFETY: `pixels` has 32 + 34 rows: under the last tap, the last of 32 pixels is 34 pixels further.
            unsafe {
                tiles.multiply(left_rows(pixels.as_ptr(), 1), &TAPS_16, packed_right(kernel), sums.output(false))
            };
        };
        let finish = |index: usize, [sums, _]: &[AccTile; 2]| {
            let (half, run) = (index / 7, index % 7);
            let out = &mut activations.conv2d_2[run * 32 * 2 + half..][..32 * 2 - half];
            bias_relu(&sums.0, &self.weights.0[5][32 * half..][..32], out, 2);
        };
        pipelined(&mut scratch.sums, 2 * 7, make, finish);
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
    fn fourth(
        &self,
        tiles: &AmxTiles,
        scale: f32,
        scratch: &mut Scratch,
        activations: &mut Activations,
        out: &mut [Bf16Row],
    ) {
        let make = |index: usize, [sums, _]: &mut [AccTile; 2]| {
            let (half, row) = (index / 6, index % 6);
            let kernel = self.kernels.forward[2][half * 18 * 32..][..18 * 32].as_ptr();
            let pixels = &activations.conv2d_2[row * 32 * 2..][..(32 + 34) * 2];
            // SAFETY: `pixels` has 32 + 34 pixels: under the last tap, the last of 32 pixels is 34 pixels further.
            unsafe {
                tiles.multiply(left_rows(pixels.as_ptr(), 2), &TAPS_16_64, packed_right(kernel), sums.output(false))
            };
        };
        let finish = |index: usize, [sums, _]: &[AccTile; 2]| {
            let (half, row) = (index / 6, index % 6);
            let range = row * 12 + half..row * 12 + 12;
            let bias = &self.weights.0[7][32 * half..][..32];
            let pooling = Pooling { bias, keep_mask: &scratch.keep_mask_2[range.clone()], scale };
            let (top, bottom) = (&sums.0[..12], &sums.0[16..28]);
            pool(top, bottom, &pooling, &mut out[range.clone()], &mut activations.argmax_2[range], 2);
        };
        pipelined(&mut scratch.sums, 2 * 6, make, finish);
    }
}
