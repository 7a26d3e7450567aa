//! Collectives of large buffers within a host by cross-memory attach (`process_vm_readv`): every rank publishes the addresses of its buffers, reduces
//! its own part from the buffers of the others, and reads the other parts from the ranks that reduced them. Three steps for any size, so ranks that
//! share a core switch context three times and not once per chunk.

use std::ops::Range;

use crate::algorithm::{Buffers, Collective, Reduction};
use crate::error::Error;
use crate::reduce;
use crate::transport::shm::cma::{self, Pid};
use crate::transport::shm::step_sync::StepSync;

/// The processes of the other members, and scratch buffers that are reused by all operations.
pub struct CmaReader {
    pids: Vec<Pid>,
    scratch: Vec<u8>,
    sources: Vec<*const u8>,
    /// Addresses of `src` and `dst` of each member.
    addresses: Vec<[u64; 2]>,
}

/// Scratch of all members together, so that a block is reduced before it leaves the cache.
const SCRATCH_BYTES: usize = 512 * 1024;
/// Smaller reads are dominated by the system call.
const MIN_BLOCK_BYTES: usize = 32 * 1024;

impl CmaReader {
    pub fn new(pids: Vec<Pid>) -> CmaReader {
        CmaReader { pids, scratch: Vec::new(), sources: Vec::new(), addresses: Vec::new() }
    }
}

/// Runs a collective. `collective` and `parts` must be equal on every member.
///
/// # Safety
/// As [`crate::algorithm::pipelined_shm::run`].
pub unsafe fn run(
    sync: &mut StepSync,
    buffers: Buffers,
    parts: &[Range<usize>],
    collective: Collective,
    reader: &mut CmaReader,
) -> Result<(), Error> {
    let turn = sync.next_small();
    let own = [buffers.src as u64, buffers.dst as u64];
    // SAFETY: `own` is an array of 16 bytes, which fit into the inline payload.
    unsafe { sync.write_inline(turn, own.as_ptr().cast(), size_of_val(&own)) };
    sync.advance();
    sync.wait_all(sync.step())?;
    reader.addresses.clear();
    reader.addresses.extend((0..sync.n()).map(|member| {
        // SAFETY: the member's step was waited for, and it writes this turn again only after this rank has made two more steps.
        let payload = unsafe { *sync.inline(member, turn) };
        [payload[0], payload[1]]
    }));
    let me = sync.me();
    match collective {
        Collective::ReduceScatter(reduction) | Collective::Allreduce(reduction) => {
            // SAFETY: `buffers` are valid by the function's contract; the others write only their own parts until this rank has published that its
            // part is done.
            unsafe { reduce_own_part(sync, buffers, parts[me].clone(), reduction, reader)? };
        }
        // The others read this rank's part from `dst`.
        Collective::Allgather if !std::ptr::eq(buffers.src, buffers.dst) => {
            let own = parts[me].clone();
            // SAFETY: both buffers are valid for the own part by the function's contract, and do not overlap because they are not equal.
            unsafe { std::ptr::copy_nonoverlapping(buffers.src.add(own.start), buffers.dst.add(own.start), own.len()) };
        }
        Collective::Allgather => {}
    }
    sync.advance();
    if !matches!(collective, Collective::ReduceScatter(_)) {
        for distance in 1..sync.n() {
            let member = (me + distance) % sync.n();
            let part = &parts[member];
            if part.is_empty() {
                continue;
            }
            sync.wait(member, sync.step())?;
            // SAFETY: `dst` is writable for all parts. The owner has finished this part, and does not write it until this rank has published its last
            // step.
            let read = unsafe {
                let address = reader.addresses[member][1] + part.start as u64;
                cma::read(reader.pids[member], address, buffers.dst.add(part.start), part.len())
            };
            read.map_err(|cause| read_error(sync, member, cause))?;
        }
    }
    // No rank returns, and may change its buffers, while another still reads them.
    let done = sync.step().wrapping_add(1);
    sync.advance();
    sync.wait_all(done)
}

/// Reduces this rank's own part, block by block.
///
/// # Safety
/// `buffers` must be valid for the range `own`, of whole elements; the other members' buffers must not be written in this range meanwhile.
unsafe fn reduce_own_part(
    sync: &StepSync,
    buffers: Buffers,
    own: Range<usize>,
    reduction: Reduction,
    reader: &mut CmaReader,
) -> Result<(), Error> {
    let (n, me) = (sync.n(), sync.me());
    let block = (SCRATCH_BYTES / n.max(2) / 64 * 64).max(MIN_BLOCK_BYTES);
    reader.scratch.resize(block * n, 0);
    let scratch = reader.scratch.as_mut_ptr();
    let mut start = own.start;
    while start < own.end {
        let n_bytes = block.min(own.end - start);
        reader.sources.clear();
        for member in 0..n {
            // SAFETY: `start..start + n_bytes` is in the own part, for which `src` is valid; the scratch holds a block for each member.
            unsafe {
                if member == me {
                    reader.sources.push(buffers.src.add(start));
                    continue;
                }
                let slot = scratch.add(member * block);
                cma::read(reader.pids[member], reader.addresses[member][0] + start as u64, slot, n_bytes)
                    .map_err(|cause| read_error(sync, member, cause))?;
                reader.sources.push(slot);
            }
        }
        // SAFETY: `dst` is valid for the own part; every source has `n_bytes`, in `src` or in the scratch.
        unsafe {
            let out = buffers.dst.add(start);
            reduce::fold_raw(reduction.dtype, reduction.combine, out, None, &reader.sources, n_bytes);
            reduction.apply_factor(out, n_bytes);
        }
        start += n_bytes;
    }
    Ok(())
}

/// The error of a failed read: the process has most likely ended.
fn read_error(sync: &StepSync, member: usize, cause: std::io::Error) -> Error {
    sync.peer_table().explain(sync.rank(member), cause)
}
