//! Register tile: a block of sums of products that stays in registers. All fp32 layers are built on it.
//!
//! A tile has `P` rows of `V` vectors. Each step multiplies one scalar per row with `V` vectors that all rows share:
//!
//! ```text
//! tile[p][v] += scalars[p * row_stride + k * scalar_step] * vectors[k * vector_step + v]        for k in 0..steps
//! ```
//!
//! Depending on the strides it is a convolution (rows are pixels, steps run over the patch), a kernel gradient (rows
//! are values of the patch, steps run over pixels), or a matrix product.

use crate::compute::simd::Simd;

pub type Tile<S, const P: usize, const V: usize> = [[S; V]; P];

/// Operands of a tile. Strides are in values.
#[derive(Clone, Copy)]
pub struct TileOperands {
    pub scalars: *const f32,
    /// Stride between the scalars of two rows.
    pub row_stride: usize,
    /// Stride between the scalars of two steps.
    pub scalar_step: usize,
    pub vectors: *const f32,
    /// Stride between the vectors of two steps.
    pub vector_step: usize,
    pub steps: usize,
}

/// Adds the products of all steps to the tile.
///
/// # Safety
///
/// All scalars and vectors addressed by `operands` must be readable, and the CPU must support `S` (see [`Simd`]).
#[inline(always)]
pub unsafe fn add<S: Simd, const P: usize, const V: usize>(tile: &mut Tile<S, P, V>, operands: TileOperands) {
    let TileOperands { mut scalars, row_stride, scalar_step, mut vectors, vector_step, steps } = operands;
    // A local copy, so that the compiler can prove that nothing aliases it and keeps it in registers.
    let mut sums = *tile;
    // SAFETY: the caller guarantees that all scalars and vectors are readable and that the CPU supports `S`.
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

/// A tile of zeros.
///
/// # Safety
///
/// The CPU must support `S` (see [`Simd`]).
#[inline(always)]
pub unsafe fn zeros<S: Simd, const P: usize, const V: usize>() -> Tile<S, P, V> {
    // SAFETY: the caller guarantees that the CPU supports `S`.
    [[unsafe { S::splat(0.0) }; V]; P]
}
