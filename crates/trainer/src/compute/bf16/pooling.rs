//! Elementwise operations after a convolution, forward and backward: bias, ReLU, 2 x 2 max pooling, dropout. Input is
//! accumulator tiles of 32 channels, output is bf16 rows.

use std::arch::x86_64::*;

use super::tile_layout::{Bf16Row, round};
use crate::network::DROPOUTS;
use crate::random;

/// For one pixel after pooling and 32 channels: for each of the four pixels of the window (left to right, top row
/// first) a mask of the channels whose maximum it is. A channel has no bit if its maximum was not positive or was
/// dropped; no gradient flows there.
pub type ArgmaxMasks = [u32; 4];

/// Bias and ReLU for as many pixels as there are sums. Rows of adjacent pixels are `stride` apart.
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
pub fn bias_relu(sums: &[[f32; 32]], bias: &[f32], to: &mut [Bf16Row], stride: usize) {
    let bias = halves(bias.try_into().expect("32 channels"));
    for (sums, to) in sums.iter().zip(to.iter_mut().step_by(stride)) {
        let sums = halves(sums);
        // With the operands in this order, `max` propagates NaN.
        let values = [0, 1].map(|half| _mm512_max_ps(_mm512_setzero_ps(), _mm512_add_ps(sums[half], bias[half])));
        store_row(to, round(values[0], values[1]));
    }
}

/// Gradient of ReLU: passes sums where the forward activation was positive, rounded to bf16. The bias gradient
/// accumulates them before rounding.
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
pub fn relu_backward(sums: &[[f32; 32]], forward: &[Bf16Row], bias: &mut [f32], to: &mut [Bf16Row], stride: usize) {
    let bias: &mut [f32; 32] = bias.try_into().expect("32 channels");
    let mut biases = halves(bias);
    let forward = forward.iter().step_by(stride);
    for ((sums, forward), to) in sums.iter().zip(forward).zip(to.iter_mut().step_by(stride)) {
        let forward = load_row(forward);
        let alive = _mm512_test_epi16_mask(forward, forward);
        let sums = halves(sums);
        let values = [0, 1].map(|half| _mm512_maskz_mov_ps((alive >> (16 * half)) as u16, sums[half]));
        biases = [0, 1].map(|half| _mm512_add_ps(biases[half], values[half]));
        store_row(to, round(values[0], values[1]));
    }
    store_halves(biases, bias);
}

/// Parameters of a pooling.
pub struct Pooling<'a> {
    pub bias: &'a [f32],
    /// Per pixel, the channels that dropout keeps; `scale` multiplies them.
    pub keep_mask: &'a [u32],
    pub scale: f32,
}

/// Bias, ReLU, max pooling and dropout of two rows into one row of half as many pixels. Rows of adjacent pixels are
/// `stride` apart, as are argmax and keep masks.
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
pub fn pool(
    top: &[[f32; 32]],
    bottom: &[[f32; 32]],
    pooling: &Pooling<'_>,
    to: &mut [Bf16Row],
    argmax: &mut [ArgmaxMasks],
    stride: usize,
) {
    let bias = halves(pooling.bias.try_into().expect("32 channels"));
    let scale = _mm512_set1_ps(pooling.scale);
    let windows = top.as_chunks::<2>().0.iter().zip(bottom.as_chunks::<2>().0);
    let outputs = to.iter_mut().step_by(stride).zip(argmax.iter_mut().step_by(stride));
    for (((top, bottom), (to, argmax)), keep_mask) in windows.zip(outputs).zip(pooling.keep_mask.iter().step_by(stride))
    {
        let window = [&top[0], &top[1], &bottom[0], &bottom[1]].map(|pixel| halves(pixel));
        let mut values = bias;
        *argmax = [0; 4];
        for half in 0..2 {
            let high = |one: usize, other: usize| _mm512_max_ps(window[one][half], window[other][half]);
            let highest = _mm512_max_ps(high(0, 1), high(2, 3));
            let value = _mm512_add_ps(highest, bias[half]);
            // Positive or NaN: NaN must reach the loss.
            let mut left =
                _mm512_cmp_ps_mask(value, _mm512_setzero_ps(), _CMP_NLE_UQ) & (keep_mask >> (16 * half)) as u16;
            values[half] = _mm512_maskz_mul_ps(left, value, scale);
            for (corner, argmax) in argmax.iter_mut().enumerate() {
                let wins = _mm512_mask_cmp_ps_mask(left, window[corner][half], highest, _CMP_EQ_OQ);
                left &= !wins;
                *argmax |= u32::from(wins) << (16 * half);
            }
        }
        store_row(to, round(values[0], values[1]));
    }
}

