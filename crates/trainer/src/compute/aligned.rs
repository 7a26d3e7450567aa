//! Memory that vectors are loaded from: it begins on a cache line, so that no vector lies on two. A rank's own, or of a yard, where the other ranks
//! of its host see it too.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use corro_collectives::optimizer::work_stealing::TaskPool;

#[derive(Clone, Copy)]
#[repr(align(64))]
struct CacheLine(#[expect(dead_code, reason = "seen as numbers only")] [f32; 16]);

const CACHE_LINE_BYTES: usize = size_of::<CacheLine>();

/// Numbers, zeros at first.
pub struct AlignedBuf<T: Zeroable = f32> {
    ptr: *mut T,
    len: usize,
    _backing: Backing,
}

/// What keeps the memory where it is.
enum Backing {
    Heap { _lines: Vec<CacheLine> },
    Shared { _yard: Arc<TaskPool> },
}

/// Of such, zero bytes are a value.
pub trait Zeroable: Copy + 'static {}
impl Zeroable for f32 {}
impl Zeroable for [u16; 4] {}

// SAFETY: the numbers are this value's alone, or, in a yard, whoever touches them has taken the task for it.
unsafe impl<T: Zeroable> Send for AlignedBuf<T> {}
// SAFETY: as above.
unsafe impl<T: Zeroable> Sync for AlignedBuf<T> {}

impl<T: Zeroable> AlignedBuf<T> {
    pub fn zeros(len: usize) -> AlignedBuf<T> {
        let mut lines = vec![CacheLine([0.0; 16]); (len * size_of::<T>()).div_ceil(CACHE_LINE_BYTES)];
        AlignedBuf { ptr: lines.as_mut_ptr().cast(), len, _backing: Backing::Heap { _lines: lines } }
    }
}

impl<T: Zeroable> Deref for AlignedBuf<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: so many numbers are there, and stay as long as this does.
        unsafe { std::slice::from_raw_parts(self.ptr, self.len) }
    }
}

impl<T: Zeroable> DerefMut for AlignedBuf<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts_mut(self.ptr, self.len) }
    }
}

const _: () = assert!(CACHE_LINE_BYTES == 64);

/// Where a rank takes such memory from, piece by piece. Whoever takes the same pieces of the same rank's part of a yard sees the same numbers.
#[derive(Default)]
pub struct BumpArena {
    from: Source,
    used: usize,
}

#[derive(Default)]
enum Source {
    /// This rank's own memory.
    #[default]
    Heap,
    /// The part of a rank.
    SharedMemory(Arc<TaskPool>, usize),
    /// CountOnly: it is only counted.
    CountOnly,
}

impl BumpArena {
    pub fn in_shared_memory(yard: &Arc<TaskPool>, rank: usize) -> BumpArena {
        BumpArena { from: Source::SharedMemory(yard.clone(), rank), used: 0 }
    }

    /// What is taken from it is empty.
    pub fn counting() -> BumpArena {
        BumpArena { from: Source::CountOnly, used: 0 }
    }

    pub fn alloc<T: Zeroable>(&mut self, len: usize) -> AlignedBuf<T> {
        let (first, n_bytes) = (self.used, (len * size_of::<T>()).next_multiple_of(CACHE_LINE_BYTES));
        self.used += n_bytes;
        match &self.from {
            Source::Heap => AlignedBuf::zeros(len),
            Source::CountOnly => AlignedBuf::zeros(0),
            Source::SharedMemory(yard, rank) => {
                let ptr = yard.slice_ptr(*rank, first, n_bytes).cast();
                AlignedBuf { ptr, len, _backing: Backing::Shared { _yard: yard.clone() } }
            }
        }
    }

    /// Bytes that were taken.
    pub fn used(&self) -> usize {
        self.used
    }
}
