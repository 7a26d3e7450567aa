//! Folds several buffers into one, in a fixed order. The communicator's algorithms enter through `reduce`.
//!
//! The buffers are walked together in steps of a few cache lines: the step's part of each source is combined in
//! registers, in the order of the sources, and stored at the end. So the result is written once and never read, and
//! may lie exactly where one of the sources lies. Sums of floats take four sources at a time, the rest two: each such
//! loop is compiled for each instruction set, and the rest is too rare for more. What remains is folded in groups,
//! block by block, through a scratch block that stays in the first cache.
//!
//! Never makes a reference to the memory it is given: that may be shared with other processes.

use half::{bf16, f16};

use super::{
    isa::{Isa, Kernel, Machine, dispatch},
    number::{Max, Min, Number, Operation, Product, Sum, Truth},
};
use crate::{Combine, Dtype};

/// Most sources that are walked together.
const AT_ONCE: usize = 4;

/// The scratch block of a fold of many.
const BLOCK: usize = 8 << 10;

/// A vector register, or several.
const PACK: usize = 64;

/// `out` = `sources[0]` op `sources[1]` op …, stored in `also` too if given.
///
/// # Safety
/// `n_bytes` can be read at each source and written at `out` and `also`, and nobody else writes there meanwhile.
/// `out` and `also` overlap neither each other nor a source, but each may be exactly the place of one source.
#[inline]
pub(super) unsafe fn fold(
    isa: Isa,
    dtype: Dtype,
    op: Combine,
    out: *mut u8,
    also: Option<*mut u8>,
    sources: &[*const u8],
    n_bytes: usize,
) {
    // SAFETY: what the caller promised; in `fold_many` the scratch is apart from everything.
    unsafe {
        match *sources {
            [] => panic!("a fold of nothing has no result"),
            [one] => copy(out, also, one, n_bytes),
            [a, b] => choose(isa, dtype, op, Together { out, also, sources: [a, b], n_bytes }),
            [a, b, c] if at_once(dtype, op) == AT_ONCE => {
                choose_sum(isa, dtype, Together { out, also, sources: [a, b, c], n_bytes })
            }
            [a, b, c, d] if at_once(dtype, op) == AT_ONCE => {
                choose_sum(isa, dtype, Together { out, also, sources: [a, b, c, d], n_bytes })
            }
            _ => fold_many(isa, dtype, op, out, also, sources, n_bytes),
        }
    }
}

fn at_once(dtype: Dtype, op: Combine) -> usize {
    if dtype.is_float() && op == Combine::Sum { AT_ONCE } else { 2 }
}

/// # Safety
/// As [`fold`].
unsafe fn copy(out: *mut u8, also: Option<*mut u8>, source: *const u8, n_bytes: usize) {
    for place in [Some(out), also].into_iter().flatten() {
        // SAFETY: the caller's promise; `copy` allows the place to be the source.
        unsafe { std::ptr::copy(source, place, n_bytes) };
    }
}

/// # Safety
/// As [`fold`].
unsafe fn fold_many(
    isa: Isa,
    dtype: Dtype,
    op: Combine,
    out: *mut u8,
    also: Option<*mut u8>,
    sources: &[*const u8],
    n_bytes: usize,
) {
    let at_once = at_once(dtype, op);
    let mut scratch = std::mem::MaybeUninit::<[u8; BLOCK]>::uninit();
    let scratch: *mut u8 = scratch.as_mut_ptr().cast();
    for start in (0..n_bytes).step_by(BLOCK) {
        let n_block = BLOCK.min(n_bytes - start);
        // What is folded so far comes first, then the next sources: the order is kept.
        let mut group = [std::ptr::null(); AT_ONCE];
        let mut n_group = 0;
        for (source_idx, source) in sources.iter().enumerate() {
            group[n_group] = source.wrapping_add(start);
            n_group += 1;
            let last = source_idx + 1 == sources.len();
            if last {
                let (out, also) = (out.wrapping_add(start), also.map(|also| also.wrapping_add(start)));
                // SAFETY: a block within the caller's buffers. All other sources' blocks have been read.
                unsafe { fold(isa, dtype, op, out, also, &group[..n_group], n_block) };
            } else if n_group == at_once {
                // SAFETY: the scratch is ours, holds a block, and is exactly the first of the group or no part of it.
                unsafe { fold(isa, dtype, op, scratch, None, &group[..n_group], n_block) };
                group[0] = scratch;
                n_group = 1;
            }
        }
    }
}

/// A fold of few sources that awaits its dtype and operation.
struct Together<const K: usize> {
    out: *mut u8,
    also: Option<*mut u8>,
    sources: [*const u8; K],
    n_bytes: usize,
}

