//! The kernels of the four convolutions as right operands, packed from the weights in each step, and the taps over
//! which products are summed.
//!
//! A forward product sums pixels times kernel over taps and input channels; its columns are output channels. The
//! gradient of the input is the same product of the output gradient with the kernel rotated by 180 degrees; its columns
//! are input channels. Both visit the taps in the same order.

use std::arch::x86_64::*;

use super::tile_layout::{Bf16Row, ZERO_ROW, interleave, round, transpose_16};
use crate::network::Weights;

/// Packed kernels. If there are more than 32 columns, all taps of the first 32 are followed by all taps of the next 32.
pub struct PackedKernels {
    /// One step over the 27 values of a patch: see [`super::first_conv_patches`].
    pub first: Vec<Bf16Row>,
    pub forward: [Vec<Bf16Row>; 3],
    pub backward: [Vec<Bf16Row>; 3],
}

/// Input and output channels of the convolutions after the first.
pub const CHANNELS: [(usize, usize); 3] = [(32, 32), (32, 64), (64, 64)];

/// Number of parts that are packed in parallel.
pub const N_PARTS: usize = 7;

/// Byte offset from a pixel to the one under each tap, in images with rows of `width` pixels and `lines` bf16 rows per
/// pixel. `N` is `9 * lines`.
pub const fn taps<const N: usize>(width: usize, rows_per_pixel: usize) -> [usize; N] {
    let (mut steps, mut step) = ([0; N], 0);
    while step < N {
        let (tap, line) = (step / rows_per_pixel, step % rows_per_pixel);
        steps[step] = ((tap / 3 * width + tap % 3) * rows_per_pixel + line) * super::tile_layout::ROW_BYTES;
        step += 1;
    }
    steps
}

impl PackedKernels {
    pub fn new() -> PackedKernels {
        let rows = |of: usize| vec![ZERO_ROW; 9 * CHANNELS[of].0 * CHANNELS[of].1 / 32];
        let all = || [rows(0), rows(1), rows(2)];
        PackedKernels { first: vec![ZERO_ROW; 32], forward: all(), backward: all() }
    }

    /// The parts, largest first, each with its destination.
    pub fn parts(&mut self) -> [(KernelPart, &mut [Bf16Row]); N_PARTS] {
        let [forward_1, forward_2, forward_3] = &mut self.forward;
        let [backward_1, backward_2, backward_3] = &mut self.backward;
        [
            (KernelPart::Backward(2), backward_3),
            (KernelPart::Forward(2), forward_3),
            (KernelPart::Backward(1), backward_2),
            (KernelPart::Forward(1), forward_2),
            (KernelPart::Backward(0), backward_1),
            (KernelPart::Forward(0), forward_1),
            (KernelPart::First, &mut self.first),
        ]
    }
}

#[derive(Clone, Copy, Debug)]
pub enum KernelPart {
    First,
    /// Index in [`CHANNELS`].
    Forward(usize),
    Backward(usize),
}

impl KernelPart {
    #[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
    pub fn pack(self, weights: &Weights, to: &mut [Bf16Row]) {
        let kernel = |of: usize| &*weights.0[2 + 2 * of];
        match self {
            KernelPart::First => pack_first(&weights.0[0], to),
            KernelPart::Forward(of) => pack_forward(kernel(of), CHANNELS[of], to),
            KernelPart::Backward(of) => pack_backward(kernel(of), CHANNELS[of], to),
        }
    }
}

/// Rows in the order of a patch: by kernel column, then row, then channel.
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
fn pack_first(kernel: &[f32], to: &mut [Bf16Row]) {
    let row = |value: usize, tile: usize| match value {
        0..27 => load(kernel, ((value / 3 % 3 * 3 + value / 9) * 3 + value % 3) * 32 + 16 * tile),
        _ => _mm512_setzero_ps(),
    };
    for (index, line) in to.iter_mut().enumerate() {
        let (tile, pair) = (index / 16, index % 16);
        *line = row_from_bits(interleave(row(2 * pair, tile), row(2 * pair + 1, tile)));
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
fn pack_forward(kernel: &[f32], (inputs, outputs): (usize, usize), to: &mut [Bf16Row]) {
    for (index, line) in to.iter_mut().enumerate() {
        let (pair, tile, rest) = (index % 16, index / 16 % 2, index / 32);
        // Taps times input channels are the rows of the kernel matrix.
        let (rows_32, columns_32) = (rest % (9 * inputs / 32), rest / (9 * inputs / 32));
        let at = (rows_32 * 32 + 2 * pair) * outputs + columns_32 * 32 + tile * 16;
        *line = row_from_bits(interleave(load(kernel, at), load(kernel, at + outputs)));
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
fn pack_backward(kernel: &[f32], (inputs, outputs): (usize, usize), to: &mut [Bf16Row]) {
    for (index, tile) in to.chunks_exact_mut(16).enumerate() {
        let (half, rest) = (index % 2, index / 2);
        let (outputs_32, rest) = (rest % (outputs / 32), rest / (outputs / 32));
        let (tap, inputs_32) = (8 - rest % 9, rest / 9);
        let first = tap * inputs + inputs_32 * 32 + half * 16;
        let mut rows = [_mm512_setzero_si512(); 16];
        for (row, values) in rows.iter_mut().enumerate() {
            let at = (first + row) * outputs + outputs_32 * 32;
            *values = round(load(kernel, at), load(kernel, at + 16));
        }
        // Two output channels take four bytes: after the transposition, a row holds the same two channels of 16 inputs.
        for (line, values) in tile.iter_mut().zip(transpose_16(&rows)) {
            *line = row_from_bits(values);
        }
    }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn load(values: &[f32], at: usize) -> __m512 {
    let values = &values[at..at + 16];
    // SAFETY: `values` has 16 values.
    unsafe { _mm512_loadu_ps(values.as_ptr()) }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn row_from_bits(values: __m512i) -> Bf16Row {
    // SAFETY: both types have 512 bits, and every bit pattern is valid.
    unsafe { std::mem::transmute(values) }
}
