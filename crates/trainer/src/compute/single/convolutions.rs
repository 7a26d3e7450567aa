//! The convolutions of one image, forward and backward, with all that is kept in between. Images never meet here.
//!
//! The last row and column of the fourth convolution have no part in any maximum, so neither they nor what only they need is computed: the
//! third one makes 14 x 14 pixels and the fourth 12 x 12, instead of 15 x 15 and 13 x 13. No score or gradient depends on the rest.

use super::convolution::{Convolution, Finish, turn};
use super::kernel_gradient::{KernelGradient, add_bias};
use super::pooling::{Drops, Pool, Unpool, Winners};
use crate::compute::aligned::{Aligned, Shelf};
use crate::compute::simd::Simd;
use crate::network::{CHANNELS, DROPOUTS, PARAMETERS, SIDE, Weights};

/// Runs a kernel in the tile that fits the registers: pixels (or places) times vectors.
macro_rules! run {
    ($work:expr, wide $wide:literal x $wide_v:literal, narrow $narrow:literal x $narrow_v:literal) => {
        if const { S::LANES == 16 } { $work.run::<S, $wide, $wide_v>() } else { $work.run::<S, $narrow, $narrow_v>() }
    };
}

/// Parameters of convolutions: the first of [`PARAMETERS`].
pub const PARAMETERS_HERE: usize = 8;
/// Values of the last maxima of an image, which the dense layers get.
pub const FEATURES: usize = DROPOUTS[1].size;

/// Side of the framed image, the framed first maxima; of what the backward pass frames: gradients of the fourth, third, second convolution.
const FRAMED: usize = SIDE + 2;
const FRAMED_MAXIMA: usize = 17;
const FRAMED_FOURTH: usize = 12 + 4;
const FRAMED_THIRD: usize = 17;
const FRAMED_SECOND: usize = 30 + 4;

/// The kernels as a step uses them.
pub struct Kernels {
    forward: [Aligned; 4],
    /// Turned for the way back; the first layer has none.
    backward: [Aligned; 3],
}

impl Kernels {
    pub fn new() -> Kernels {
        let room = |layer: usize| Aligned::zeros(PARAMETERS[2 * layer].size());
        Kernels { forward: [0, 1, 2, 3].map(room), backward: [1, 2, 3].map(room) }
    }

    pub fn take(&mut self, weights: &Weights) {
        for (layer, kernel) in self.forward.iter_mut().enumerate() {
            kernel.copy_from_slice(&weights.0[2 * layer]);
        }
        for (layer, kernel) in (1..).zip(&mut self.backward) {
            let shape = PARAMETERS[2 * layer].shape;
            turn(&weights.0[2 * layer], shape[2], shape[3], kernel);
        }
    }
}

/// What the backward pass needs to know about one image.
pub struct Image {
    input: Aligned,
    first: Aligned,
    first_winners: Aligned<Winners>,
    first_maxima: Aligned,
    third: Aligned,
    second_winners: Aligned<Winners>,
}

impl Image {
    pub fn new<S: Simd>(shelf: &mut Shelf) -> Image {
        Image {
            input: shelf.take(FRAMED * FRAMED * CHANNELS),
            first: shelf.take(32 * 32 * 32),
            first_winners: shelf.take(DROPOUTS[0].size / S::LANES),
            first_maxima: shelf.take(FRAMED_MAXIMA * FRAMED_MAXIMA * 32),
            third: shelf.take(14 * 14 * 64),
            second_winners: shelf.take(DROPOUTS[1].size / S::LANES),
        }
    }
}

/// What one thread needs besides. Frames stay zero.
pub struct Scratch {
    two_rows: Aligned,
    fourth: Aligned,
    third: Aligned,
    first_maxima: Aligned,
    second: Aligned,
    first: Aligned,
}

impl Scratch {
    pub fn new() -> Scratch {
        Scratch {
            two_rows: Aligned::zeros(2 * 30 * 32),
            fourth: Aligned::zeros(FRAMED_FOURTH * FRAMED_FOURTH * 64),
            third: Aligned::zeros(FRAMED_THIRD * FRAMED_THIRD * 64),
            first_maxima: Aligned::zeros(15 * 15 * 32),
            second: Aligned::zeros(FRAMED_SECOND * FRAMED_SECOND * 32),
            first: Aligned::zeros(32 * 32 * 32),
        }
    }
}

