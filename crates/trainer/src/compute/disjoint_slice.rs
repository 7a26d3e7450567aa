//! A slice of which threads write different parts at the same time.

use std::marker::PhantomData;
use std::ops::Range;

pub struct DisjointSlice<'a, T> {
    first: *mut T,
    len: usize,
    lifetime: PhantomData<&'a mut [T]>,
}

// SAFETY: what it hands out is what a `&mut [T]` split in parts would be; that no two of them overlap is what the users of `part`, `one` and
// `at` answer for.
unsafe impl<T: Send> Sync for DisjointSlice<'_, T> {}

impl<'a, T> DisjointSlice<'a, T> {
    pub fn new(whole: &'a mut [T]) -> DisjointSlice<'a, T> {
        DisjointSlice { first: whole.as_mut_ptr(), len: whole.len(), lifetime: PhantomData }
    }

    /// # Safety
    /// As long as the part lives, nobody has another one that overlaps it.
    #[expect(clippy::mut_from_ref, reason = "parts do not overlap")]
    pub unsafe fn range_mut(&self, range: Range<usize>) -> &mut [T] {
        assert!(range.start <= range.end && range.end <= self.len, "{range:?} of {}", self.len);
        // SAFETY: inside the slice, and nobody else's, says the caller.
        unsafe { std::slice::from_raw_parts_mut(self.first.add(range.start), range.len()) }
    }

    /// # Safety
    /// As for [`DisjointSlice::range_mut`].
    #[expect(clippy::mut_from_ref, reason = "parts do not overlap")]
    pub unsafe fn item_mut(&self, index: usize) -> &mut T {
        // SAFETY: the caller's promise.
        unsafe { &mut self.range_mut(index..index + 1)[0] }
    }

    /// For parts that are not in one piece.
    pub fn ptr_at(&self, index: usize) -> *mut T {
        assert!(index < self.len);
        self.first.wrapping_add(index)
    }
}
