//! The four convolutions of one image, forward and backward, with the activations in between.
//!
//! The last row and column of the fourth convolution belong to no pooling window, so neither they nor what only they
//! need is computed: the third convolution computes 14 x 14 pixels and the fourth 12 x 12, instead of 15 x 15 and 13 x
//! 13. No score or gradient depends on the rest.

use super::convolution::{Convolution, Epilogue, flip_kernel};
use super::kernel_gradient::{KernelGradient, add_bias};
use super::pooling::{ArgmaxMasks, DropoutMask, Pool, Unpool};
use crate::compute::aligned::{AlignedBuf, BumpArena};
use crate::compute::simd::Simd;
use crate::network::{CHANNELS, DROPOUTS, PARAMETERS, SIDE, Weights};

/// Runs a kernel with the tile size that fits the registers: pixels (or patch values) times vectors.
macro_rules! run {
    ($work:expr, wide $wide:literal x $wide_v:literal, narrow $narrow:literal x $narrow_v:literal) => {
        if const { S::LANES == 16 } { $work.run::<S, $wide, $wide_v>() } else { $work.run::<S, $narrow, $narrow_v>() }
    };
}

/// Number of convolution parameters, the first of [`PARAMETERS`].
pub const CONV_PARAMETERS: usize = 8;
/// Number of values after the last pooling, the inputs of the dense layers.
pub const FEATURES: usize = DROPOUTS[1].size;

/// Side lengths with padding: of the image and the first pooling's output, and of the gradients of the fourth, third
/// and second convolution.
const PADDED_INPUT: usize = SIDE + 2;
const PADDED_POOLED: usize = 17;
const PADDED_CONV4: usize = 12 + 4;
const PADDED_CONV3: usize = 17;
const PADDED_CONV2: usize = 30 + 4;

/// Kernels in the layouts that a step uses.
pub struct Kernels {
    forward: [AlignedBuf; 4],
    /// Flipped for the backward pass; the first layer needs none.
    backward: [AlignedBuf; 3],
}

impl Kernels {
    pub fn new() -> Kernels {
        let buffer = |layer: usize| AlignedBuf::zeros(PARAMETERS[2 * layer].size());
        Kernels { forward: [0, 1, 2, 3].map(buffer), backward: [1, 2, 3].map(buffer) }
    }

    pub fn load_weights(&mut self, weights: &Weights) {
        for (layer, kernel) in self.forward.iter_mut().enumerate() {
            kernel.copy_from_slice(&weights.0[2 * layer]);
        }
        for (layer, kernel) in (1..).zip(&mut self.backward) {
            let shape = PARAMETERS[2 * layer].shape;
            flip_kernel(&weights.0[2 * layer], shape[2], shape[3], kernel);
        }
    }
}

/// Activations of one image that the backward pass needs.
pub struct ImageActivations {
    input: AlignedBuf,
    first: AlignedBuf,
    first_argmax: AlignedBuf<ArgmaxMasks>,
    first_pooled: AlignedBuf,
    third: AlignedBuf,
    second_argmax: AlignedBuf<ArgmaxMasks>,
}

impl ImageActivations {
    pub fn new<S: Simd>(arena: &mut BumpArena) -> ImageActivations {
        ImageActivations {
            input: arena.alloc(PADDED_INPUT * PADDED_INPUT * CHANNELS),
            first: arena.alloc(32 * 32 * 32),
            first_argmax: arena.alloc(DROPOUTS[0].size / S::LANES),
            first_pooled: arena.alloc(PADDED_POOLED * PADDED_POOLED * 32),
            third: arena.alloc(14 * 14 * 64),
            second_argmax: arena.alloc(DROPOUTS[1].size / S::LANES),
        }
    }
}

/// Buffers of one thread. Padding stays zero.
pub struct Scratch {
    two_rows: AlignedBuf,
    fourth: AlignedBuf,
    third: AlignedBuf,
    first_pooled: AlignedBuf,
    second: AlignedBuf,
    first: AlignedBuf,
}

