//! A slice that several threads write at the same time, each in ranges of its own.

use std::marker::PhantomData;
use std::ops::Range;

pub struct DisjointSlice<'a, T> {
    first: *mut T,
    len: usize,
    lifetime: PhantomData<&'a mut [T]>,
}

// SAFETY: it gives out the same ranges that splitting a `&mut [T]` would. Callers of `range_mut`, `item_mut` and
// `ptr_at` guarantee that no two ranges overlap.
unsafe impl<T: Send> Sync for DisjointSlice<'_, T> {}

impl<'a, T> DisjointSlice<'a, T> {
    pub fn new(whole: &'a mut [T]) -> DisjointSlice<'a, T> {
        DisjointSlice { first: whole.as_mut_ptr(), len: whole.len(), lifetime: PhantomData }
    }

    /// A range of the slice. Panics if it is out of bounds.
    ///
    /// # Safety
    ///
    /// No other reference to an overlapping range may exist while the returned one lives.
    #[expect(clippy::mut_from_ref, reason = "parts do not overlap")]
    pub unsafe fn range_mut(&self, range: Range<usize>) -> &mut [T] {
        assert!(range.start <= range.end && range.end <= self.len, "{range:?} of {}", self.len);
        // SAFETY: the range is inside of the slice (asserted above); the caller guarantees that no reference overlaps
        // it.
        unsafe { std::slice::from_raw_parts_mut(self.first.add(range.start), range.len()) }
    }

    /// One item of the slice. Panics if it is out of bounds.
    ///
    /// # Safety
    ///
    /// As for [`DisjointSlice::range_mut`].
    #[expect(clippy::mut_from_ref, reason = "parts do not overlap")]
    pub unsafe fn item_mut(&self, index: usize) -> &mut T {
        // SAFETY: the caller guarantees that no other reference to this item exists.
        unsafe { &mut self.range_mut(index..index + 1)[0] }
    }

    /// Pointer to an item, for ranges that are not contiguous. Dereferencing it has the obligations of
    /// [`DisjointSlice::range_mut`].
    pub fn ptr_at(&self, index: usize) -> *mut T {
        assert!(index < self.len);
        self.first.wrapping_add(index)
    }
}
