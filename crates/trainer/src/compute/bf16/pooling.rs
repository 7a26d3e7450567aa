//! Between sums and lines: what comes after a convolution forward (bias, ReLU, the maximum of each 2 x 2 window, dropout) and on the way back.
//! Entered by `forward` and `backward` with sums of 32 channels.

use std::arch::x86_64::*;

use super::tile_layout::{Bf16Row, round};
use crate::network::DROPOUTS;
use crate::random;

/// For one pixel after pooling and 32 channels: of the four pixels of the window, from left to right, then the row below, which one each
/// channel came from. No bit where nothing above zero was there, or dropout took it: no gradient goes back there.
pub type ArgmaxMasks = [u32; 4];

/// Bias and ReLU of as many pixels as there are sums; the lines of neighbours are `stride` apart.
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
pub fn bias_relu(sums: &[[f32; 32]], bias: &[f32], to: &mut [Bf16Row], stride: usize) {
    let bias = halves(bias.try_into().expect("32 channels"));
    for (sums, to) in sums.iter().zip(to.iter_mut().step_by(stride)) {
        let sums = halves(sums);
        // In this order, what is not a number stays none.
        let values = [0, 1].map(|half| _mm512_max_ps(_mm512_setzero_ps(), _mm512_add_ps(sums[half], bias[half])));
        store_row(to, round(values[0], values[1]));
    }
}

/// Back through ReLU: sums where the line forward was above zero, rounded, and added to those of the bias before that.
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

/// What a pooling needs beside the sums.
pub struct Pooling<'a> {
    pub bias: &'a [f32],
    /// By pixel, which of the 32 channels dropout leaves, and by what it multiplies them.
    pub keep_mask: &'a [u32],
    pub scale: f32,
}

/// Bias, ReLU, maximum and dropout of two rows to half as many pixels in one. The lines of neighbours are `stride` apart, as are winners
/// and what dropout leaves.
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
            // Above zero, or not a number: that is for the loss to show.
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

/// Back through dropout, maximum and ReLU: each gradient to the winner of its window, zero to the others. Gradients of the bias are added
/// up on the way. The lines of neighbours are `stride` apart, as are winners.
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
            // The bits of bfloat16 are the upper half of single precision.
            let value = _mm512_slli_epi32(_mm512_cvtepu16_epi32(values[half]), 16);
            _mm512_add_ps(biases[half], _mm512_castsi512_ps(value))
        });
    }
    store_halves(biases, bias);
}

/// Which values dropout of that layer leaves, 32 in a word. Without a key it leaves all.
#[target_feature(enable = "avx512f,avx512bw,avx512dq")]
pub fn draw_keep_mask(layer: usize, key: Option<u64>, keep_mask: &mut [u32]) {
    let Some(key) = key else {
        return keep_mask.fill(u32::MAX);
    };
    let least = _mm512_set1_epi8(DROPOUTS[layer].dropped as i8);
    let (keep_mask, rest) = keep_mask.as_chunks_mut::<2>();
    assert!(rest.is_empty(), "room for whole draws");
    for (index, keep_mask) in keep_mask.iter_mut().enumerate() {
        let words: [u64; 8] = std::array::from_fn(|word| random::word_at(key, (8 * index + word) as u64));
        // SAFETY: 64 bytes.
        let bytes = unsafe { _mm512_loadu_si512(words.as_ptr().cast()) };
        let mask = _mm512_cmpge_epu8_mask(bytes, least);
        *keep_mask = [mask as u32, (mask >> 32) as u32];
    }
}

/// Gradients of 32 channels, scaled and rounded.
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
pub fn scale_rounded(sums: &[[f32; 32]], scale: f32, to: &mut [Bf16Row]) {
    let scale = _mm512_set1_ps(scale);
    for (sums, to) in sums.iter().zip(to) {
        let sums = halves(sums);
        store_row(to, round(_mm512_mul_ps(sums[0], scale), _mm512_mul_ps(sums[1], scale)));
    }
}

/// By which what dropout leaves is multiplied, if there is dropout.
pub fn dropout_scale(layer: usize, drops: bool) -> f32 {
    if drops { DROPOUTS[layer].scale() } else { 1.0 }
}

#[inline]
#[target_feature(enable = "avx512f")]
pub fn halves(values: &[f32; 32]) -> [__m512; 2] {
    // SAFETY: twice 16 values.
    unsafe { [_mm512_loadu_ps(values.as_ptr()), _mm512_loadu_ps(values.as_ptr().add(16))] }
}

#[inline]
#[target_feature(enable = "avx512f")]
pub fn store_halves(halves: [__m512; 2], to: &mut [f32; 32]) {
    // SAFETY: twice 16 values.
    unsafe {
        _mm512_storeu_ps(to.as_mut_ptr(), halves[0]);
        _mm512_storeu_ps(to.as_mut_ptr().add(16), halves[1]);
    }
}

#[inline]
#[target_feature(enable = "avx512f")]
pub fn load_row(line: &Bf16Row) -> __m512i {
    // SAFETY: a line is 64 aligned bytes.
    unsafe { _mm512_load_si512((&raw const *line).cast()) }
}

#[inline]
#[target_feature(enable = "avx512f")]
pub fn store_row(line: &mut Bf16Row, values: __m512i) {
    // SAFETY: a line is 64 aligned bytes.
    unsafe { _mm512_store_si512((&raw mut *line).cast(), values) }
}
