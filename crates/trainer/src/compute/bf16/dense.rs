//! The dense layer of 2304 x 512. At the tutorial's batch sizes it needs little arithmetic and much memory bandwidth:
//! its `f32` weights are read twice per step and rounded where they are used, which costs less than storing a rounded
//! copy. Kernel gradients are written directly to the caller's buffer.
//!
//! Matrix rows are images, padded to blocks of 32. Results for padding rows are ignored and their gradients are zero.

use std::arch::x86_64::*;
use std::ops::Range;

use super::amx::AmxTiles;
use super::pooling::{halves, store_halves, store_row};
use super::tile_layout::{
    AccTile, Bf16Row, ROW_BYTES, TILE_PAIR_BYTES, ZERO_ACC, ZERO_ROW, interleave, left_rows, packed_right, pipelined,
    round, transpose, transpose_16,
};
use crate::compute::disjoint_slice::DisjointSlice;

pub const INPUTS: usize = 2304;
pub const OUTPUTS: usize = 512;
/// Bf16 rows of one image's inputs.
pub const INPUT_ROWS: usize = INPUTS / 32;
/// Number of tile panels, each 32 outputs wide.
pub const PANELS: usize = OUTPUTS / 32;
/// Work items of the forward pass: 128 outputs each, since long rows of weights are fetched faster from memory. Items
/// of the backward pass: 32 inputs each.
pub const SLICES: usize = PANELS / PANELS_PER_SLICE;
pub const BLOCKS: usize = INPUTS / 32;
/// Panels per slice.
const PANELS_PER_SLICE: usize = 4;

/// Inputs, outputs and gradients of the layer.
pub struct Dense {
    pub inputs: Vec<Bf16Row>,
    /// Per image, a bit mask of the outputs that dropout keeps.
    pub keep_masks: Vec<[u32; PANELS]>,
    /// Outputs after ReLU and dropout.
    pub outputs: Vec<f32>,
    /// Gradients of the loss with respect to the outputs before ReLU.
    pub gradients: Vec<f32>,
    /// The same gradients as right operands: by 32 outputs, summed over images; and by 32 images, summed over outputs.
    pub over_images: Vec<Bf16Row>,
    pub over_outputs: Vec<Bf16Row>,
    /// Gradients of the loss with respect to the inputs, multiplied by the scale of the dropout before this layer.
    pub input_gradients: Vec<Bf16Row>,
    /// Byte offsets of the steps in operands of two tiles per step.
    pub steps: Vec<usize>,
}

/// Buffers of one thread.
pub struct Scratch {
    slice: Vec<Bf16Row>,
    kernel: Vec<Bf16Row>,
    transposed: Vec<Bf16Row>,
    sums: [AccTile; 2],
}

impl Dense {
    pub fn new(batch: usize) -> Dense {
        let images = batch.next_multiple_of(32);
        Dense {
            inputs: vec![ZERO_ROW; images * INPUT_ROWS],
            keep_masks: vec![[0; PANELS]; images],
            outputs: vec![0.0; images * OUTPUTS],
            gradients: vec![0.0; images * OUTPUTS],
            over_images: vec![ZERO_ROW; images * PANELS],
            over_outputs: vec![ZERO_ROW; images * PANELS],
            input_gradients: vec![ZERO_ROW; images * INPUT_ROWS],
            steps: (0..PANELS.max(images / 32)).map(|step| step * TILE_PAIR_BYTES).collect(),
        }
    }

    pub fn scratch(&self) -> Scratch {
        Scratch {
            slice: vec![ZERO_ROW; INPUTS * PANELS_PER_SLICE],
            kernel: vec![ZERO_ROW; OUTPUTS],
            transposed: vec![ZERO_ROW; self.keep_masks.len()],
            sums: [ZERO_ACC; 2],
        }
    }
}

/// Forward pass over `blocks` blocks of 32 images.
pub struct Forward<'a> {
    pub blocks: usize,
    pub kernel: &'a [f32],
    pub bias: &'a [f32],
    pub scale: f32,
    pub inputs: &'a [Bf16Row],
    pub keep_masks: &'a [[u32; PANELS]],
    pub outputs: DisjointSlice<'a, f32>,
}

/// Byte offsets of each group of 32 inputs within a row.
const INPUT_STEPS: [usize; INPUT_ROWS] = {
    let (mut steps, mut step) = ([0; INPUT_ROWS], 0);
    while step < INPUT_ROWS {
        steps[step] = step * ROW_BYTES;
        step += 1;
    }
    steps
};

