//! Small reductions within a host: everybody shows its whole input and reads everybody else's. One step, so one message time;
//! the work grows with the square of the ranks, which is nothing while inputs are small. All add in the order of ranks, so all
//! get the same bits.

use crate::algorithm::{Buffers, Reduction};
use crate::error::Error;
use crate::reduce;
use crate::transport::shm::step_sync::StepSync;

/// # Safety
/// `buffers` must hold `n_bytes` of whole elements, at most [`StepSync::SMALL_BYTES`].
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
        // SAFETY: the caller's for the source.
        unsafe { sync.write_inline(turn, buffers.src, n_bytes) };
        sync.advance();
        sources.extend((0..sync.n()).map(|member| sync.inline(member, turn).cast::<u8>()));
    } else {
        // SAFETY: our own slot; nobody reads this turn any more, since all have made a step after they did.
        unsafe { std::ptr::copy_nonoverlapping(buffers.src, sync.small(sync.me(), turn), n_bytes) };
        sync.advance();
        sources.extend((0..sync.n()).map(|member| sync.small(member, turn).cast_const()));
    }
    sync.wait_all(sync.step())?;
    // SAFETY: every slot holds that many bytes of an input, and is not written until all have made another step.
    unsafe {
        reduce::fold_raw(reduction.dtype, reduction.combine, buffers.dst, None, sources, n_bytes);
        reduction.apply_factor(buffers.dst, n_bytes);
    }
    Ok(())
}

/// Until everybody has come.
pub fn barrier(sync: &mut StepSync) -> Result<(), Error> {
    sync.next_small();
    sync.advance();
    sync.wait_all(sync.step())
}