impl Scratch {
    pub fn new() -> Scratch {
        Scratch {
            two_rows: AlignedBuf::zeros(2 * 30 * 32),
            fourth: AlignedBuf::zeros(PADDED_CONV4 * PADDED_CONV4 * 64),
            third: AlignedBuf::zeros(PADDED_CONV3 * PADDED_CONV3 * 64),
            first_pooled: AlignedBuf::zeros(15 * 15 * 32),
            second: AlignedBuf::zeros(PADDED_CONV2 * PADDED_CONV2 * 32),
            first: AlignedBuf::zeros(32 * 32 * 32),
        }
    }
}

/// Forward pass of one image, from pixels to features.
pub fn forward<S: Simd>(
    image: &mut ImageActivations,
    scratch: &mut Scratch,
    kernels: &Kernels,
    weights: &Weights,
    pixels: &[f32],
    dropout: [Option<DropoutMask>; 2],
    features: &mut [f32],
) {
    for (row, pixels) in pixels.chunks_exact(SIDE * CHANNELS).enumerate() {
        image.input[((row + 1) * PADDED_INPUT + 1) * CHANNELS..][..SIDE * CHANNELS].copy_from_slice(pixels);
    }
    let first = Convolution::<3, 32> {
        input: &image.input,
        input_row: PADDED_INPUT * CHANNELS,
        nonzero_rows: 1..33,
        kernel: &kernels.forward[0],
        rows: 32,
        columns: 32,
        output: &mut image.first,
        output_row: 32 * 32,
        epilogue: Epilogue::Relu { bias: &weights.0[1] },
    };
    run!(first, wide 11 x 2, narrow 4 x 2);

    for row in 0..15 {
        let second = Convolution::<32, 32> {
            input: &image.first[2 * row * 32 * 32..],
            input_row: 32 * 32,
            nonzero_rows: 0..4,
            kernel: &kernels.forward[1],
            rows: 2,
            columns: 30,
            output: &mut scratch.two_rows,
            output_row: 30 * 32,
            epilogue: Epilogue::Relu { bias: &weights.0[3] },
        };
        run!(second, wide 10 x 2, narrow 6 x 2);
        let (upper, lower) = scratch.two_rows[..2 * 30 * 32].split_at(30 * 32);
        let pool = Pool::<32> {
            upper,
            lower,
            dropout: dropout[0],
            first: row * 15 * 32,
            output: &mut image.first_pooled[((row + 1) * PADDED_POOLED + 1) * 32..][..15 * 32],
            argmax: &mut image.first_argmax[row * 15 * 32 / S::LANES..],
        };
        pool.run::<S>();
    }

    let third = Convolution::<32, 64> {
        input: &image.first_pooled,
        input_row: PADDED_POOLED * 32,
        nonzero_rows: 1..16,
        kernel: &kernels.forward[2],
        rows: 14,
        columns: 14,
        output: &mut image.third,
        output_row: 14 * 64,
        epilogue: Epilogue::Relu { bias: &weights.0[5] },
    };
    run!(third, wide 14 x 2, narrow 5 x 2);

    for row in 0..6 {
        let fourth = Convolution::<64, 64> {
            input: &image.third[2 * row * 14 * 64..],
            input_row: 14 * 64,
            nonzero_rows: 0..4,
            kernel: &kernels.forward[3],
            rows: 2,
            columns: 12,
            output: &mut scratch.two_rows,
            output_row: 12 * 64,
            epilogue: Epilogue::Relu { bias: &weights.0[7] },
        };
        run!(fourth, wide 6 x 4, narrow 6 x 2);
        let (upper, lower) = scratch.two_rows[..2 * 12 * 64].split_at(12 * 64);
        let pool = Pool::<64> {
            upper,
            lower,
            dropout: dropout[1],
            first: row * 6 * 64,
            output: &mut features[row * 6 * 64..][..6 * 64],
            argmax: &mut image.second_argmax[row * 6 * 64 / S::LANES..],
        };
        pool.run::<S>();
    }
}