/// From the pixels of an image to its features.
pub fn forward<S: Simd>(
    image: &mut Image,
    scratch: &mut Scratch,
    kernels: &Kernels,
    weights: &Weights,
    pixels: &[f32],
    drops: [Option<Drops>; 2],
    features: &mut [f32],
) {
    for (row, pixels) in pixels.chunks_exact(SIDE * CHANNELS).enumerate() {
        image.input[((row + 1) * FRAMED + 1) * CHANNELS..][..SIDE * CHANNELS].copy_from_slice(pixels);
    }
    let first = Convolution::<3, 32> {
        input: &image.input,
        input_row: FRAMED * CHANNELS,
        filled: 1..33,
        kernel: &kernels.forward[0],
        rows: 32,
        columns: 32,
        output: &mut image.first,
        output_row: 32 * 32,
        finish: Finish::Relu { bias: &weights.0[1] },
    };
    run!(first, wide 11 x 2, narrow 4 x 2);

    for row in 0..15 {
        let second = Convolution::<32, 32> {
            input: &image.first[2 * row * 32 * 32..],
            input_row: 32 * 32,
            filled: 0..4,
            kernel: &kernels.forward[1],
            rows: 2,
            columns: 30,
            output: &mut scratch.two_rows,
            output_row: 30 * 32,
            finish: Finish::Relu { bias: &weights.0[3] },
        };
        run!(second, wide 10 x 2, narrow 6 x 2);
        let (upper, lower) = scratch.two_rows[..2 * 30 * 32].split_at(30 * 32);
        let pool = Pool::<32> {
            upper,
            lower,
            drops: drops[0],
            first: row * 15 * 32,
            output: &mut image.first_maxima[((row + 1) * FRAMED_MAXIMA + 1) * 32..][..15 * 32],
            winners: &mut image.first_winners[row * 15 * 32 / S::LANES..],
        };
        pool.run::<S>();
    }

    let third = Convolution::<32, 64> {
        input: &image.first_maxima,
        input_row: FRAMED_MAXIMA * 32,
        filled: 1..16,
        kernel: &kernels.forward[2],
        rows: 14,
        columns: 14,
        output: &mut image.third,
        output_row: 14 * 64,
        finish: Finish::Relu { bias: &weights.0[5] },
    };
    run!(third, wide 14 x 2, narrow 5 x 2);

    for row in 0..6 {
        let fourth = Convolution::<64, 64> {
            input: &image.third[2 * row * 14 * 64..],
            input_row: 14 * 64,
            filled: 0..4,
            kernel: &kernels.forward[3],
            rows: 2,
            columns: 12,
            output: &mut scratch.two_rows,
            output_row: 12 * 64,
            finish: Finish::Relu { bias: &weights.0[7] },
        };
        run!(fourth, wide 6 x 4, narrow 6 x 2);
        let (upper, lower) = scratch.two_rows[..2 * 12 * 64].split_at(12 * 64);
        let pool = Pool::<64> {
            upper,
            lower,
            drops: drops[1],
            first: row * 6 * 64,
            output: &mut features[row * 6 * 64..][..6 * 64],
            winners: &mut image.second_winners[row * 6 * 64 / S::LANES..],
        };
        pool.run::<S>();
    }
}

