//! Matrix products for the dense layers.

use super::tile::{self, Tile, TileOperands};
use crate::compute::simd::{Simd, SimdKernel};

/// `out[row][column] = acc_init + sum over steps of scalars[row][step] * vectors[step][column]`. Strides are in values.
pub struct MatMul {
    pub scalars: *const f32,
    /// Stride between the scalars of two rows.
    pub scalars_row_stride: usize,
    pub scalars_step: usize,
    pub vectors: *const f32,
    pub vectors_step: usize,
    pub steps: usize,
    pub acc_init: AccInit,
    pub out: *mut f32,
    pub out_row: usize,
    pub rows: usize,
    pub columns: usize,
}

pub enum AccInit {
    Zero,
    /// One initial row for all rows of `out`.
    Row(*const f32),
    /// The current contents of `out`.
    Out,
}

impl MatMul {
    /// Runs in tiles of `P` rows times `V` vectors, which must divide `rows` and `columns`.
    ///
    /// # Safety
    ///
    /// All scalars and vectors addressed by the fields must be readable. The addressed part of `out` must be writable
    /// and accessed by no other thread.
    pub unsafe fn run<S: Simd, const P: usize, const V: usize>(self) {
        assert!(self.rows.is_multiple_of(P) && self.columns.is_multiple_of(V * S::LANES));
        // SAFETY: the engine is created only if the CPU supports `S`; the caller guarantees that the operands are
        // valid.
        unsafe { S::dispatch(Tiled::<P, V>(self)) }
    }
}

struct Tiled<const P: usize, const V: usize>(MatMul);

impl<const P: usize, const V: usize> SimdKernel for Tiled<P, V> {
    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let job = self.0;
        for row in (0..job.rows).step_by(P) {
            for column in (0..job.columns).step_by(V * S::LANES) {
                // SAFETY: tiles are inside of the rows and columns that the caller of `MatMul::run` guarantees to be
                // valid.
                unsafe {
                    let out = job.out.add(row * job.out_row + column);
                    let mut tile: Tile<S, P, V> = tile::zeros();
                    for p in 0..P {
                        for v in 0..V {
                            tile[p][v] = match job.acc_init {
                                AccInit::Zero => S::splat(0.0),
                                AccInit::Row(acc_init) => S::load(acc_init.add(column + v * S::LANES)),
                                AccInit::Out => S::load(out.add(p * job.out_row + v * S::LANES)),
                            };
                        }
                    }
                    let operands = TileOperands {
                        scalars: job.scalars.add(row * job.scalars_row_stride),
                        row_stride: job.scalars_row_stride,
                        scalar_step: job.scalars_step,
                        vectors: job.vectors.add(column),
                        vector_step: job.vectors_step,
                        steps: job.steps,
                    };
                    tile::add(&mut tile, operands);
                    for p in 0..P {
                        for v in 0..V {
                            tile[p][v].store(out.add(p * job.out_row + v * S::LANES));
                        }
                    }
                }
            }
        }
    }
}
