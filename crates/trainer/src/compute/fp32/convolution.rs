//! A 3x3 convolution of one image without an im2col copy: the three pixels under a kernel row are adjacent in memory.
//! Used forward, and backward with the flipped kernel ([`flip_kernel`]) over a zero-padded output gradient.
//!
//! The caller provides an input that is already padded with zeros if the layer pads. Kernel rows that would only meet
//! zeros are skipped.

use std::ops::Range;

use super::tile::{self, Tile, TileOperands};
use crate::compute::simd::{Simd, SimdKernel};

/// A convolution of `CIN` input channels into `COUT` output channels.
pub struct Convolution<'a, const CIN: usize, const COUT: usize> {
    pub input: &'a [f32],
    /// Stride between input rows, in values.
    pub input_row: usize,
    /// Range of input rows that are not entirely padding.
    pub nonzero_rows: Range<usize>,
    /// `[3][3][CIN][COUT]`.
    pub kernel: &'a [f32],
    pub rows: usize,
    pub columns: usize,
    pub output: &'a mut [f32],
    /// Stride between output rows, in values.
    pub output_row: usize,
    pub epilogue: Epilogue<'a>,
}

/// Operation applied to the sums before they are stored.
#[derive(Clone, Copy)]
pub enum Epilogue<'a> {
    /// Forward: adds the bias and applies ReLU.
    Relu { bias: &'a [f32] },
    /// Backward: passes the gradient where this layer's activation was positive. `activations` is `rows` times
    /// `columns`, unpadded.
    ReluMask { activations: &'a [f32] },
    /// Backward: stores the sums unchanged.
    Store,
}

impl<const CIN: usize, const COUT: usize> Convolution<'_, CIN, COUT> {
    /// Runs in tiles of `P` pixels times `V` vectors of channels. If the row length is no multiple of `P`, the last
    /// tile starts earlier and computes some pixels twice.
    pub fn run<S: Simd, const P: usize, const V: usize>(self) {
        let Convolution { input, input_row, ref nonzero_rows, kernel, rows, columns, ref output, output_row, epilogue } =
            self;
        assert!(rows > 0 && columns >= P && COUT.is_multiple_of(V * S::LANES));
        assert!(input.len() >= (rows + 1) * input_row + (columns + 2) * CIN && nonzero_rows.end <= rows + 2);
        assert!(output.len() >= (rows - 1) * output_row + columns * COUT && kernel.len() == 9 * CIN * COUT);
        match epilogue {
            Epilogue::Relu { bias } => assert_eq!(bias.len(), COUT),
            Epilogue::ReluMask { activations } => assert!(activations.len() >= rows * columns * COUT),
            Epilogue::Store => {}
        }
        // SAFETY: the engine is created only if the CPU supports `S`; the assertions above are what the kernel
        // requires.
        unsafe { S::dispatch(Tiled::<CIN, COUT, P, V>(self)) }
    }
}

struct Tiled<'a, const CIN: usize, const COUT: usize, const P: usize, const V: usize>(Convolution<'a, CIN, COUT>);

impl<const CIN: usize, const COUT: usize, const P: usize, const V: usize> SimdKernel for Tiled<'_, CIN, COUT, P, V> {
    #[inline(always)]
    unsafe fn run<S: Simd>(mut self) {
        for row in 0..self.0.rows {
            for channel in (0..COUT).step_by(V * S::LANES) {
                let mut column = 0;
                while column < self.0.columns {
                    column = column.min(self.0.columns - P);
                    // SAFETY: row, column and channel are in bounds, see `Convolution::run`.
                    unsafe { self.tile::<S>(row, column, channel) }
                    column += P;
                }
            }
        }
    }
}

impl<const CIN: usize, const COUT: usize, const P: usize, const V: usize> Tiled<'_, CIN, COUT, P, V> {
    /// Computes one tile of pixels times channels.
    ///
    /// # Safety
    /// The tile must be inside of the output, the operands must have passed the assertions of `Convolution::run`, and the CPU must
    /// support `S`.
    #[inline(always)]
    unsafe fn tile<S: Simd>(&mut self, row: usize, column: usize, channel: usize) {
        let Convolution { input, input_row, nonzero_rows, kernel, columns, output, output_row, epilogue, .. } =
            &mut self.0;
        // SAFETY: the caller guarantees that the tile is in bounds; all offsets below stay inside of it.
        unsafe {
            let mut tile: Tile<S, P, V> = tile::zeros();
            if let Epilogue::Relu { bias } = epilogue {
                for v in 0..V {
                    let bias = S::load(bias.as_ptr().add(channel + v * S::LANES));
                    for p in 0..P {
                        tile[p][v] = bias;
                    }
                }
            }
            for kernel_row in nonzero_rows.start.saturating_sub(row)..nonzero_rows.end.saturating_sub(row).min(3) {
                let operands = TileOperands {
                    scalars: input.as_ptr().add((row + kernel_row) * *input_row + column * CIN),
                    row_stride: CIN,
                    scalar_step: 1,
                    vectors: kernel.as_ptr().add(kernel_row * 3 * CIN * COUT + channel),
                    vector_step: COUT,
                    steps: 3 * CIN,
                };
                tile::add(&mut tile, operands);
            }
            let place = output.as_mut_ptr().add(row * *output_row + column * COUT + channel);
            for p in 0..P {
                for v in 0..V {
                    let offset = p * COUT + v * S::LANES;
                    let sum = match epilogue {
                        Epilogue::Relu { .. } => S::splat(0.0).max(tile[p][v]),
                        Epilogue::ReluMask { activations } => {
                            let place = (row * *columns + column) * COUT + channel + offset;
                            let activation = S::load(activations.as_ptr().add(place));
                            tile[p][v].mask_lanes(activation.gt_mask(S::splat(0.0)))
                        }
                        Epilogue::Store => tile[p][v],
                    };
                    sum.store(place.add(offset));
                }
            }
        }
    }
}

/// Kernel for the input gradient: input and output channels exchanged, and rotated by 180 degrees.
pub fn flip_kernel(kernel: &[f32], channels_in: usize, channels_out: usize, flipped: &mut [f32]) {
    assert!(kernel.len() == 9 * channels_in * channels_out && flipped.len() == kernel.len());
    let size = channels_in * channels_out;
    for (place, flipped) in flipped.chunks_exact_mut(size).enumerate() {
        let kernel = &kernel[(8 - place) * size..][..size];
        for (channel_out, flipped) in flipped.chunks_exact_mut(channels_in).enumerate() {
            for (channel_in, value) in flipped.iter_mut().enumerate() {
                *value = kernel[channel_in * channels_out + channel_out];
            }
        }
    }
}
