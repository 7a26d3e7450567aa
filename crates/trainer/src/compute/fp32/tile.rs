//! The heart of all layers: a tile of sums of products that stays in registers.
//!
//! A tile has `P` rows of `V` vectors. Each turn multiplies one number for each row with `V` vectors that all rows share:
//!
//! ```text
//! tile[p][v] += numbers[p * row + k * turn] * vectors[k * stride + v]        for k in 0..turns
//! ```
//!
//! With other steps it is a convolution (rows are pixels, turns go over the patch), its kernel's gradient (rows are places in the
//! patch, turns go over pixels), or a product of matrices.

use crate::compute::simd::Simd;

pub type Tile<S, const P: usize, const V: usize> = [[S; V]; P];

/// What a tile is made from.
#[derive(Clone, Copy)]
pub struct TileOperands {
    pub scalars: *const f32,
    /// From the number of one row to that of the next.
    pub row_stride: usize,
    /// From the numbers of one turn to those of the next.
    pub scalar_step: usize,
    pub vectors: *const f32,
    /// From the vectors of one turn to those of the next.
    pub vector_step: usize,
    pub steps: usize,
}

/// # Safety
///
/// All numbers and vectors of all turns must be there; for the rest see [`Simd`].
#[inline(always)]
pub unsafe fn add<S: Simd, const P: usize, const V: usize>(tile: &mut Tile<S, P, V>, operands: TileOperands) {
    let TileOperands { mut scalars, row_stride, scalar_step, mut vectors, vector_step, steps } = operands;
    // A copy, so that the compiler sees that nobody else looks at it and keeps it in registers.
    let mut sums = *tile;
    unsafe {
        for _ in 0..steps {
            let mut shared = [S::splat(0.0); V];
            for v in 0..V {
                shared[v] = S::load(vectors.add(v * S::LANES));
            }
            for p in 0..P {
                let number = S::splat(*scalars.add(p * row_stride));
                for v in 0..V {
                    sums[p][v] = number.mul_add(shared[v], sums[p][v]);
                }
            }
            scalars = scalars.wrapping_add(scalar_step);
            vectors = vectors.wrapping_add(vector_step);
        }
    }
    *tile = sums;
}

/// # Safety
///
/// See [`Simd`].
#[inline(always)]
pub unsafe fn zeros<S: Simd, const P: usize, const V: usize>() -> Tile<S, P, V> {
    [[unsafe { S::splat(0.0) }; V]; P]
}
