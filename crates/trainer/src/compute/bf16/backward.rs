//! One image back through the four convolutions: from the gradient of what the dense layer read to the sums that become gradients of
//! kernels and biases.
//!
//! The gradient of a layer's input is a product as on the way forward, over the gradient of its output with zeros around it. That of a
//! kernel sums over pixels: left is the output's gradient, transposed so that a row is a channel; right is the input, shifted by the tap,
//! in pairs of pixels. For taps an odd number of pixels away the pairs begin one pixel later, so the input is paired twice.

use super::forward::{self, BORDER, Forward, Kept, OUT, TAPS_16_64, TAPS_32};
use super::lines::{LINE, Line, NO_SUMS, NOTHING, Run, TILES, overlapped, packed, paired, pairs, rows, transpose};
use super::pooling::{rectify_back, scaled, spread};
use super::stack;
use super::tiles::Tiles;

/// Sums over the images of a group. Rows are output channels; columns, in the order of `lines::PAIRED`, input channels, for the first
/// kernel the 27 values of a stack.
pub struct Sums {
    /// By convolution, then by tap, 32 output channels and 32 input channels.
    pub kernels: [Vec<Run>; 4],
    pub biases: [[f32; 64]; 4],
}

impl Sums {
    pub fn new() -> Sums {
        Sums { kernels: [1, 9, 18, 36].map(|runs| vec![NO_SUMS; runs]), biases: [[0.0; 64]; 4] }
    }
}

/// Room a thread needs: gradients of what each convolution gave, with their zeros, and the operands of the kernels' gradients.
pub struct Scratch {
    sums: [Run; 2],
    conv2d: Vec<Line>,
    conv2d_1: Vec<Line>,
    /// Of the pixels after the first pooling, two rows.
    pooled: [Line; 32],
    conv2d_2: Vec<Line>,
    conv2d_3: Vec<Line>,
    /// Left: by 32 channels and 32 pixels.
    transposed: Vec<Line>,
    /// Right: by 32 channels, from pixel 0 and from pixel 1.
    paired: [[Vec<Line>; 2]; 2],
}

impl Scratch {
    pub fn new() -> Scratch {
        let paired = || [vec![NOTHING; 32 * 32 + 2], vec![NOTHING; 32 * 32 + 2]];
        Scratch {
            sums: [NO_SUMS; 2],
            conv2d: vec![NOTHING; 32],
            conv2d_1: vec![NOTHING; BEFORE_32 + 32 * 32],
            pooled: [NOTHING; 32],
            conv2d_2: vec![NOTHING; (8 * 32 + 34) * 2],
            conv2d_3: vec![NOTHING; (BEFORE_16 + 14 * 16) * 2],
            transposed: vec![NOTHING; 32 * 32],
            paired: [paired(), paired()],
        }
    }
}

/// Pixels of zeros before the gradient of a convolution without border: two rows and two more.
const BEFORE_32: usize = 66;
const BEFORE_16: usize = 34;

/// From 32 pixels to the next in operands of kernels' gradients.
const PIXELS: [usize; 32] = {
    let (mut steps, mut step) = ([0; 32], 0);
    while step < 32 {
        steps[step] = step * TILES;
        step += 1;
    }
    steps
};

/// An image that has been forward, and the gradient of what the dense layer read of it.
pub struct Passed<'a> {
    pub pixels: &'a [f32],
    pub kept: &'a Kept,
    pub gradient: &'a [Line],
}

/// What all images of a step have in common, on the way back.
pub struct Backward<'a> {
    pub forward: Forward<'a>,
    /// Of the first dropout.
    pub scale: f32,
}

