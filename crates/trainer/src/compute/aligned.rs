//! Memory that vectors are loaded from: it begins on a cache line, so that no vector lies on two.

use std::ops::{Deref, DerefMut};

#[derive(Clone, Copy)]
#[repr(align(64))]
struct Line(#[expect(dead_code, reason = "seen as numbers only")] [f32; 16]);

/// Numbers, zeros at first.
pub struct Aligned {
    lines: Vec<Line>,
    len: usize,
}

impl Aligned {
    pub fn zeros(len: usize) -> Aligned {
        Aligned { lines: vec![Line([0.0; 16]); len.div_ceil(16)], len }
    }
}

impl Deref for Aligned {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        // SAFETY: lines are 16 numbers each with nothing between them, and there are enough of them.
        unsafe { std::slice::from_raw_parts(self.lines.as_ptr().cast(), self.len) }
    }
}

impl DerefMut for Aligned {
    fn deref_mut(&mut self) -> &mut [f32] {
        // SAFETY: as above; the lines are borrowed as long as the numbers.
        unsafe { std::slice::from_raw_parts_mut(self.lines.as_mut_ptr().cast(), self.len) }
    }
}

const _: () = assert!(size_of::<Line>() == 64);
