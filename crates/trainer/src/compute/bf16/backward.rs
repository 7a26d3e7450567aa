//! Backward pass of one image through the four convolutions: from the gradient of the dense layer's inputs to sums that
//! become gradients of kernels and biases.
//!
//! The gradient of a layer's input is a product as in the forward pass, over the zero-padded gradient of its output.
//! The gradient of a kernel sums over pixels: the left operand is the output gradient, transposed so that a row is a
//! channel; the right operand is the input, shifted by the tap, in pairs of pixels. For taps at an odd distance the
//! pairs start one pixel later, so the input is paired twice.

use super::amx::AmxTiles;
use super::first_conv_patches as patches;
use super::forward::{self, Activations, BORDER_PIXELS, Forward, OUT_ROWS, TAPS_16_64, TAPS_32};
use super::pooling::{relu_backward, scale_rounded, unpool};
use super::tile_layout::{
    AccTile, Bf16Row, ROW_BYTES, TILE_PAIR_BYTES, ZERO_ACC, ZERO_ROW, interleave_pairs, left_rows, packed_right,
    paired_right, pipelined, transpose,
};

/// Sums over the images of a group. Rows are output channels. Columns are input channels in the order of
/// `PAIRED_ORDER`; for the first kernel, the 27 values of a patch.
pub struct GroupSums {
    /// By convolution, then by tap, 32 output channels and 32 input channels.
    pub kernels: [Vec<AccTile>; 4],
    pub biases: [[f32; 64]; 4],
}

impl GroupSums {
    pub fn new() -> GroupSums {
        GroupSums { kernels: [1, 9, 18, 36].map(|runs| vec![ZERO_ACC; runs]), biases: [[0.0; 64]; 4] }
    }
}

/// Buffers of one thread: gradients of each convolution's output with their zero padding, and the operands of the
/// kernel gradients.
pub struct Scratch {
    sums: [AccTile; 2],
    conv2d: Vec<Bf16Row>,
    conv2d_1: Vec<Bf16Row>,
    /// Gradients of two rows of pixels after the first pooling.
    pooled: [Bf16Row; 32],
    conv2d_2: Vec<Bf16Row>,
    conv2d_3: Vec<Bf16Row>,
    /// Left operands: by 32 channels and 32 pixels.
    transposed: Vec<Bf16Row>,
    /// Right operands: by 32 channels, paired from pixel 0 and from pixel 1.
    paired: [[Vec<Bf16Row>; 2]; 2],
}

impl Scratch {
    pub fn new() -> Scratch {
        let paired = || [vec![ZERO_ROW; 32 * 32 + 2], vec![ZERO_ROW; 32 * 32 + 2]];
        Scratch {
            sums: [ZERO_ACC; 2],
            conv2d: vec![ZERO_ROW; 32],
            conv2d_1: vec![ZERO_ROW; PAD_PIXELS_32 + 32 * 32],
            pooled: [ZERO_ROW; 32],
            conv2d_2: vec![ZERO_ROW; (8 * 32 + 34) * 2],
            conv2d_3: vec![ZERO_ROW; (PAD_PIXELS_16 + 14 * 16) * 2],
            transposed: vec![ZERO_ROW; 32 * 32],
            paired: [paired(), paired()],
        }
    }
}

/// Zero pixels before the gradient of an unpadded convolution: two rows and two pixels.
const PAD_PIXELS_32: usize = 66;
const PAD_PIXELS_16: usize = 34;

/// Byte offsets of each block of 32 pixels in the operands of kernel gradients.
const PIXEL_STEPS: [usize; 32] = {
    let (mut steps, mut step) = ([0; 32], 0);
    while step < 32 {
        steps[step] = step * TILE_PAIR_BYTES;
        step += 1;
    }
    steps
};

/// An image after its forward pass, with the gradient of the dense layer's inputs.
pub struct ForwardedImage<'a> {
    pub pixels: &'a [f32],
    pub activations: &'a Activations,
    pub gradient: &'a [Bf16Row],
}

/// Inputs that all images of a step share.
pub struct Backward<'a> {
    pub forward: Forward<'a>,
    /// Scale of the first dropout layer.
    pub scale: f32,
}

