//! One-shot allreduce within a host, for small inputs: every rank publishes its input in shared memory, and reduces the inputs of all ranks. One
//! step of latency; the total work grows with the square of the ranks. All ranks reduce in rank order, so all get the same bits.

use crate::algorithm::{Buffers, Reduction};
use crate::error::Error;
use crate::reduce;
use crate::transport::shm::step_sync::StepSync;

/// Allreduce of `n_bytes`. `sources` is scratch.
///
/// # Safety
/// `buffers` must be valid for `n_bytes` (`src` for reads, `dst` for writes), whole elements, at most [`StepSync::SMALL_BYTES`]; `src` and `dst` are
/// equal or do not overlap.
pub unsafe fn allreduce(
    sync: &mut StepSync,
    buffers: Buffers,
    n_bytes: usize,
    reduction: Reduction,
    sources: &mut Vec<*const u8>,
) -> Result<(), Error> {
    let turn = sync.next_small();
    sources.clear();
    if n_bytes <= StepSync::INLINE_BYTES {
        // SAFETY: `src` is readable for `n_bytes` by the function's contract, and they fit into the inline payload.
        unsafe { sync.write_inline(turn, buffers.src, n_bytes) };
        sync.advance();
        sources.extend((0..sync.n()).map(|member| sync.inline(member, turn).cast::<u8>()));
    } else {
        // SAFETY: this rank's own slot. No rank reads this turn any more: all have made a step since they did. `src` is readable for `n_bytes`.
        unsafe { std::ptr::copy_nonoverlapping(buffers.src, sync.small(sync.me(), turn), n_bytes) };
        sync.advance();
        sources.extend((0..sync.n()).map(|member| sync.small(member, turn).cast_const()));
    }
    sync.wait_all(sync.step())?;
    // SAFETY: every slot holds `n_bytes` of an input, and its owner does not write it until all have made another step. `dst` is writable for
    // `n_bytes` by the function's contract.
    unsafe {
        reduce::fold_raw(reduction.dtype, reduction.combine, buffers.dst, None, sources, n_bytes);
        reduction.apply_factor(buffers.dst, n_bytes);
    }
    Ok(())
}

/// Returns when all members have called it.
pub fn barrier(sync: &mut StepSync) -> Result<(), Error> {
    sync.next_small();
    sync.advance();
    sync.wait_all(sync.step())
}