impl Backward<'_> {
    /// The first image of a group forgets what was in the sums.
    #[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
    pub fn image(
        &self,
        tiles: &Tiles,
        image: &Passed<'_>,
        is_first: bool,
        (again, scratch): (&mut forward::Scratch, &mut Scratch),
        sums: &mut Sums,
    ) {
        if is_first {
            sums.biases = [[0.0; 64]; 4];
        }
        self.fourth(tiles, image, !is_first, scratch, sums);
        self.third(tiles, image.kept, !is_first, scratch, sums);
        self.forward.first(tiles, image.pixels, again);
        self.second(tiles, again, !is_first, scratch, sums);
        self.first(tiles, again, !is_first, scratch, sums);
    }

    /// To the gradient of the fourth convolution's output, its kernel's, and that of the third's output.
    #[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
    fn fourth(&self, tiles: &Tiles, image: &Passed<'_>, add: bool, scratch: &mut Scratch, sums: &mut Sums) {
        let (gradient, kept) = (&image.gradient[..OUT], image.kept);
        for row in 0..6 {
            let rows = &mut scratch.conv2d_3[(BEFORE_16 + row * 32) * 2..][..32 * 2];
            let (top, bottom) = rows.split_at_mut(16 * 2);
            for half in 0..2 {
                let place = row * 12 + half..row * 12 + 12;
                let (gradient, winners) = (&gradient[place.clone()], &kept.winners_2[place]);
                let bias = &mut sums.biases[3][32 * half..][..32];
                spread(gradient, winners, bias, &mut top[half..], &mut bottom[half..], 2);
            }
        }
        transpose_all(&scratch.conv2d_3[BEFORE_16 * 2..][..12 * 16 * 2], 2, &mut scratch.transposed);
        pair_all(&kept.conv2d_2, 2, &mut scratch.paired);
        kernel_gradient(tiles, scratch, [2, 2], 16, 12 * 16 / 32, add, &mut sums.kernels[3]);

        let make = |index: usize, sum: &mut Run| {
            let (half, run) = (index / 7, index % 7);
            let kernel = self.forward.kernels.backward[2][half * 18 * 32..][..18 * 32].as_ptr();
            let pixels = &scratch.conv2d_3[run * 32 * 2..][..(32 + 34) * 2];
            // SAFETY: under the last tap, the last of 32 pixels is 34 further.
            unsafe { tiles.multiply(rows(pixels.as_ptr(), 2), &TAPS_16_64, packed(kernel), sum.sums(false)) };
        };
        let finish = |index: usize, sum: &Run| {
            let (half, run) = (index / 7, index % 7);
            let out = &mut scratch.conv2d_2[(BORDER + run * 32) * 2 + half..];
            let bias = &mut sums.biases[2][32 * half..][..32];
            rectify_back(&sum.0, &kept.conv2d_2[run * 32 * 2 + half..], bias, out, 2);
        };
        overlapped(&mut scratch.sums, 2 * 7, make, finish);
    }

    /// To the gradient of the third's kernel, and of the second's output.
    #[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
    fn third(&self, tiles: &Tiles, kept: &Kept, add: bool, scratch: &mut Scratch, sums: &mut Sums) {
        transpose_all(&scratch.conv2d_2[BORDER * 2..][..14 * 16 * 2], 2, &mut scratch.transposed);
        pair_all(&kept.pooled, 1, &mut scratch.paired);
        kernel_gradient(tiles, scratch, [2, 1], 16, 14 * 16 / 32, add, &mut sums.kernels[2]);

        let kernel = self.forward.kernels.backward[1].as_ptr();
        let make = |run: usize, sum: &mut Run| {
            let pixels = &scratch.conv2d_2[run * 32 * 2..][..(32 + 34) * 2];
            // SAFETY: under the last tap, the last of 32 pixels is 34 further.
            unsafe { tiles.multiply(rows(pixels.as_ptr(), 2), &TAPS_16_64, packed(kernel), sum.sums(false)) };
        };
        let finish = |run: usize, sum: &Run| {
            scaled(&sum.0, self.scale, &mut scratch.pooled);
            // There are 15 rows: the last is alone.
            for row in 2 * run..15.min(2 * run + 2) {
                let gradient = &scratch.pooled[row % 2 * 16..][..15];
                let (top, bottom) = scratch.conv2d_1[BEFORE_32 + row * 64..][..64].split_at_mut(32);
                let winners = &kept.winners[row * 15..][..15];
                spread(gradient, winners, &mut sums.biases[1][..32], top, bottom, 1);
            }
        };
        overlapped(&mut scratch.sums, 8, make, finish);
    }

    /// To the gradient of the second's kernel, and of the first's output, transposed.
    #[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
    fn second(&self, tiles: &Tiles, again: &forward::Scratch, add: bool, scratch: &mut Scratch, sums: &mut Sums) {
        transpose_all(&scratch.conv2d_1[BEFORE_32..][..30 * 32], 1, &mut scratch.transposed);
        pair_all(&again.conv2d, 1, &mut scratch.paired);
        kernel_gradient(tiles, scratch, [1, 1], 32, 30, add, &mut sums.kernels[1]);

        let kernel = self.forward.kernels.backward[0].as_ptr();
        let make = |run: usize, sum: &mut Run| {
            let pixels = &scratch.conv2d_1[run * 32..][..32 + 66];
            // SAFETY: under the last tap, the last of 32 pixels is 66 further.
            unsafe { tiles.multiply(rows(pixels.as_ptr(), 1), &TAPS_32, packed(kernel), sum.sums(false)) };
        };
        let finish = |run: usize, sum: &Run| {
            let bias = &mut sums.biases[0][..32];
            rectify_back(&sum.0, &again.conv2d[run * 32..], bias, &mut scratch.conv2d, 1);
            transpose_all(&scratch.conv2d, 1, &mut scratch.transposed[run * 32..]);
        };
        overlapped(&mut scratch.sums, 32, make, finish);
    }

    /// To the gradient of the first's kernel.
    #[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
    fn first(&self, tiles: &Tiles, again: &forward::Scratch, add: bool, scratch: &mut Scratch, sums: &mut Sums) {
        let right = &mut scratch.paired[0][0];
        for (stack, right) in again.stack.chunks_exact(stack::ROW).zip(right.chunks_exact_mut(32)) {
            // SAFETY: 32 pixels of a row, the last of which reads up to byte 622 of 640; two lines for each pair.
            unsafe { pairs(stack.as_ptr().cast(), stack::STRIDE, 16, right.as_mut_ptr()) };
        }
        let sums = sums.kernels[0][0].sums(add);
        // SAFETY: both have 32 steps of 32 lines.
        unsafe { tiles.multiply(rows(scratch.transposed.as_ptr(), 1), &PIXELS, paired(right.as_ptr()), sums) };
    }
}

