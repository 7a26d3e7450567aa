//! Reduces the sums of image groups to the gradients of the convolutions: adds them in the order of the groups and
//! converts them to Keras' kernel layout.

use std::arch::x86_64::*;

use super::backward::GroupSums;
use super::kernels::CHANNELS;
use super::parallel_for::parallel_for;
use super::tile_layout::{AccTile, PAIRED_ORDER, ZERO_ACC, transpose_16};
use crate::compute::disjoint_slice::DisjointSlice;
use crate::network::PARAMETERS;
use crate::thread_pool::ThreadPool;

/// Gradients of the first eight parameters.
pub struct ConvGradients([Vec<f32>; 8]);

/// Accumulator tiles per convolution.
const TILES_PER_CONV: [usize; 4] = [1, 9, 18, 36];
const N_TILES: usize = 1 + 9 + 18 + 36;

impl ConvGradients {
    pub fn new() -> ConvGradients {
        ConvGradients(std::array::from_fn(|parameter| vec![0.0; PARAMETERS[parameter].size()]))
    }

    pub fn parameter(&self, parameter: usize) -> &[f32] {
        &self.0[parameter]
    }

    pub fn reduce(&mut self, pool: &ThreadPool, n_groups: &[GroupSums]) {
        for convolution in 0..4 {
            let bias = &mut self.0[2 * convolution + 1];
            bias.fill(0.0);
            for group in n_groups {
                bias.iter_mut().zip(&group.biases[convolution]).for_each(|(bias, sum)| *bias += sum);
            }
        }
        let [first, _, second, _, third, _, fourth, _] = &mut self.0;
        let kernels = [first, second, third, fourth].map(|kernel| DisjointSlice::new(kernel));
        parallel_for(pool, N_TILES, |_, _, item| {
            let (mut convolution, mut run) = (0, item);
            while run >= TILES_PER_CONV[convolution] {
                run -= TILES_PER_CONV[convolution];
                convolution += 1;
            }
            // SAFETY: `AmxEngine` exists only on CPUs with AVX-512; each item writes the kernel rows of its own tile.
            unsafe {
                let rows = sum_transposed(n_groups.iter().map(|group| &group.kernels[convolution][run]));
                store_kernel_rows(convolution, run, &rows, &kernels[convolution]);
            }
        });
    }
}

/// The sum of the tiles, transposed: one row per column, in the order of [`PAIRED_ORDER`].
#[target_feature(enable = "avx512f")]
fn sum_transposed<'a>(runs: impl Iterator<Item = &'a AccTile>) -> AccTile {
    let mut sum = ZERO_ACC;
    for run in runs {
        for (sum, value) in sum.0.as_flattened_mut().iter_mut().zip(run.0.as_flattened()) {
            *sum += value;
        }
    }
    let mut rows = ZERO_ACC;
    for quarter in 0..4 {
        let (down, across) = (quarter / 2 * 16, quarter % 2 * 16);
        // SAFETY: reads 16 values of a row of 32, starting at 0 or 16.
        let block =
            std::array::from_fn(|row| unsafe { _mm512_loadu_si512(sum.0[down + row][across..].as_ptr().cast()) });
        for (row, values) in transpose_16(&block).into_iter().enumerate() {
            // SAFETY: writes 16 values of a row of 32, starting at 0 or 16.
            unsafe { _mm512_storeu_si512(rows.0[across + row][down..].as_mut_ptr().cast(), values) };
        }
    }
    rows
}

/// Copies a tile into its place in the kernel.
///
/// # Safety
///
/// No other reference to this tile's part of the kernel may exist.
unsafe fn store_kernel_rows(convolution: usize, run: usize, rows: &AccTile, kernel: &DisjointSlice<'_, f32>) {
    for (row, channel) in rows.0.iter().zip(PAIRED_ORDER) {
        let first = match convolution {
            // Patches are ordered by kernel column, row, channel. Values from 27 on are padding.
            0 if channel >= 27 => continue,
            0 => ((channel / 3 % 3 * 3 + channel / 9) * 3 + channel % 3) * 32,
            _ => {
                let (inputs, outputs) = CHANNELS[convolution - 1];
                let (inputs_32, outputs_32) = (inputs / 32, outputs / 32);
                let (tap, output, input) =
                    (run / inputs_32 / outputs_32, run / inputs_32 % outputs_32, run % inputs_32);
                (tap * inputs + input * 32 + channel) * outputs + output * 32
            }
        };
        // SAFETY: these 32 values belong to this tile, to which the caller has exclusive access.
        unsafe { kernel.range_mut(first..first + 32) }.copy_from_slice(row);
    }
}