/// Gradient of dropout, max pooling and ReLU: each gradient goes to the maximum of its window, the other pixels get
/// zero. Accumulates the bias gradient. Rows of adjacent pixels are `stride` apart, as are argmax masks.
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
pub fn unpool(
    gradients: &[Bf16Row],
    argmax: &[ArgmaxMasks],
    bias: &mut [f32],
    top: &mut [Bf16Row],
    bottom: &mut [Bf16Row],
    stride: usize,
) {
    let bias: &mut [f32; 32] = bias.try_into().expect("32 channels");
    let mut biases = halves(bias);
    let pixels = gradients.iter().step_by(stride).zip(argmax.iter().step_by(stride));
    for (pixel, (gradient, argmax)) in pixels.enumerate() {
        let (at, gradient) = (2 * pixel * stride, load_row(gradient));
        let won = |corner: usize| _mm512_maskz_mov_epi16(argmax[corner], gradient);
        store_row(&mut top[at], won(0));
        store_row(&mut top[at + stride], won(1));
        store_row(&mut bottom[at], won(2));
        store_row(&mut bottom[at + stride], won(3));
        let any = _mm512_maskz_mov_epi16(argmax[0] | argmax[1] | argmax[2] | argmax[3], gradient);
        let values = [_mm512_castsi512_si256(any), _mm512_extracti64x4_epi64(any, 1)];
        biases = [0, 1].map(|half| {
            // A bfloat16 is the upper half of an `f32`.
            let value = _mm512_slli_epi32(_mm512_cvtepu16_epi32(values[half]), 16);
            _mm512_add_ps(biases[half], _mm512_castsi512_ps(value))
        });
    }
    store_halves(biases, bias);
}

/// Draws the keep mask of a dropout layer, 32 values per word. Without a key all values are kept.
#[target_feature(enable = "avx512f,avx512bw,avx512dq")]
pub fn draw_keep_mask(layer: usize, key: Option<u64>, keep_mask: &mut [u32]) {
    let Some(key) = key else {
        return keep_mask.fill(u32::MAX);
    };
    let least = _mm512_set1_epi8(DROPOUTS[layer].dropped as i8);
    let (keep_mask, rest) = keep_mask.as_chunks_mut::<2>();
    assert!(rest.is_empty(), "masks are drawn in pairs");
    for (index, keep_mask) in keep_mask.iter_mut().enumerate() {
        let words: [u64; 8] = std::array::from_fn(|word| random::word_at(key, (8 * index + word) as u64));
        // SAFETY: `words` has 64 bytes.
        let bytes = unsafe { _mm512_loadu_si512(words.as_ptr().cast()) };
        let mask = _mm512_cmpge_epu8_mask(bytes, least);
        *keep_mask = [mask as u32, (mask >> 32) as u32];
    }
}

/// Gradients of 32 channels, scaled and rounded to bf16.
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
pub fn scale_rounded(sums: &[[f32; 32]], scale: f32, to: &mut [Bf16Row]) {
    let scale = _mm512_set1_ps(scale);
    for (sums, to) in sums.iter().zip(to) {
        let sums = halves(sums);
        store_row(to, round(_mm512_mul_ps(sums[0], scale), _mm512_mul_ps(sums[1], scale)));
    }
}

/// Factor for the values that a dropout layer keeps; 1 without dropout.
pub fn dropout_scale(layer: usize, drops: bool) -> f32 {
    if drops { DROPOUTS[layer].scale() } else { 1.0 }
}

#[inline]
#[target_feature(enable = "avx512f")]
pub fn halves(values: &[f32; 32]) -> [__m512; 2] {
    // SAFETY: `values` has 32 values.
    unsafe { [_mm512_loadu_ps(values.as_ptr()), _mm512_loadu_ps(values.as_ptr().add(16))] }
}

#[inline]
#[target_feature(enable = "avx512f")]
pub fn store_halves(halves: [__m512; 2], to: &mut [f32; 32]) {
    // SAFETY: `to` has 32 values.
    unsafe {
        _mm512_storeu_ps(to.as_mut_ptr(), halves[0]);
        _mm512_storeu_ps(to.as_mut_ptr().add(16), halves[1]);
    }
}

#[inline]
#[target_feature(enable = "avx512f")]
pub fn load_row(line: &Bf16Row) -> __m512i {
    // SAFETY: a `Bf16Row` is 64 bytes with alignment 64.
    unsafe { _mm512_load_si512((&raw const *line).cast()) }
}

#[inline]
#[target_feature(enable = "avx512f")]
pub fn store_row(line: &mut Bf16Row, values: __m512i) {
    // SAFETY: a `Bf16Row` is 64 bytes with alignment 64.
    unsafe { _mm512_store_si512((&raw mut *line).cast(), values) }
}