/// Left operands of all pixels: of the first 32 channels, then of the others if a pixel has two lines.
#[target_feature(enable = "avx512f,avx512bw")]
fn transpose_all(lines: &[Line], lines_a_pixel: usize, to: &mut [Line]) {
    let to = to[..lines.len()].chunks_exact_mut(32);
    let blocks = lines.len() / lines_a_pixel / 32;
    for (index, to) in to.enumerate() {
        let (half, block) = (index / blocks, index % blocks);
        let from = &lines[block * 32 * lines_a_pixel..][..32 * lines_a_pixel];
        // SAFETY: 32 lines each.
        unsafe { transpose(from.as_ptr().add(half), lines_a_pixel, to.as_mut_ptr()) };
    }
}

/// Right operands of an even number of pixels.
#[target_feature(enable = "avx512f,avx512bw")]
fn pair_all(lines: &[Line], lines_a_pixel: usize, to: &mut [[Vec<Line>; 2]; 2]) {
    let pixels = lines.len() / lines_a_pixel;
    for (half, to) in to.iter_mut().take(lines_a_pixel).enumerate() {
        for (odd, to) in to.iter_mut().enumerate() {
            let (from, n_pairs) = (&lines[odd * lines_a_pixel + half..], pixels / 2 - odd);
            assert!(to.len() >= 2 * n_pairs);
            // SAFETY: all pixels but, for odd pairs, the first and the last; there is room for them.
            unsafe { pairs(from.as_ptr().cast(), lines_a_pixel * LINE, n_pairs, to.as_mut_ptr()) };
        }
    }
}

/// Sums over `blocks` times 32 pixels, of rows of `width`, of what was transposed and paired: of so many times 32 channels.
fn kernel_gradient(
    tiles: &Tiles,
    scratch: &Scratch,
    [outputs_32, inputs_32]: [usize; 2],
    width: usize,
    blocks: usize,
    add: bool,
    to: &mut [Run],
) {
    let mut to = to.iter_mut();
    for tap in 0..9 {
        let (row, column) = (tap / 3, tap % 3);
        for left in scratch.transposed.chunks_exact(blocks * 32).take(outputs_32) {
            for right in &scratch.paired[..inputs_32] {
                // Two lines a pair: a line for each pixel before it.
                let right = &right[column % 2][row * width + column / 2 * 2..][..blocks * 32];
                let sums = to.next().expect("a run for each").sums(add);
                // SAFETY: both have `blocks` steps of 32 lines.
                unsafe { tiles.multiply(rows(left.as_ptr(), 1), &PIXELS[..blocks], paired(right.as_ptr()), sums) };
            }
        }
    }
}