/// Backward pass of one image: adds the gradients of kernels and biases to `gradients`, given the gradient of the
/// features.
pub fn backward<S: Simd>(
    image: &ImageActivations,
    scratch: &mut Scratch,
    kernels: &Kernels,
    features: &[f32],
    scales: [f32; 2],
    gradients: &mut [AlignedBuf; CONV_PARAMETERS],
) {
    let [first_kernel, first_bias, second_kernel, second_bias, third_kernel, third_bias, fourth_kernel, fourth_bias] =
        gradients;
    for row in 0..6 {
        let two_rows = &mut scratch.fourth[((2 * row + 2) * PADDED_CONV4 + 2) * 64..];
        let (upper, lower) = two_rows.split_at_mut(PADDED_CONV4 * 64);
        let unpool = Unpool::<64> {
            gradient: &features[row * 6 * 64..][..6 * 64],
            argmax: &image.second_argmax[row * 6 * 64 / S::LANES..],
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
        output_gradient: &scratch.fourth[(2 * PADDED_CONV4 + 2) * 64..],
        output_row: PADDED_CONV4 * 64,
        rows: 12,
        columns: 12,
        gradient: fourth_kernel,
    };
    run!(fourth, wide 6 x 4, narrow 6 x 2);
    let third = Convolution::<64, 64> {
        input: &scratch.fourth,
        input_row: PADDED_CONV4 * 64,
        nonzero_rows: 2..14,
        kernel: &kernels.backward[2],
        rows: 14,
        columns: 14,
        output: &mut scratch.third[(PADDED_CONV3 + 1) * 64..],
        output_row: PADDED_CONV3 * 64,
        epilogue: Epilogue::ReluMask { activations: &image.third },
    };
    run!(third, wide 14 x 2, narrow 5 x 2);

    let third = &scratch.third[(PADDED_CONV3 + 1) * 64..];
    add_bias::<64>(third, PADDED_CONV3 * 64, 14, 14, third_bias);
    let third = KernelGradient::<32, 64> {
        input: &image.first_pooled,
        input_row: PADDED_POOLED * 32,
        output_gradient: third,
        output_row: PADDED_CONV3 * 64,
        rows: 14,
        columns: 14,
        gradient: third_kernel,
    };
    run!(third, wide 6 x 4, narrow 6 x 2);
    let maxima = Convolution::<64, 32> {
        input: &scratch.third,
        input_row: PADDED_CONV3 * 64,
        nonzero_rows: 1..15,
        kernel: &kernels.backward[1],
        rows: 15,
        columns: 15,
        output: &mut scratch.first_pooled,
        output_row: 15 * 32,
        epilogue: Epilogue::Store,
    };
    run!(maxima, wide 5 x 2, narrow 5 x 2);

    for row in 0..15 {
        let two_rows = &mut scratch.second[((2 * row + 2) * PADDED_CONV2 + 2) * 32..];
        let (upper, lower) = two_rows.split_at_mut(PADDED_CONV2 * 32);
        let unpool = Unpool::<32> {
            gradient: &scratch.first_pooled[row * 15 * 32..][..15 * 32],
            argmax: &image.first_argmax[row * 15 * 32 / S::LANES..],
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
        output_gradient: &scratch.second[(2 * PADDED_CONV2 + 2) * 32..],
        output_row: PADDED_CONV2 * 32,
        rows: 30,
        columns: 30,
        gradient: second_kernel,
    };
    run!(second, wide 12 x 2, narrow 6 x 2);
    let first = Convolution::<32, 32> {
        input: &scratch.second,
        input_row: PADDED_CONV2 * 32,
        nonzero_rows: 2..32,
        kernel: &kernels.backward[0],
        rows: 32,
        columns: 32,
        output: &mut scratch.first,
        output_row: 32 * 32,
        epilogue: Epilogue::ReluMask { activations: &image.first },
    };
    run!(first, wide 8 x 2, narrow 5 x 2);

    add_bias::<32>(&scratch.first, 32 * 32, 32, 32, first_bias);
    let first = KernelGradient::<3, 32> {
        input: &image.input,
        input_row: PADDED_INPUT * CHANNELS,
        output_gradient: &scratch.first,
        output_row: 32 * 32,
        rows: 32,
        columns: 32,
        gradient: first_kernel,
    };
    run!(first, wide 9 x 2, narrow 3 x 4);
}
