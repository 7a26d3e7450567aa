//! What the first convolution sees. Of three channels a pixel is no line; instead each row of the output gets a stack: for every column,
//! the nine values of three rows and three channels, so that the 27 values under a kernel lie one after the other, and those of the next
//! pixel nine values further. Left tiles are read from it with that stride: rows that overlap, no copy for each pixel.

use std::arch::x86_64::*;

use super::tile_layout::{Bf16Row, ZERO_ROW};
use crate::network::{IMAGE, SIDE};

/// From a pixel to the next, in bytes.
pub const PIXEL_STRIDE: usize = 9 * 2;
/// From a row to the next, in lines: 34 columns of nine values, and what is read beyond.
pub const ROWS_PER_IMAGE_ROW: usize = 10;

/// A row with a zero pixel left and right, in values.
const PADDED_ROW_VALUES: usize = (SIDE + 2) * 3;

/// Lines of a stack.
pub fn zeroed() -> Vec<Bf16Row> {
    vec![ZERO_ROW; SIDE * ROWS_PER_IMAGE_ROW]
}

/// The image in bfloat16 with a border of zeros.
pub struct PaddedImage(Vec<u16>);

impl PaddedImage {
    pub fn new() -> PaddedImage {
        // A value is read beyond the end, see below.
        PaddedImage(vec![0; PADDED_ROW_VALUES * (SIDE + 2) + 1])
    }

    #[target_feature(enable = "avx512f,avx512bf16")]
    pub fn fill_patches(&mut self, image: &[f32], patches: &mut [Bf16Row]) {
        assert!(image.len() == IMAGE && patches.len() == SIDE * ROWS_PER_IMAGE_ROW);
        for row in 0..SIDE {
            let from = &image[row * SIDE * 3..][..SIDE * 3];
            let to = &mut self.0[(row + 1) * PADDED_ROW_VALUES + 3..][..SIDE * 3];
            for (from, to) in from.as_chunks::<16>().0.iter().zip(to.as_chunks_mut::<16>().0) {
                // SAFETY: 16 values each; the same 256 bits.
                unsafe {
                    *to = std::mem::transmute::<__m256bh, [u16; 16]>(_mm512_cvtneps_pbh(_mm512_loadu_ps(from.as_ptr())))
                };
            }
        }
        let from = self.0.as_ptr();
        for row in 0..SIDE {
            let to = patches[row * ROWS_PER_IMAGE_ROW..][..ROWS_PER_IMAGE_ROW].as_mut_ptr().cast::<u16>();
            for column in 0..SIDE + 2 {
                for above in 0..3 {
                    // Four values instead of three: the fourth is overwritten by the next, or meets a kernel of zeros.
                    // SAFETY: the last values read are those of the border and one more, the last written number 306 of 320 in a row.
                    unsafe {
                        let three =
                            from.add((row + above) * PADDED_ROW_VALUES + column * 3).cast::<u64>().read_unaligned();
                        to.add(column * 9 + above * 3).cast::<u64>().write_unaligned(three);
                    }
                }
            }
        }
    }
}
