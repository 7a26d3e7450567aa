//! Kernel gradient of a convolution for one image: for each tap and channel pair, the sum over all pixels of the input
//! under the tap times the output gradient.

use super::tile::{self, Tile, TileOperands};
use crate::compute::simd::{Simd, SimdKernel};

/// Adds to the gradient of a kernel `[3][3][CIN][COUT]`.
pub struct KernelGradient<'a, const CIN: usize, const COUT: usize> {
    /// Input of the layer, zero-padded if the layer pads.
    pub input: &'a [f32],
    pub input_row: usize,
    /// Output gradient from its first pixel, without leading padding.
    pub output_gradient: &'a [f32],
    pub output_row: usize,
    pub rows: usize,
    pub columns: usize,
    pub gradient: &'a mut [f32],
}

/// Rows of pixels processed with each tile before the next: about the size of the L1 cache.
const ROWS_PER_BAND: usize = 4;

impl<const CIN: usize, const COUT: usize> KernelGradient<'_, CIN, COUT> {
    /// Runs in tiles of `P` values of a patch row times `V` vectors of channels.
    pub fn run<S: Simd, const P: usize, const V: usize>(self) {
        let KernelGradient { input, input_row, output_gradient, output_row, rows, columns, ref gradient } = self;
        assert!(rows > 0 && columns > 0 && (3 * CIN).is_multiple_of(P) && COUT.is_multiple_of(V * S::LANES));
        assert!(input.len() >= (rows + 1) * input_row + (columns + 2) * CIN && gradient.len() == 9 * CIN * COUT);
        assert!(output_gradient.len() >= (rows - 1) * output_row + columns * COUT);
        // SAFETY: the engine is created only if the CPU supports `S`; the assertions above are what the kernel
        // requires.
        unsafe { S::dispatch(Tiled::<CIN, COUT, P, V>(self)) }
    }
}

struct Tiled<'a, const CIN: usize, const COUT: usize, const P: usize, const V: usize>(KernelGradient<'a, CIN, COUT>);

impl<const CIN: usize, const COUT: usize, const P: usize, const V: usize> SimdKernel for Tiled<'_, CIN, COUT, P, V> {
    #[inline(always)]
    unsafe fn run<S: Simd>(mut self) {
        for band in (0..self.0.rows).step_by(ROWS_PER_BAND) {
            for kernel_row in 0..3 {
                for tap in (0..3 * CIN).step_by(P) {
                    for channel in (0..COUT).step_by(V * S::LANES) {
                        // SAFETY: all indices are in bounds, see `KernelGradient::run`.
                        unsafe { self.tile::<S>(band, kernel_row, tap, channel) }
                    }
                }
            }
        }
    }
}

impl<const CIN: usize, const COUT: usize, const P: usize, const V: usize> Tiled<'_, CIN, COUT, P, V> {
    /// Adds one band of rows to one tile of the gradient.
    ///
    /// # Safety
    /// The tile must be inside of the kernel, the operands must have passed the assertions of `KernelGradient::run`, and the CPU
    /// must support `S`.
    #[inline(always)]
    unsafe fn tile<S: Simd>(&mut self, band: usize, kernel_row: usize, tap: usize, channel: usize) {
        let KernelGradient { input, input_row, output_gradient, output_row, rows, columns, gradient } = &mut self.0;
        // SAFETY: the caller guarantees that the tile is in bounds; all offsets below stay inside of it.
        unsafe {
            let gradient = gradient.as_mut_ptr().add((kernel_row * 3 * CIN + tap) * COUT + channel);
            let mut tile: Tile<S, P, V> = tile::zeros();
            for p in 0..P {
                for v in 0..V {
                    tile[p][v] = S::load(gradient.add(p * COUT + v * S::LANES));
                }
            }
            for row in band..(band + ROWS_PER_BAND).min(*rows) {
                let operands = TileOperands {
                    scalars: input.as_ptr().add((row + kernel_row) * *input_row + tap),
                    row_stride: 1,
                    scalar_step: CIN,
                    vectors: output_gradient.as_ptr().add(row * *output_row + channel),
                    vector_step: COUT,
                    steps: *columns,
                };
                tile::add(&mut tile, operands);
            }
            for p in 0..P {
                for v in 0..V {
                    tile[p][v].store(gradient.add(p * COUT + v * S::LANES));
                }
            }
        }
    }
}

/// Adds the sum over all pixels to the bias gradient.
pub fn add_bias<const COUT: usize>(
    output_gradient: &[f32],
    output_row: usize,
    rows: usize,
    columns: usize,
    gradient: &mut [f32],
) {
    let mut sums = [0.0; COUT];
    for row in 0..rows {
        for pixel in output_gradient[row * output_row..][..columns * COUT].chunks_exact(COUT) {
            for (sum, value) in sums.iter_mut().zip(pixel) {
                *sum += value;
            }
        }
    }
    for (gradient, sum) in gradient.iter_mut().zip(sums) {
        *gradient += sum;
    }
}
