//! The dense layer of 2304 x 512. At the tutorial's batches it is small in products and large in memory: its weights are read twice a step in
//! single precision and rounded where they are used, which costs less than writing them down rounded. Gradients of the kernel go straight
//! to where the caller wants them.
//!
//! Images are rows, rounded up to whole blocks of 32; what is computed for rows that are no images is forgotten, and their gradients are zero.

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
/// Lines of an image's inputs.
pub const INPUT_ROWS: usize = INPUTS / 32;
/// Tiles are 32 outputs wide.
pub const PANELS: usize = OUTPUTS / 32;
/// Items of the work forward: 128 outputs each, as weights come from far away and long rows come faster. Backward: 32 inputs each.
pub const SLICES: usize = PANELS / PANELS_PER_SLICE;
pub const BLOCKS: usize = INPUTS / 32;
/// Panels of a slice.
const PANELS_PER_SLICE: usize = 4;

/// What goes in, comes out, and comes back.
pub struct Dense {
    pub inputs: Vec<Bf16Row>,
    /// By image, which of the outputs dropout leaves.
    pub keep_masks: Vec<[u32; PANELS]>,
    /// After ReLU and dropout.
    pub outputs: Vec<f32>,
    /// Of the loss by the outputs before ReLU.
    pub gradients: Vec<f32>,
    /// The same as right operands: by 32 outputs, summed over images; and by 32 images, summed over outputs.
    pub over_images: Vec<Bf16Row>,
    pub over_outputs: Vec<Bf16Row>,
    /// Of the loss by the inputs, as dropout had scaled them.
    pub input_gradients: Vec<Bf16Row>,
    /// From a step to the next in operands of two tiles.
    pub steps: Vec<usize>,
}

/// Room a thread needs.
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

/// The way forward of so many blocks of 32 images.
pub struct Forward<'a> {
    pub blocks: usize,
    pub kernel: &'a [f32],
    pub bias: &'a [f32],
    pub scale: f32,
    pub inputs: &'a [Bf16Row],
    pub keep_masks: &'a [[u32; PANELS]],
    pub outputs: DisjointSlice<'a, f32>,
}

/// From 32 inputs to the next.
const INPUT_STEPS: [usize; INPUT_ROWS] = {
    let (mut steps, mut step) = ([0; INPUT_ROWS], 0);
    while step < INPUT_ROWS {
        steps[step] = step * ROW_BYTES;
        step += 1;
    }
    steps
};

impl Forward<'_> {
    /// Those 128 outputs of all images.
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
            // SAFETY: 32 rows of as many lines as steps, as many of the panel; the sums are this thread's.
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
                // SAFETY: these outputs belong to this panel.
                let to = unsafe { self.outputs.range_mut(first..first + 32) };
                for half in 0..2 {
                    let value = _mm512_max_ps(_mm512_setzero_ps(), _mm512_add_ps(sums[half], bias[half]));
                    let value = _mm512_maskz_mul_ps((keep_mask >> (16 * half)) as u16, value, scale);
                    // SAFETY: twice 16 outputs.
                    unsafe { _mm512_storeu_ps(to.as_mut_ptr().add(16 * half), value) };
                }
            }
        }
    }
}

/// Packs the gradients of 16 images, `half` of a block of `blocks`, as both right operands.
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
        // SAFETY: these lines belong to these images.
        let to = unsafe { over_outputs.range_mut(first..first + 16) };
        to.iter_mut().zip(transpose_16(&rounded)).for_each(|(to, line)| store_row(to, line));
        for tile in 0..2 {
            let first = (panel * blocks + block) * 32 + tile * 16 + half * 8;
            // SAFETY: these lines belong to these images.
            let to = unsafe { over_images.range_mut(first..first + 8) };
            for (pair, to) in to.iter_mut().enumerate() {
                store_row(to, interleave(at(2 * pair, tile), at(2 * pair + 1, tile)));
            }
        }
    }
}

/// The way back of so many blocks of 32 images.
pub struct Backward<'a> {
    pub blocks: usize,
    pub kernel: &'a [f32],
    /// Of the dropout before this layer.
    pub scale: f32,
    pub inputs: &'a [Bf16Row],
    pub over_images: &'a [Bf16Row],
    pub over_outputs: &'a [Bf16Row],
    pub steps: &'a [usize],
    pub input_gradients: DisjointSlice<'a, Bf16Row>,
    pub kernel_gradient: DisjointSlice<'a, f32>,
}

impl Backward<'_> {
    /// For 32 inputs: the gradients of their part of the kernel, and of themselves in all images.
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
            // SAFETY: one line of each of 32 images; room for 32.
            unsafe { transpose(images[inputs..].as_ptr(), INPUT_ROWS, to.as_mut_ptr()) };
        }
        // SAFETY: these rows of the kernel belong to these inputs.
        let to = unsafe { self.kernel_gradient.range_mut(at) };
        let make = |panel: usize, sums: &mut AccTile| {
            let right = &self.over_images[panel * self.blocks * 32..][..self.blocks * 32];
            let (left, steps) = (left_rows(scratch.transposed.as_ptr(), 1), &self.steps[..self.blocks]);
            // SAFETY: both operands have 32 lines a step.
            unsafe { tiles.multiply(left, steps, packed_right(right.as_ptr()), sums.output(false)) };
        };
        // Not stored there by the tiles: rows of the kernel all fall on the same few places of the nearest cache.
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
            // SAFETY: both operands have 32 lines for each of the panels.
            unsafe { tiles.multiply(left, steps, packed_right(right.as_ptr()), sums.output(false)) };
        };
        pipelined(&mut scratch.sums, self.blocks, make, |block, sums| self.store_input_gradients(inputs, block, sums));
    }

    /// Rows are inputs, columns images: a line of an image is a column.
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
                // SAFETY: this line of each image belongs to these inputs.
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
    // SAFETY: 16 values.
    unsafe { _mm512_loadu_ps(values.as_ptr()) }
}