impl Forward<'_> {
    /// Computes the 128 outputs of `slice` for all images.
    #[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
    pub fn slice(&self, tiles: &AmxTiles, slice: usize, scratch: &mut Scratch) {
        let kernel = &self.kernel[..INPUTS * OUTPUTS];
        for pair in 0..INPUTS / 2 {
            let (step, line) = (pair / 16, pair % 16);
            let at = 2 * pair * OUTPUTS + slice * PANELS_PER_SLICE * 32;
            for tile in 0..2 * PANELS_PER_SLICE {
                let (even, odd) = (load(kernel, at + 16 * tile), load(kernel, at + OUTPUTS + 16 * tile));
                let idx = tile / 2 * INPUTS + step * 32 + tile % 2 * 16 + line;
                store_row(&mut scratch.slice[idx], interleave(even, odd));
            }
        }
        for index in 0..PANELS_PER_SLICE {
            self.panel(
                tiles,
                slice * PANELS_PER_SLICE + index,
                &scratch.slice[index * INPUTS..][..INPUTS],
                &mut scratch.sums[0],
            );
        }
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
    fn panel(&self, tiles: &AmxTiles, panel: usize, kernel: &[Bf16Row], sums: &mut AccTile) {
        let bias = halves(self.bias[panel * 32..][..32].try_into().expect("32 outputs"));
        let scale = _mm512_set1_ps(self.scale);
        for (block, inputs) in self.inputs.chunks_exact(32 * INPUT_ROWS).take(self.blocks).enumerate() {
            // SAFETY: the inputs are 32 rows of as many bf16 rows as there are steps, and the panel has as many; `sums`
            // belongs to this thread.
            unsafe {
                tiles.multiply(
                    left_rows(inputs.as_ptr(), INPUT_ROWS),
                    &INPUT_STEPS,
                    packed_right(kernel.as_ptr()),
                    sums.output(false),
                );
            }
            for (row, sums) in sums.0.iter().enumerate() {
                let image = block * 32 + row;
                let (keep_mask, sums) = (self.keep_masks[image][panel], halves(sums));
                let first = image * OUTPUTS + panel * 32;
                // SAFETY: only this item writes the outputs of this panel.
                let to = unsafe { self.outputs.range_mut(first..first + 32) };
                for half in 0..2 {
                    let value = _mm512_max_ps(_mm512_setzero_ps(), _mm512_add_ps(sums[half], bias[half]));
                    let value = _mm512_maskz_mul_ps((keep_mask >> (16 * half)) as u16, value, scale);
                    // SAFETY: `to` has 32 values.
                    unsafe { _mm512_storeu_ps(to.as_mut_ptr().add(16 * half), value) };
                }
            }
        }
    }
}

/// Packs the gradients of 16 images (half `half` of block `block`) into both right operands.
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
pub fn pack_gradients(
    gradients: &[f32],
    (block, half): (usize, usize),
    blocks: usize,
    over_images: &DisjointSlice<'_, Bf16Row>,
    over_outputs: &DisjointSlice<'_, Bf16Row>,
) {
    let gradients = &gradients[..16 * OUTPUTS];
    for panel in 0..PANELS {
        let at = |image: usize, tile: usize| load(gradients, image * OUTPUTS + panel * 32 + 16 * tile);
        let mut rounded = [_mm512_setzero_si512(); 16];
        for (image, rounded) in rounded.iter_mut().enumerate() {
            *rounded = round(at(image, 0), at(image, 1));
        }
        let first = (block * PANELS + panel) * 32 + half * 16;
        // SAFETY: only the item of these images writes these rows.
        let to = unsafe { over_outputs.range_mut(first..first + 16) };
        to.iter_mut().zip(transpose_16(&rounded)).for_each(|(to, line)| store_row(to, line));
        for tile in 0..2 {
            let first = (panel * blocks + block) * 32 + tile * 16 + half * 8;
            // SAFETY: only the item of these images writes these rows.
            let to = unsafe { over_images.range_mut(first..first + 8) };
            for (pair, to) in to.iter_mut().enumerate() {
                store_row(to, interleave(at(2 * pair, tile), at(2 * pair + 1, tile)));
            }
        }
    }
}

/// Backward pass over `blocks` blocks of 32 images.
pub struct Backward<'a> {
    pub blocks: usize,
    pub kernel: &'a [f32],
    /// Scale of the dropout before this layer.
    pub scale: f32,
    pub inputs: &'a [Bf16Row],
    pub over_images: &'a [Bf16Row],
    pub over_outputs: &'a [Bf16Row],
    pub steps: &'a [usize],
    pub input_gradients: DisjointSlice<'a, Bf16Row>,
    pub kernel_gradient: DisjointSlice<'a, f32>,
}

