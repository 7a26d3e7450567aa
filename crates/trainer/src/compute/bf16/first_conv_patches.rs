//! Input patches of the first convolution. A pixel of three channels does not fill a bf16 row. Instead, each row of the
//! output gets a patch row: for every column the nine values of three rows and three channels. The 27 values under a
//! kernel are then contiguous, and those of the next pixel start nine values later. Left tiles are read with that
//! stride, so rows overlap and nothing is copied per pixel.

use std::arch::x86_64::*;

use super::tile_layout::{Bf16Row, ZERO_ROW};
use crate::network::{IMAGE, SIDE};

/// Stride between pixels in bytes.
pub const PIXEL_STRIDE: usize = 9 * 2;
/// Stride between image rows in bf16 rows: 34 columns of nine values, and the values read beyond them.
pub const ROWS_PER_IMAGE_ROW: usize = 10;

/// Values of an image row with a zero pixel on each side.
const PADDED_ROW_VALUES: usize = (SIDE + 2) * 3;

/// Buffer for the patches of one image.
pub fn zeroed() -> Vec<Bf16Row> {
    vec![ZERO_ROW; SIDE * ROWS_PER_IMAGE_ROW]
}

/// The image in bfloat16 with a border of zeros.
pub struct PaddedImage(Vec<u16>);

impl PaddedImage {
    pub fn new() -> PaddedImage {
        // One value is read beyond the end, see `fill_patches`.
        PaddedImage(vec![0; PADDED_ROW_VALUES * (SIDE + 2) + 1])
    }

    #[target_feature(enable = "avx512f,avx512bf16")]
    pub fn fill_patches(&mut self, image: &[f32], patches: &mut [Bf16Row]) {
        assert!(image.len() == IMAGE && patches.len() == SIDE * ROWS_PER_IMAGE_ROW);
        for row in 0..SIDE {
            let from = &image[row * SIDE * 3..][..SIDE * 3];
            let to = &mut self.0[(row + 1) * PADDED_ROW_VALUES + 3..][..SIDE * 3];
            for (from, to) in from.as_chunks::<16>().0.iter().zip(to.as_chunks_mut::<16>().0) {
                // SAFETY: both have 16 values; the transmuted types have 256 bits each.
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
                    // Copies four values instead of three: the fourth is overwritten by the next copy, or multiplied
                    // with a kernel value of zero.
                    // SAFETY: the last read ends one value after the border, which the buffer has; the last write ends
                    // at value 307 of 320 in the row.
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
