//! Operand layouts for AMX: rows of 32 bfloat16, blocks of 32 x 32 accumulators, and the conversions between them:
//! rounding, transposition, pairing. Knows nothing of layers.
//!
//! A [`Bf16Row`] is 64 bytes: 32 channels of one pixel, or one row of a tile. An [`AccTile`] is the result of one call
//! of `AmxTiles::multiply`. A right operand needs two matrix rows interleaved in one tile row: [`interleave`] keeps the
//! column order, [`interleave_pairs`] is faster and permutes the columns to [`PAIRED_ORDER`].

use std::arch::x86_64::*;

use super::amx::{AccOutput, LeftOperand, RightOperand};

/// 32 bfloat16 values, as bits.
#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(C, align(64))]
pub struct Bf16Row(pub [u16; 32]);

/// 32 x 32 accumulators.
#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(C, align(64))]
pub struct AccTile(pub [[f32; 32]; 32]);

pub const ZERO_ROW: Bf16Row = Bf16Row([0; 32]);
pub const ZERO_ACC: AccTile = AccTile([[0.0; 32]; 32]);

/// Bytes of a row, and of the two tiles that 32 rows form.
pub const ROW_BYTES: usize = 64;
pub const TILE_PAIR_BYTES: usize = 32 * ROW_BYTES;

/// The channel in each column after [`interleave_pairs`].
pub const PAIRED_ORDER: [usize; 32] = {
    let (mut order, mut column) = ([0; 32], 0);
    while column < 32 {
        order[column] = column % 16 / 4 * 8 + column % 4 + column / 16 * 4;
        column += 1;
    }
    order
};

impl AccTile {
    pub fn output(&mut self, accumulate: bool) -> AccOutput {
        AccOutput { first: self.0.as_mut_ptr().cast(), across: 64, down: 16 * 128, stride: 128, accumulate }
    }
}

/// Computes `n` accumulator blocks and post-processes each one after the next was started: the vector units finish one
/// block while AMX computes the next, instead of waiting for it.
#[inline(always)]
pub fn pipelined<T>(
    acc: &mut [T; 2],
    n: usize,
    mut make: impl FnMut(usize, &mut T),
    mut finish: impl FnMut(usize, &T),
) {
    for index in 0..n {
        make(index, &mut acc[index % 2]);
        if index > 0 {
            finish(index - 1, &acc[(index - 1) % 2]);
        }
    }
    finish(n - 1, &acc[(n - 1) % 2]);
}

/// Left operand whose rows are `stride` bf16 rows apart.
pub fn left_rows(first: *const Bf16Row, stride: usize) -> LeftOperand {
    LeftOperand { first: first.cast(), down: 16 * stride * ROW_BYTES, stride: stride * ROW_BYTES }
}

/// Right operand with tiles one after the other: 16 rows of 16 columns, 16 rows of the next 16 columns, then the next
/// step.
pub fn packed_right(first: *const Bf16Row) -> RightOperand {
    RightOperand { first: first.cast(), across: 16 * ROW_BYTES, stride: ROW_BYTES, step: TILE_PAIR_BYTES }
}

/// Right operand as written by [`interleave_pairs`]: 32 columns side by side.
pub fn paired_right(first: *const Bf16Row) -> RightOperand {
    RightOperand { first: first.cast(), across: ROW_BYTES, stride: 2 * ROW_BYTES, step: TILE_PAIR_BYTES }
}

/// Rounds to nearest, ties to even.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
pub fn round(low: __m512, high: __m512) -> __m512i {
    // SAFETY: both types have 512 bits, and every bit pattern is valid.
    unsafe { std::mem::transmute(_mm512_cvtne2ps_pbh(high, low)) }
}

/// Interleaves the values of two rows, column by column.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
pub fn interleave(even: __m512, odd: __m512) -> __m512i {
    const ORDER: [u16; 32] = {
        let (mut order, mut value) = ([0; 32], 0);
        while value < 32 {
            order[value as usize] = value / 2 + value % 2 * 16;
            value += 1;
        }
        order
    };
    // SAFETY: `ORDER` has 64 bytes.
    let order = unsafe { _mm512_loadu_si512(ORDER.as_ptr().cast()) };
    _mm512_permutexvar_epi16(order, round(even, odd))
}

/// Interleaves `n` pairs of rows of 32 values for a right operand. Input rows are `stride` bytes apart; each pair
/// yields two output rows.
///
/// # Safety
///
/// `2 * n` rows at `from` must be readable, and `2 * n` rows at `to` writable.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
pub unsafe fn interleave_pairs(from: *const u8, stride: usize, n: usize, to: *mut Bf16Row) {
    for pair in 0..n {
        // SAFETY: `pair < n`, so the caller guarantees that both input and both output rows are valid.
        unsafe {
            let even = _mm512_loadu_si512(from.add(2 * pair * stride).cast());
            let odd = _mm512_loadu_si512(from.add((2 * pair + 1) * stride).cast());
            _mm512_store_si512(to.add(2 * pair).cast(), _mm512_unpacklo_epi16(even, odd));
            _mm512_store_si512(to.add(2 * pair + 1).cast(), _mm512_unpackhi_epi16(even, odd));
        }
    }
}

