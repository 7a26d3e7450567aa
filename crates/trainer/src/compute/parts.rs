//! A slice of which threads write different parts at the same time.

use std::marker::PhantomData;
use std::ops::Range;

pub struct Parts<'a, T> {
    first: *mut T,
    len: usize,
    whole: PhantomData<&'a mut [T]>,
}

// SAFETY: what it hands out is what a `&mut [T]` split in parts would be; that no two of them overlap is what the users of `part`, `one` and
// `at` answer for.
unsafe impl<T: Send> Sync for Parts<'_, T> {}

impl<'a, T> Parts<'a, T> {
    pub fn of(whole: &'a mut [T]) -> Parts<'a, T> {
        Parts { first: whole.as_mut_ptr(), len: whole.len(), whole: PhantomData }
    }

    /// # Safety
    /// As long as the part lives, nobody has another one that overlaps it.
    #[expect(clippy::mut_from_ref, reason = "parts do not overlap")]
    pub unsafe fn part(&self, range: Range<usize>) -> &mut [T] {
        assert!(range.start <= range.end && range.end <= self.len, "{range:?} of {}", self.len);
        // SAFETY: inside the slice, and nobody else's, says the caller.
        unsafe { std::slice::from_raw_parts_mut(self.first.add(range.start), range.len()) }
    }

    /// # Safety
    /// As for [`Parts::part`].
    #[expect(clippy::mut_from_ref, reason = "parts do not overlap")]
    pub unsafe fn one(&self, index: usize) -> &mut T {
        // SAFETY: the caller's promise.
        unsafe { &mut self.part(index..index + 1)[0] }
    }

    /// For parts that are not in one piece.
    pub fn at(&self, index: usize) -> *mut T {
        assert!(index < self.len);
        self.first.wrapping_add(index)
    }
}
