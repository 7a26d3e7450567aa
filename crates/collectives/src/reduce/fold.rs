//! Reduces several buffers into one, in a fixed order.
//!
//! All sources are traversed together in steps of a few cache lines: each step combines the lines of the sources in
//! registers, in their order, and stores the result. So the output is written once and never read, and
//! may be the same memory as one of the sources. Sums of floats take four sources at a time, other operations two: each
//! loop is compiled for each instruction set, and the others are too rare for more. More sources are folded in groups,
//! block by block, through a scratch block that stays in the L1 cache.
//!
//! Never creates a reference to the buffers, because they may be shared with other processes.

use half::{bf16, f16};

use super::{
    isa::{Isa, dispatch},
    number::{BoolByte, Max, Min, Number, Operation, Product, Sum},
    simd_backend::{Kernel, SimdBackend},
};
use crate::{Combine, Dtype};

/// Maximum number of sources in one pass.
const MAX_SOURCES_PER_PASS: usize = 4;

/// Bytes of the scratch block for many sources.
const BLOCK_BYTES: usize = 8 << 10;

/// Bytes of one pack: one vector register or several.
const PACK_BYTES: usize = 64;

/// Computes `out` = `sources[0]` op `sources[1]` op …; also stored in `also` if given.
///
/// # Safety
/// Each source must be readable, and `out` and `also` writable, for `n_bytes`, and no other thread or process writes to them during the call.
/// `out` and `also` do not overlap. Each of them is equal to one source or overlaps none.
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
    // SAFETY: all called functions have the contract of this one.
    unsafe {
        match *sources {
            [] => panic!("a fold needs at least one source"),
            [one] => copy(out, also, one, n_bytes),
            [a, b] => dispatch_dtype(isa, dtype, op, FoldArgs { out, also, sources: [a, b], n_bytes }),
            [a, b, c] if sources_per_pass(dtype, op) == MAX_SOURCES_PER_PASS => {
                dispatch_sum(isa, dtype, FoldArgs { out, also, sources: [a, b, c], n_bytes })
            }
            [a, b, c, d] if sources_per_pass(dtype, op) == MAX_SOURCES_PER_PASS => {
                dispatch_sum(isa, dtype, FoldArgs { out, also, sources: [a, b, c, d], n_bytes })
            }
            _ => fold_many(isa, dtype, op, out, also, sources, n_bytes),
        }
    }
}

fn sources_per_pass(dtype: Dtype, op: Combine) -> usize {
    if dtype.is_float() && op == Combine::Sum { MAX_SOURCES_PER_PASS } else { 2 }
}