impl Backward<'_> {
    /// For 32 inputs: the gradient of their kernel rows, and their own gradients in all images.
    #[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
    pub fn block(&self, tiles: &AmxTiles, inputs: usize, scratch: &mut Scratch) {
        let at = inputs * 32 * OUTPUTS..(inputs + 1) * 32 * OUTPUTS;
        self.input_gradients(tiles, inputs, at.clone(), scratch);
        self.kernel_gradient(tiles, inputs, at, scratch);
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
    fn kernel_gradient(&self, tiles: &AmxTiles, inputs: usize, at: Range<usize>, scratch: &mut Scratch) {
        let images = self.inputs.chunks_exact(32 * INPUT_ROWS).take(self.blocks);
        for (images, to) in images.zip(scratch.transposed.chunks_exact_mut(32)) {
            // SAFETY: reads one row of each of 32 images; `to` has 32 rows.
            unsafe { transpose(images[inputs..].as_ptr(), INPUT_ROWS, to.as_mut_ptr()) };
        }
        // SAFETY: only the item of these inputs writes these kernel rows.
        let to = unsafe { self.kernel_gradient.range_mut(at) };
        let make = |panel: usize, sums: &mut AccTile| {
            let right = &self.over_images[panel * self.blocks * 32..][..self.blocks * 32];
            let (left, steps) = (left_rows(scratch.transposed.as_ptr(), 1), &self.steps[..self.blocks]);
            // SAFETY: both operands have 32 rows per step; `sums` belongs to this thread.
            unsafe { tiles.multiply(left, steps, packed_right(right.as_ptr()), sums.output(false)) };
        };
        // AMX does not store directly to the kernel gradient: its rows map to the same few sets of the L1 cache.
        let finish = |panel: usize, sums: &AccTile| {
            for (to, sums) in to.chunks_exact_mut(OUTPUTS).zip(&sums.0) {
                store_halves(halves(sums), (&mut to[panel * 32..][..32]).try_into().expect("32 outputs"));
            }
        };
        pipelined(&mut scratch.sums, PANELS, make, finish);
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
    fn input_gradients(&self, tiles: &AmxTiles, inputs: usize, at: Range<usize>, scratch: &mut Scratch) {
        for (row, kernel) in self.kernel[at].chunks_exact(OUTPUTS).enumerate() {
            for panel in 0..PANELS {
                let line = round(load(kernel, panel * 32), load(kernel, panel * 32 + 16));
                store_row(&mut scratch.kernel[panel * 32 + row], line);
            }
        }
        let make = |block: usize, sums: &mut AccTile| {
            let right = &self.over_outputs[block * OUTPUTS..][..OUTPUTS];
            let (left, steps) = (left_rows(scratch.kernel.as_ptr(), 1), &self.steps[..PANELS]);
            // SAFETY: both operands have 32 rows per panel; `sums` belongs to this thread.
            unsafe { tiles.multiply(left, steps, packed_right(right.as_ptr()), sums.output(false)) };
        };
        pipelined(&mut scratch.sums, self.blocks, make, |block, sums| self.store_input_gradients(inputs, block, sums));
    }

    /// Tile rows are inputs and tile columns are images, so the block is transposed while it is stored.
    #[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
    fn store_input_gradients(&self, inputs: usize, block: usize, sums: &AccTile) {
        let scale = _mm512_set1_ps(self.scale);
        for half in 0..2 {
            let quarter = |rows: usize| {
                let mut values = [_mm512_setzero_si512(); 16];
                for (row, values) in values.iter_mut().enumerate() {
                    *values = _mm512_castps_si512(_mm512_mul_ps(halves(&sums.0[16 * rows + row])[half], scale));
                }
                transpose_16(&values)
            };
            for (image, (low, high)) in quarter(0).into_iter().zip(quarter(1)).enumerate() {
                let idx = (block * 32 + half * 16 + image) * INPUT_ROWS + inputs;
                // SAFETY: only the item of these inputs writes this row of each image.
                let to = unsafe { self.input_gradients.item_mut(idx) };
                store_row(to, round(_mm512_castsi512_ps(low), _mm512_castsi512_ps(high)));
            }
        }
    }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn load(values: &[f32], at: usize) -> __m512 {
    let values = &values[at..at + 16];
    // SAFETY: `values` has 16 values.
    unsafe { _mm512_loadu_ps(values.as_ptr()) }
}