impl Backward<'_> {
    /// Adds one image to the sums of its group. The first image of a group overwrites them.
    #[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
    pub fn image(
        &self,
        tiles: &AmxTiles,
        image: &ForwardedImage<'_>,
        is_first: bool,
        (recomputed, scratch): (&mut forward::Scratch, &mut Scratch),
        sums: &mut GroupSums,
    ) {
        if is_first {
            sums.biases = [[0.0; 64]; 4];
        }
        self.fourth(tiles, image, !is_first, scratch, sums);
        self.third(tiles, image.activations, !is_first, scratch, sums);
        self.forward.first(tiles, image.pixels, recomputed);
        self.second(tiles, recomputed, !is_first, scratch, sums);
        self.first(tiles, recomputed, !is_first, scratch, sums);
    }

    /// Gradient of the fourth convolution's output and kernel, and of the third's output.
    #[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
    fn fourth(
        &self,
        tiles: &AmxTiles,
        image: &ForwardedImage<'_>,
        add: bool,
        scratch: &mut Scratch,
        sums: &mut GroupSums,
    ) {
        let (gradient, activations) = (&image.gradient[..OUT_ROWS], image.activations);
        for row in 0..6 {
            let rows = &mut scratch.conv2d_3[(PAD_PIXELS_16 + row * 32) * 2..][..32 * 2];
            let (top, bottom) = rows.split_at_mut(16 * 2);
            for half in 0..2 {
                let range = row * 12 + half..row * 12 + 12;
                let (gradient, argmax) = (&gradient[range.clone()], &activations.argmax_2[range]);
                let bias = &mut sums.biases[3][32 * half..][..32];
                unpool(gradient, argmax, bias, &mut top[half..], &mut bottom[half..], 2);
            }
        }
        transpose_all(&scratch.conv2d_3[PAD_PIXELS_16 * 2..][..12 * 16 * 2], 2, &mut scratch.transposed);
        pair_all(&activations.conv2d_2, 2, &mut scratch.paired);
        kernel_gradient(tiles, scratch, [2, 2], 16, 12 * 16 / 32, add, &mut sums.kernels[3]);

        let make = |index: usize, sum: &mut AccTile| {
            let (half, run) = (index / 7, index % 7);
            let kernel = self.forward.kernels.backward[2][half * 18 * 32..][..18 * 32].as_ptr();
            let pixels = &scratch.conv2d_3[run * 32 * 2..][..(32 + 34) * 2];
            // SAFETY: `pixels` has 32 + 34 pixels: under the last tap, the last of 32 pixels is 34 pixels further.
            unsafe {
                tiles.multiply(left_rows(pixels.as_ptr(), 2), &TAPS_16_64, packed_right(kernel), sum.output(false))
            };
        };
        let finish = |index: usize, sum: &AccTile| {
            let (half, run) = (index / 7, index % 7);
            let out = &mut scratch.conv2d_2[(BORDER_PIXELS + run * 32) * 2 + half..];
            let bias = &mut sums.biases[2][32 * half..][..32];
            relu_backward(&sum.0, &activations.conv2d_2[run * 32 * 2 + half..], bias, out, 2);
        };
        pipelined(&mut scratch.sums, 2 * 7, make, finish);
    }

    /// Gradient of the third kernel and of the second convolution's output.
    #[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
    fn third(
        &self,
        tiles: &AmxTiles,
        activations: &Activations,
        add: bool,
        scratch: &mut Scratch,
        sums: &mut GroupSums,
    ) {
        transpose_all(&scratch.conv2d_2[BORDER_PIXELS * 2..][..14 * 16 * 2], 2, &mut scratch.transposed);
        pair_all(&activations.pooled, 1, &mut scratch.paired);
        kernel_gradient(tiles, scratch, [2, 1], 16, 14 * 16 / 32, add, &mut sums.kernels[2]);

        let kernel = self.forward.kernels.backward[1].as_ptr();
        let make = |run: usize, sum: &mut AccTile| {
            let pixels = &scratch.conv2d_2[run * 32 * 2..][..(32 + 34) * 2];
            // SAFETY: `pixels` has 32 + 34 pixels: under the last tap, the last of 32 pixels is 34 pixels further.
            unsafe {
                tiles.multiply(left_rows(pixels.as_ptr(), 2), &TAPS_16_64, packed_right(kernel), sum.output(false))
            };
        };
        let finish = |run: usize, sum: &AccTile| {
            scale_rounded(&sum.0, self.scale, &mut scratch.pooled);
            // There are 15 rows; the last tile has only one.
            for row in 2 * run..15.min(2 * run + 2) {
                let gradient = &scratch.pooled[row % 2 * 16..][..15];
                let (top, bottom) = scratch.conv2d_1[PAD_PIXELS_32 + row * 64..][..64].split_at_mut(32);
                let argmax = &activations.argmax[row * 15..][..15];
                unpool(gradient, argmax, &mut sums.biases[1][..32], top, bottom, 1);
            }
        };
        pipelined(&mut scratch.sums, 8, make, finish);
    }

    /// Gradient of the second kernel and, transposed, of the first convolution's output.
    #[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
    fn second(
        &self,
        tiles: &AmxTiles,
        recomputed: &forward::Scratch,
        add: bool,
        scratch: &mut Scratch,
        sums: &mut GroupSums,
    ) {
        transpose_all(&scratch.conv2d_1[PAD_PIXELS_32..][..30 * 32], 1, &mut scratch.transposed);
        pair_all(&recomputed.conv2d, 1, &mut scratch.paired);
        kernel_gradient(tiles, scratch, [1, 1], 32, 30, add, &mut sums.kernels[1]);

        let kernel = self.forward.kernels.backward[0].as_ptr();
        let make = |run: usize, sum: &mut AccTile| {
            let pixels = &scratch.conv2d_1[run * 32..][..32 + 66];
            // SAFETY: `pixels` has 32 + 66 pixels: under the last tap, the last of 32 pixels is 66 pixels further.
            unsafe { tiles.multiply(left_rows(pixels.as_ptr(), 1), &TAPS_32, packed_right(kernel), sum.output(false)) };
        };
        let finish = |run: usize, sum: &AccTile| {
            let bias = &mut sums.biases[0][..32];
            relu_backward(&sum.0, &recomputed.conv2d[run * 32..], bias, &mut scratch.conv2d, 1);
            transpose_all(&scratch.conv2d, 1, &mut scratch.transposed[run * 32..]);
        };
        pipelined(&mut scratch.sums, 32, make, finish);
    }

    /// Gradient of the first kernel.
    #[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
    fn first(
        &self,
        tiles: &AmxTiles,
        recomputed: &forward::Scratch,
        add: bool,
        scratch: &mut Scratch,
        sums: &mut GroupSums,
    ) {
        let right = &mut scratch.paired[0][0];
        for (patch_row, right) in
            recomputed.patches.chunks_exact(patches::ROWS_PER_IMAGE_ROW).zip(right.chunks_exact_mut(32))
        {
            // SAFETY: reads 32 pixels of a patch row, the last of which ends at byte 622 of 640; `right` has two rows
            // for each of 16 pairs.
            unsafe { interleave_pairs(patch_row.as_ptr().cast(), patches::PIXEL_STRIDE, 16, right.as_mut_ptr()) };
        }
        let sums = sums.kernels[0][0].output(add);
        // SAFETY: both operands have 32 steps of 32 rows.
        unsafe {
            tiles.multiply(left_rows(scratch.transposed.as_ptr(), 1), &PIXEL_STEPS, paired_right(right.as_ptr()), sums)
        };
    }
}