/// # Safety
/// As [`fold`].
unsafe fn copy(out: *mut u8, also: Option<*mut u8>, source: *const u8, n_bytes: usize) {
    for target in [Some(out), also].into_iter().flatten() {
        // SAFETY: both are valid for `n_bytes` by the function's contract; `copy` allows them to be equal.
        unsafe { std::ptr::copy(source, target, n_bytes) };
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
    let sources_per_pass = sources_per_pass(dtype, op);
    let mut scratch = std::mem::MaybeUninit::<[u8; BLOCK_BYTES]>::uninit();
    let scratch: *mut u8 = scratch.as_mut_ptr().cast();
    for start in (0..n_bytes).step_by(BLOCK_BYTES) {
        let n_block = BLOCK_BYTES.min(n_bytes - start);
        // The intermediate result comes first, then the next sources, so the order is kept.
        let mut group = [std::ptr::null(); MAX_SOURCES_PER_PASS];
        let mut n_group = 0;
        for (source_idx, source) in sources.iter().enumerate() {
            group[n_group] = source.wrapping_add(start);
            n_group += 1;
            let last = source_idx + 1 == sources.len();
            if last {
                let (out, also) = (out.wrapping_add(start), also.map(|also| also.wrapping_add(start)));
                // SAFETY: a block within the buffers, for which the function's contract holds. The blocks of all earlier sources have been read.
                unsafe { fold(isa, dtype, op, out, also, &group[..n_group], n_block) };
            } else if n_group == sources_per_pass {
                // SAFETY: the scratch is local, holds a block, and is the first of the group or not in it.
                unsafe { fold(isa, dtype, op, scratch, None, &group[..n_group], n_block) };
                group[0] = scratch;
                n_group = 1;
            }
        }
    }
}

/// A fold of `K` sources in one pass.
struct FoldArgs<const K: usize> {
    out: *mut u8,
    also: Option<*mut u8>,
    sources: [*const u8; K],
    n_bytes: usize,
}

/// # Safety
/// As [`fold`].
#[inline(always)]
unsafe fn dispatch_dtype(isa: Isa, dtype: Dtype, op: Combine, fold: FoldArgs<2>) {
    // SAFETY: the called functions have the contract of this one.
    unsafe {
        match dtype {
            // Signed and unsigned integers differ only in comparisons.
            Dtype::I8 if matches!(op, Combine::Min | Combine::Max) => dispatch_op::<i8, 64>(isa, op, fold),
            Dtype::U8 | Dtype::I8 => dispatch_op::<u8, 64>(isa, op, fold),
            Dtype::I16 if matches!(op, Combine::Min | Combine::Max) => dispatch_op::<i16, 32>(isa, op, fold),
            Dtype::U16 | Dtype::I16 => dispatch_op::<u16, 32>(isa, op, fold),
            Dtype::I32 => dispatch_op::<i32, 16>(isa, op, fold),
            Dtype::I64 => dispatch_op::<i64, 8>(isa, op, fold),
            Dtype::F16 => dispatch_op::<f16, 32>(isa, op, fold),
            Dtype::Bf16 => dispatch_op::<bf16, 32>(isa, op, fold),
            Dtype::F32 => dispatch_op::<f32, 16>(isa, op, fold),
            Dtype::F64 => dispatch_op::<f64, 8>(isa, op, fold),
            Dtype::Bool => dispatch_op::<BoolByte, 64>(isa, op, fold),
        }
    }
}

/// # Safety
/// As [`fold`].
#[inline(always)]
unsafe fn dispatch_op<T: Number, const N: usize>(isa: Isa, op: Combine, fold: FoldArgs<2>) {
    match op {
        Combine::Sum => dispatch(isa, FoldKernel::<T, Sum, N, 2>(fold, Default::default())),
        Combine::Product => dispatch(isa, FoldKernel::<T, Product, N, 2>(fold, Default::default())),
        Combine::Min => dispatch(isa, FoldKernel::<T, Min, N, 2>(fold, Default::default())),
        Combine::Max => dispatch(isa, FoldKernel::<T, Max, N, 2>(fold, Default::default())),
    }
}

/// # Safety
/// As [`fold`], of floats.
#[inline(always)]
unsafe fn dispatch_sum<const K: usize>(isa: Isa, dtype: Dtype, fold: FoldArgs<K>) {
    match dtype {
        Dtype::F16 => dispatch(isa, FoldKernel::<f16, Sum, 32, K>(fold, Default::default())),
        Dtype::Bf16 => dispatch(isa, FoldKernel::<bf16, Sum, 32, K>(fold, Default::default())),
        Dtype::F32 => dispatch(isa, FoldKernel::<f32, Sum, 16, K>(fold, Default::default())),
        Dtype::F64 => dispatch(isa, FoldKernel::<f64, Sum, 8, K>(fold, Default::default())),
        other => unreachable!("{other:?} has two sources per pass"),
    }
}

/// A fold with its element type and operation. Created only in [`dispatch_op`] and [`dispatch_sum`], by whose contract the pointers are valid.
struct FoldKernel<T, O, const N: usize, const K: usize>(FoldArgs<K>, std::marker::PhantomData<(T, O)>);

impl<T: Number, O: Operation, const N: usize, const K: usize> Kernel for FoldKernel<T, O, N, K> {
    type Output = ();

    #[inline(always)]
    fn run<M: SimdBackend>(self, simd: M) {
        const { assert!(size_of::<[T::Stored; N]>() == PACK_BYTES) };
        let n_bytes = self.0.n_bytes;
        let mut at = 0;
        // SAFETY: each step is within `n_bytes`, for which the contract of `fold` holds.
        unsafe {
            // Four packs at a time amortise the loop. Not for one-byte elements, which are rare and slow to compile.
            while size_of::<T::Stored>() >= 2 && at + 4 * PACK_BYTES <= n_bytes {
                self.step::<M, N, 4>(simd, at);
                at += 4 * PACK_BYTES;
            }
            while at + PACK_BYTES <= n_bytes {
                self.step::<M, N, 1>(simd, at);
                at += PACK_BYTES;
            }
            while at + size_of::<T::Stored>() <= n_bytes {
                self.step::<M, 1, 1>(simd, at);
                at += size_of::<T::Stored>();
            }
        }
    }
}

impl<T: Number, O: Operation, const N: usize, const K: usize> FoldKernel<T, O, N, K> {
    /// Folds `P` packs of `L` elements at the offset `at`. Loads everything before it stores anything.
    ///
    /// # Safety
    /// The packs must be within the buffers, for which the contract of [`fold`] holds.
    #[inline(always)]
    unsafe fn step<M: SimdBackend, const L: usize, const P: usize>(&self, simd: M, at: usize) {
        let FoldArgs { out, also, sources, .. } = &self.0;
        // SAFETY: the packs are within the buffers by the function's contract; all byte patterns are valid, and unaligned access is used.
        unsafe {
            let mut folded: [[T::Stored; L]; P] = sources[0].add(at).cast::<[[T::Stored; L]; P]>().read_unaligned();
            for source in &sources[1..] {
                let next = source.add(at).cast::<[[T::Stored; L]; P]>().read_unaligned();
                for pack in 0..P {
                    folded[pack] = O::apply::<M, T, L>(simd, folded[pack], next[pack]);
                }
            }
            out.add(at).cast::<[[T::Stored; L]; P]>().write_unaligned(folded);
            if let Some(also) = also {
                also.add(at).cast::<[[T::Stored; L]; P]>().write_unaligned(folded);
            }
        }
    }
}
