//! Products of matrices, for the dense layers.

use super::tile::{self, Products, Tile};
use crate::compute::simd::{Simd, Work};

/// `out[row][column] = start + sum over turns of numbers[row][turn] * vectors[turn][column]`.
pub struct Product {
    pub numbers: *const f32,
    /// From the number of one row to that of the next.
    pub numbers_row: usize,
    pub numbers_turn: usize,
    pub vectors: *const f32,
    pub vectors_turn: usize,
    pub turns: usize,
    pub start: Start,
    pub out: *mut f32,
    pub out_row: usize,
    pub rows: usize,
    pub columns: usize,
}

pub enum Start {
    Zero,
    /// From the same for every row.
    Row(*const f32),
    /// From what is there.
    Out,
}

impl Product {
    /// In tiles of `P` rows times `V` vectors, which must divide what is asked for.
    ///
    /// # Safety
    ///
    /// The numbers and vectors must be readable, `out` writable, by this thread alone.
    pub unsafe fn run<S: Simd, const P: usize, const V: usize>(self) {
        assert!(self.rows.is_multiple_of(P) && self.columns.is_multiple_of(V * S::LANES));
        // SAFETY: the engine is made only on processors that have `S`; for the rest the caller answers.
        unsafe { S::enter(Tiled::<P, V>(self)) }
    }
}

struct Tiled<const P: usize, const V: usize>(Product);

impl<const P: usize, const V: usize> Work for Tiled<P, V> {
    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let work = self.0;
        for row in (0..work.rows).step_by(P) {
            for column in (0..work.columns).step_by(V * S::LANES) {
                // SAFETY: tiles lie inside of what the caller of `Product::run` answers for.
                unsafe {
                    let out = work.out.add(row * work.out_row + column);
                    let mut tile: Tile<S, P, V> = tile::zeros();
                    for p in 0..P {
                        for v in 0..V {
                            tile[p][v] = match work.start {
                                Start::Zero => S::splat(0.0),
                                Start::Row(start) => S::load(start.add(column + v * S::LANES)),
                                Start::Out => S::load(out.add(p * work.out_row + v * S::LANES)),
                            };
                        }
                    }
                    let products = Products {
                        numbers: work.numbers.add(row * work.numbers_row),
                        row: work.numbers_row,
                        turn: work.numbers_turn,
                        vectors: work.vectors.add(column),
                        stride: work.vectors_turn,
                        turns: work.turns,
                    };
                    tile::add(&mut tile, products);
                    for p in 0..P {
                        for v in 0..V {
                            tile[p][v].store(out.add(p * work.out_row + v * S::LANES));
                        }
                    }
                }
            }
        }
    }
}
