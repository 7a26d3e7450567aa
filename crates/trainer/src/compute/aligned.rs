//! Memory that vectors are loaded from: it begins on a cache line, so that no vector lies on two. A rank's own, or of a yard, where the other ranks
//! of its host see it too.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use corro_collectives::optimizer::work_stealing::TaskPool;

#[derive(Clone, Copy)]
#[repr(align(64))]
struct Line(#[expect(dead_code, reason = "seen as numbers only")] [f32; 16]);

const LINE: usize = size_of::<Line>();

/// Numbers, zeros at first.
pub struct Aligned<T: Plain = f32> {
    at: *mut T,
    len: usize,
    _kept: Kept,
}

/// What keeps the memory where it is.
enum Kept {
    Own { _lines: Vec<Line> },
    Common { _yard: Arc<TaskPool> },
}

/// Of such, zero bytes are a value.
pub trait Plain: Copy + 'static {}
impl Plain for f32 {}
impl Plain for [u16; 4] {}

// SAFETY: the numbers are this value's alone, or, in a yard, whoever touches them has taken the task for it.
unsafe impl<T: Plain> Send for Aligned<T> {}
// SAFETY: as above.
unsafe impl<T: Plain> Sync for Aligned<T> {}

impl<T: Plain> Aligned<T> {
    pub fn zeros(len: usize) -> Aligned<T> {
        let mut lines = vec![Line([0.0; 16]); (len * size_of::<T>()).div_ceil(LINE)];
        Aligned { at: lines.as_mut_ptr().cast(), len, _kept: Kept::Own { _lines: lines } }
    }
}

impl<T: Plain> Deref for Aligned<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: so many numbers are there, and stay as long as this does.
        unsafe { std::slice::from_raw_parts(self.at, self.len) }
    }
}

impl<T: Plain> DerefMut for Aligned<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts_mut(self.at, self.len) }
    }
}

const _: () = assert!(LINE == 64);

/// Where a rank takes such memory from, piece by piece. Whoever takes the same pieces of the same rank's part of a yard sees the same numbers.
#[derive(Default)]
pub struct Shelf {
    from: Source,
    used: usize,
}

#[derive(Default)]
enum Source {
    /// This rank's own memory.
    #[default]
    Own,
    /// The part of a rank.
    Yard(Arc<TaskPool>, usize),
    /// Nowhere: it is only counted.
    Nowhere,
}

impl Shelf {
    pub fn of(yard: &Arc<TaskPool>, rank: usize) -> Shelf {
        Shelf { from: Source::Yard(yard.clone(), rank), used: 0 }
    }

    /// What is taken from it is empty.
    pub fn that_counts() -> Shelf {
        Shelf { from: Source::Nowhere, used: 0 }
    }

    pub fn take<T: Plain>(&mut self, len: usize) -> Aligned<T> {
        let (first, n_bytes) = (self.used, (len * size_of::<T>()).next_multiple_of(LINE));
        self.used += n_bytes;
        match &self.from {
            Source::Own => Aligned::zeros(len),
            Source::Nowhere => Aligned::zeros(0),
            Source::Yard(yard, rank) => {
                let at = yard.slice_ptr(*rank, first, n_bytes).cast();
                Aligned { at, len, _kept: Kept::Common { _yard: yard.clone() } }
            }
        }
    }

    /// Bytes that were taken.
    pub fn used(&self) -> usize {
        self.used
    }
}