/// Transposes 32 rows of 32 values, which are `stride` rows apart in `from`.
///
/// # Safety
///
/// The 32 rows at `from` must be readable, and 32 rows at `to` writable.
#[target_feature(enable = "avx512f,avx512bw")]
pub unsafe fn transpose(from: *const Bf16Row, stride: usize, to: *mut Bf16Row) {
    // First within blocks of eight rows: afterwards each quarter of a vector holds one column of the block.
    let mut eights = [[_mm512_setzero_si512(); 8]; 4];
    for (block, columns) in eights.iter_mut().enumerate() {
        // SAFETY: `8 * block + row < 32`, so the caller guarantees that the row is readable.
        let row = |row: usize| unsafe { _mm512_load_si512(from.add((8 * block + row) * stride).cast()) };
        let (mut twos, mut fours) = ([_mm512_setzero_si512(); 8], [_mm512_setzero_si512(); 8]);
        for pair in 0..4 {
            let (even, odd) = (row(2 * pair), row(2 * pair + 1));
            twos[2 * pair] = _mm512_unpacklo_epi16(even, odd);
            twos[2 * pair + 1] = _mm512_unpackhi_epi16(even, odd);
        }
        for half in 0..2 {
            for part in 0..2 {
                let (even, odd) = (twos[4 * half + part], twos[4 * half + 2 + part]);
                fours[4 * half + 2 * part] = _mm512_unpacklo_epi32(even, odd);
                fours[4 * half + 2 * part + 1] = _mm512_unpackhi_epi32(even, odd);
            }
        }
        for part in 0..4 {
            columns[2 * part] = _mm512_unpacklo_epi64(fours[part], fours[4 + part]);
            columns[2 * part + 1] = _mm512_unpackhi_epi64(fours[part], fours[4 + part]);
        }
    }
    for column in 0..8 {
        let [first, second, third, fourth] = &eights;
        let whole = quarters([first[column], second[column], third[column], fourth[column]]);
        for (quarter, whole) in whole.into_iter().enumerate() {
            // SAFETY: `8 * quarter + column < 32`, so the caller guarantees that the row is writable.
            unsafe { _mm512_store_si512(to.add(8 * quarter + column).cast(), whole) };
        }
    }
}

/// Transposes 16 rows of 16 four-byte values.
#[inline]
#[target_feature(enable = "avx512f")]
pub fn transpose_16(rows: &[__m512i; 16]) -> [__m512i; 16] {
    let mut fours = [[_mm512_setzero_si512(); 4]; 4];
    for (block, columns) in fours.iter_mut().enumerate() {
        let row = |row: usize| rows[4 * block + row];
        let (low, high) = (_mm512_unpacklo_epi32(row(0), row(1)), _mm512_unpackhi_epi32(row(0), row(1)));
        let (low_2, high_2) = (_mm512_unpacklo_epi32(row(2), row(3)), _mm512_unpackhi_epi32(row(2), row(3)));
        *columns = [
            _mm512_unpacklo_epi64(low, low_2),
            _mm512_unpackhi_epi64(low, low_2),
            _mm512_unpacklo_epi64(high, high_2),
            _mm512_unpackhi_epi64(high, high_2),
        ];
    }
    let mut transposed = [_mm512_setzero_si512(); 16];
    for column in 0..4 {
        let whole = quarters([fours[0][column], fours[1][column], fours[2][column], fours[3][column]]);
        for (quarter, whole) in whole.into_iter().enumerate() {
            transposed[4 * quarter + column] = whole;
        }
    }
    transposed
}

/// Transposes four vectors of four 128-bit lanes.
#[inline]
#[target_feature(enable = "avx512f")]
fn quarters(rows: [__m512i; 4]) -> [__m512i; 4] {
    let (even, even_2) = (_mm512_shuffle_i32x4(rows[0], rows[1], 0x88), _mm512_shuffle_i32x4(rows[2], rows[3], 0x88));
    let (odd, odd_2) = (_mm512_shuffle_i32x4(rows[0], rows[1], 0xdd), _mm512_shuffle_i32x4(rows[2], rows[3], 0xdd));
    [
        _mm512_shuffle_i32x4(even, even_2, 0x88),
        _mm512_shuffle_i32x4(odd, odd_2, 0x88),
        _mm512_shuffle_i32x4(even, even_2, 0xdd),
        _mm512_shuffle_i32x4(odd, odd_2, 0xdd),
    ]
}
