//! Buffers aligned to cache lines, so that no vector load crosses one, and a bump arena that allocates them. The memory
//! is on the heap, or in shared memory that the other ranks of the host map too.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use corro_collectives::optimizer::work_stealing::TaskPool;

#[derive(Clone, Copy)]
#[repr(align(64))]
struct CacheLine(#[expect(dead_code, reason = "seen as numbers only")] [f32; 16]);

const CACHE_LINE_BYTES: usize = size_of::<CacheLine>();

/// A buffer of `len` values, initially zero.
pub struct AlignedBuf<T: Zeroable = f32> {
    ptr: *mut T,
    len: usize,
    _backing: Backing,
}

/// Owner of the memory; keeps it alive.
enum Backing {
    Heap { _lines: Vec<CacheLine> },
    Shared { _task_pool: Arc<TaskPool> },
}

/// Types for which all-zero bytes are a valid value.
pub trait Zeroable: Copy + 'static {}
impl Zeroable for f32 {}
impl Zeroable for [u16; 4] {}

// SAFETY: a heap buffer is owned by this value alone. In shared memory, a thread accesses a range only after claiming the task
// that covers it.
unsafe impl<T: Zeroable> Send for AlignedBuf<T> {}
// SAFETY: as for `Send`: shared access goes through claimed tasks only.
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
        // SAFETY: `ptr` points to `len` initialised values, and `_backing` keeps them alive as long as `self`.
        unsafe { std::slice::from_raw_parts(self.ptr, self.len) }
    }
}

impl<T: Zeroable> DerefMut for AlignedBuf<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as in `deref`; `&mut self` makes the access exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.ptr, self.len) }
    }
}

const _: () = assert!(CACHE_LINE_BYTES == 64);

/// Bump allocator for aligned buffers. Ranks that make the same allocations in the same order from one rank's shared
/// memory get the same buffers, which is how work stealing finds another rank's data.
#[derive(Default)]
pub struct BumpArena {
    from: Source,
    used: usize,
}

#[derive(Default)]
enum Source {
    /// Heap memory of this process.
    #[default]
    Heap,
    /// The shared memory of the given rank.
    SharedMemory(Arc<TaskPool>, usize),
    /// Allocates nothing and only counts bytes.
    CountOnly,
}

impl BumpArena {
    pub fn in_shared_memory(task_pool: &Arc<TaskPool>, rank: usize) -> BumpArena {
        BumpArena { from: Source::SharedMemory(task_pool.clone(), rank), used: 0 }
    }

    /// An arena that only counts; its buffers are empty.
    pub fn counting() -> BumpArena {
        BumpArena { from: Source::CountOnly, used: 0 }
    }

    pub fn alloc<T: Zeroable>(&mut self, len: usize) -> AlignedBuf<T> {
        let (first, n_bytes) = (self.used, (len * size_of::<T>()).next_multiple_of(CACHE_LINE_BYTES));
        self.used += n_bytes;
        match &self.from {
            Source::Heap => AlignedBuf::zeros(len),
            Source::CountOnly => AlignedBuf::zeros(0),
            Source::SharedMemory(task_pool, rank) => {
                let ptr = task_pool.slice_ptr(*rank, first, n_bytes).cast();
                AlignedBuf { ptr, len, _backing: Backing::Shared { _task_pool: task_pool.clone() } }
            }
        }
    }

    /// Bytes allocated so far.
    pub fn used(&self) -> usize {
        self.used
    }
}