/// Left operands for all pixels: of the first 32 channels, then of the others if a pixel has two rows.
#[target_feature(enable = "avx512f,avx512bw")]
fn transpose_all(rows: &[Bf16Row], rows_per_pixel: usize, to: &mut [Bf16Row]) {
    let to = to[..rows.len()].chunks_exact_mut(32);
    let blocks = rows.len() / rows_per_pixel / 32;
    for (index, to) in to.enumerate() {
        let (half, block) = (index / blocks, index % blocks);
        let from = &rows[block * 32 * rows_per_pixel..][..32 * rows_per_pixel];
        // SAFETY: `from` and `to` have 32 rows each.
        unsafe { transpose(from.as_ptr().add(half), rows_per_pixel, to.as_mut_ptr()) };
    }
}

/// Right operands for an even number of pixels.
#[target_feature(enable = "avx512f,avx512bw")]
fn pair_all(rows: &[Bf16Row], rows_per_pixel: usize, to: &mut [[Vec<Bf16Row>; 2]; 2]) {
    let pixels = rows.len() / rows_per_pixel;
    for (half, to) in to.iter_mut().take(rows_per_pixel).enumerate() {
        for (odd, to) in to.iter_mut().enumerate() {
            let (from, n_pairs) = (&rows[odd * rows_per_pixel + half..], pixels / 2 - odd);
            assert!(to.len() >= 2 * n_pairs);
            // SAFETY: reads all pixels, for odd pairs all but the first and the last; `to` has two rows per pair
            // (asserted above).
            unsafe { interleave_pairs(from.as_ptr().cast(), rows_per_pixel * ROW_BYTES, n_pairs, to.as_mut_ptr()) };
        }
    }
}

/// Kernel gradients: sums of the transposed and paired operands over `blocks` times 32 pixels, in rows of `width`
/// pixels.
fn kernel_gradient(
    tiles: &AmxTiles,
    scratch: &Scratch,
    [outputs_32, inputs_32]: [usize; 2],
    width: usize,
    blocks: usize,
    add: bool,
    to: &mut [AccTile],
) {
    let mut to = to.iter_mut();
    for tap in 0..9 {
        let (row, column) = (tap / 3, tap % 3);
        for left in scratch.transposed.chunks_exact(blocks * 32).take(outputs_32) {
            for right in &scratch.paired[..inputs_32] {
                // A pair takes two rows, so a pixel counts as one row.
                let right = &right[column % 2][row * width + column / 2 * 2..][..blocks * 32];
                let sums = to.next().expect("one tile per tap and channel block").output(add);
                // SAFETY: both operands have `blocks` steps of 32 rows.
                unsafe {
                    tiles.multiply(
                        left_rows(left.as_ptr(), 1),
                        &PIXEL_STEPS[..blocks],
                        paired_right(right.as_ptr()),
                        sums,
                    )
                };
            }
        }
    }
}