/// # Safety
/// As [`fold`].
#[inline(always)]
unsafe fn choose(isa: Isa, dtype: Dtype, op: Combine, fold: Together<2>) {
    // SAFETY: the caller's promise is handed on.
    unsafe {
        match dtype {
            // Signs matter to comparisons only.
            Dtype::I8 if matches!(op, Combine::Min | Combine::Max) => choose_op::<i8, 64>(isa, op, fold),
            Dtype::U8 | Dtype::I8 => choose_op::<u8, 64>(isa, op, fold),
            Dtype::I16 if matches!(op, Combine::Min | Combine::Max) => choose_op::<i16, 32>(isa, op, fold),
            Dtype::U16 | Dtype::I16 => choose_op::<u16, 32>(isa, op, fold),
            Dtype::I32 => choose_op::<i32, 16>(isa, op, fold),
            Dtype::I64 => choose_op::<i64, 8>(isa, op, fold),
            Dtype::F16 => choose_op::<f16, 32>(isa, op, fold),
            Dtype::Bf16 => choose_op::<bf16, 32>(isa, op, fold),
            Dtype::F32 => choose_op::<f32, 16>(isa, op, fold),
            Dtype::F64 => choose_op::<f64, 8>(isa, op, fold),
            Dtype::Bool => choose_op::<Truth, 64>(isa, op, fold),
        }
    }
}

/// # Safety
/// As [`fold`].
#[inline(always)]
unsafe fn choose_op<T: Number, const N: usize>(isa: Isa, op: Combine, fold: Together<2>) {
    match op {
        Combine::Sum => dispatch(isa, Chosen::<T, Sum, N, 2>(fold, Default::default())),
        Combine::Product => dispatch(isa, Chosen::<T, Product, N, 2>(fold, Default::default())),
        Combine::Min => dispatch(isa, Chosen::<T, Min, N, 2>(fold, Default::default())),
        Combine::Max => dispatch(isa, Chosen::<T, Max, N, 2>(fold, Default::default())),
    }
}

/// # Safety
/// As [`fold`], of floats.
#[inline(always)]
unsafe fn choose_sum<const K: usize>(isa: Isa, dtype: Dtype, fold: Together<K>) {
    match dtype {
        Dtype::F16 => dispatch(isa, Chosen::<f16, Sum, 32, K>(fold, Default::default())),
        Dtype::Bf16 => dispatch(isa, Chosen::<bf16, Sum, 32, K>(fold, Default::default())),
        Dtype::F32 => dispatch(isa, Chosen::<f32, Sum, 16, K>(fold, Default::default())),
        Dtype::F64 => dispatch(isa, Chosen::<f64, Sum, 8, K>(fold, Default::default())),
        other => unreachable!("{other:?} is folded by twos"),
    }
}

/// Made in [`choose_op`] and [`choose_sum`] only, whose callers promised that the pointers are good.
struct Chosen<T, O, const N: usize, const K: usize>(Together<K>, std::marker::PhantomData<(T, O)>);

impl<T: Number, O: Operation, const N: usize, const K: usize> Kernel for Chosen<T, O, N, K> {
    type Output = ();

    #[inline(always)]
    fn run<M: Machine>(self, machine: M) {
        const { assert!(size_of::<[T::Stored; N]>() == PACK) };
        let n_bytes = self.0.n_bytes;
        let mut at = 0;
        // SAFETY: each step stays below `n_bytes`, for which `fold` was given its promise.
        unsafe {
            // Four at a time pay for the loop. Small elements, rare and slow to compile, do without.
            while size_of::<T::Stored>() >= 2 && at + 4 * PACK <= n_bytes {
                self.step::<M, N, 4>(machine, at);
                at += 4 * PACK;
            }
            while at + PACK <= n_bytes {
                self.step::<M, N, 1>(machine, at);
                at += PACK;
            }
            while at + size_of::<T::Stored>() <= n_bytes {
                self.step::<M, 1, 1>(machine, at);
                at += size_of::<T::Stored>();
            }
        }
    }
}

impl<T: Number, O: Operation, const N: usize, const K: usize> Chosen<T, O, N, K> {
    /// Folds the `P` packs of `L` elements at `at`. All is loaded before anything is stored.
    ///
    /// # Safety
    /// They lie within the buffers of [`fold`].
    #[inline(always)]
    unsafe fn step<M: Machine, const L: usize, const P: usize>(&self, machine: M, at: usize) {
        let Together { out, also, sources, .. } = &self.0;
        // SAFETY: the caller's promise; elements are plain bytes and need no alignment here.
        unsafe {
            let mut folded: [[T::Stored; L]; P] = sources[0].add(at).cast::<[[T::Stored; L]; P]>().read_unaligned();
            for source in &sources[1..] {
                let next = source.add(at).cast::<[[T::Stored; L]; P]>().read_unaligned();
                for pack in 0..P {
                    folded[pack] = O::apply::<M, T, L>(machine, folded[pack], next[pack]);
                }
            }
            out.add(at).cast::<[[T::Stored; L]; P]>().write_unaligned(folded);
            if let Some(also) = also {
                also.add(at).cast::<[[T::Stored; L]; P]>().write_unaligned(folded);
            }
        }
    }
}