/// From the gradient of an image's features to those of the kernels and biases, which it adds to.
pub fn backward<S: Simd>(
    image: &Image,
    scratch: &mut Scratch,
    kernels: &Kernels,
    features: &[f32],
    scales: [f32; 2],
    gradients: &mut [Aligned; PARAMETERS_HERE],
) {
    let [first_kernel, first_bias, second_kernel, second_bias, third_kernel, third_bias, fourth_kernel, fourth_bias] =
        gradients;
    for row in 0..6 {
        let two_rows = &mut scratch.fourth[((2 * row + 2) * FRAMED_FOURTH + 2) * 64..];
        let (upper, lower) = two_rows.split_at_mut(FRAMED_FOURTH * 64);
        let unpool = Unpool::<64> {
            gradient: &features[row * 6 * 64..][..6 * 64],
            winners: &image.second_winners[row * 6 * 64 / S::LANES..],
            scale: scales[1],
            upper,
            lower,
            bias: fourth_bias,
        };
        unpool.run::<S>();
    }
    let fourth = KernelGradient::<64, 64> {
        input: &image.third,
        input_row: 14 * 64,
        output_gradient: &scratch.fourth[(2 * FRAMED_FOURTH + 2) * 64..],
        output_row: FRAMED_FOURTH * 64,
        rows: 12,
        columns: 12,
        gradient: fourth_kernel,
    };
    run!(fourth, wide 6 x 4, narrow 6 x 2);
    let third = Convolution::<64, 64> {
        input: &scratch.fourth,
        input_row: FRAMED_FOURTH * 64,
        filled: 2..14,
        kernel: &kernels.backward[2],
        rows: 14,
        columns: 14,
        output: &mut scratch.third[(FRAMED_THIRD + 1) * 64..],
        output_row: FRAMED_THIRD * 64,
        finish: Finish::Gate { activations: &image.third },
    };
    run!(third, wide 14 x 2, narrow 5 x 2);

    let third = &scratch.third[(FRAMED_THIRD + 1) * 64..];
    add_bias::<64>(third, FRAMED_THIRD * 64, 14, 14, third_bias);
    let third = KernelGradient::<32, 64> {
        input: &image.first_maxima,
        input_row: FRAMED_MAXIMA * 32,
        output_gradient: third,
        output_row: FRAMED_THIRD * 64,
        rows: 14,
        columns: 14,
        gradient: third_kernel,
    };
    run!(third, wide 6 x 4, narrow 6 x 2);
    let maxima = Convolution::<64, 32> {
        input: &scratch.third,
        input_row: FRAMED_THIRD * 64,
        filled: 1..15,
        kernel: &kernels.backward[1],
        rows: 15,
        columns: 15,
        output: &mut scratch.first_maxima,
        output_row: 15 * 32,
        finish: Finish::Plain,
    };
    run!(maxima, wide 5 x 2, narrow 5 x 2);

    for row in 0..15 {
        let two_rows = &mut scratch.second[((2 * row + 2) * FRAMED_SECOND + 2) * 32..];
        let (upper, lower) = two_rows.split_at_mut(FRAMED_SECOND * 32);
        let unpool = Unpool::<32> {
            gradient: &scratch.first_maxima[row * 15 * 32..][..15 * 32],
            winners: &image.first_winners[row * 15 * 32 / S::LANES..],
            scale: scales[0],
            upper,
            lower,
            bias: second_bias,
        };
        unpool.run::<S>();
    }
    let second = KernelGradient::<32, 32> {
        input: &image.first,
        input_row: 32 * 32,
        output_gradient: &scratch.second[(2 * FRAMED_SECOND + 2) * 32..],
        output_row: FRAMED_SECOND * 32,
        rows: 30,
        columns: 30,
        gradient: second_kernel,
    };
    run!(second, wide 12 x 2, narrow 6 x 2);
    let first = Convolution::<32, 32> {
        input: &scratch.second,
        input_row: FRAMED_SECOND * 32,
        filled: 2..32,
        kernel: &kernels.backward[0],
        rows: 32,
        columns: 32,
        output: &mut scratch.first,
        output_row: 32 * 32,
        finish: Finish::Gate { activations: &image.first },
    };
    run!(first, wide 8 x 2, narrow 5 x 2);

    add_bias::<32>(&scratch.first, 32 * 32, 32, 32, first_bias);
    let first = KernelGradient::<3, 32> {
        input: &image.input,
        input_row: FRAMED * CHANNELS,
        output_gradient: &scratch.first,
        output_row: 32 * 32,
        rows: 32,
        columns: 32,
        gradient: first_kernel,
    };
    run!(first, wide 9 x 2, narrow 3 x 4);
}
