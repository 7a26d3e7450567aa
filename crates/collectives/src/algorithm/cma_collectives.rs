//! Large operations within a host where ranks may read each other's memory: everybody says where its buffers are, folds its own
//! part out of the others' buffers, and fetches the rest from those who folded it. Three steps whatever the size, so ranks that
//! share a core change places three times and not once a piece.

use std::ops::Range;

use crate::algorithm::{Buffers, Collective, Reduction};
use crate::error::Error;
use crate::reduce;
use crate::transport::shm::cma::{self, Pid};
use crate::transport::shm::step_sync::StepSync;

/// What is kept between operations: the others' processes, and a place to read into that stays in the cache.
pub struct Reader {
    pids: Vec<Pid>,
    scratch: Vec<u8>,
    sources: Vec<*const u8>,
    theirs: Vec<[u64; 2]>,
}

/// For all members together, so that what is read is folded before it leaves the cache.
const SCRATCH_BYTES: usize = 512 * 1024;
/// Smaller reads are dominated by their system call.
const MIN_BLOCK_BYTES: usize = 32 * 1024;

impl Reader {
    pub fn new(pids: Vec<Pid>) -> Reader {
        Reader { pids, scratch: Vec::new(), sources: Vec::new(), theirs: Vec::new() }
    }
}

/// As `pipelined_shm::run`: the same work, the same parts on every member.
///
/// # Safety
/// As `pipelined_shm::run`.
pub unsafe fn run(
    sync: &mut StepSync,
    buffers: Buffers,
    parts: &[Range<usize>],
    work: Collective,
    reader: &mut Reader,
) -> Result<(), Error> {
    let turn = sync.next_small();
    let mine = [buffers.src as u64, buffers.dst as u64];
    // SAFETY: an array of 16 bytes.
    unsafe { sync.write_inline(turn, mine.as_ptr().cast(), size_of_val(&mine)) };
    sync.advance();
    sync.wait_all(sync.step())?;
    reader.theirs.clear();
    reader.theirs.extend((0..sync.n()).map(|member| {
        // SAFETY: its step was waited for, and it writes this turn again only after we have made two more.
        let note = unsafe { *sync.inline(member, turn) };
        [note[0], note[1]]
    }));
    let me = sync.me();
    match work {
        Collective::ReduceScatter(reduction) | Collective::Allreduce(reduction) => {
            // SAFETY: the caller's; the others write only their own parts until we have said that we are done with ours.
            unsafe { fold(sync, buffers, parts[me].clone(), reduction, reader)? };
        }
        // Only what is at home in `src` is read from `src`.
        Collective::Allgather if !std::ptr::eq(buffers.src, buffers.dst) => {
            let own = parts[me].clone();
            // SAFETY: both hold the own part.
            unsafe { std::ptr::copy_nonoverlapping(buffers.src.add(own.start), buffers.dst.add(own.start), own.len()) };
        }
        Collective::Allgather => {}
    }
    sync.advance();
    if !matches!(work, Collective::ReduceScatter(_)) {
        for distance in 1..sync.n() {
            let member = (me + distance) % sync.n();
            let part = &parts[member];
            if part.is_empty() {
                continue;
            }
            sync.wait(member, sync.step())?;
            // SAFETY: `dst` holds all parts; the owner has finished this one, and leaves it alone until we have said that we are.
            let read = unsafe {
                let theirs = reader.theirs[member][1] + part.start as u64;
                cma::read(reader.pids[member], theirs, buffers.dst.add(part.start), part.len())
            };
            read.map_err(|cause| unreadable(sync, member, cause))?;
        }
    }
    // Nobody goes on to change a buffer that another still reads.
    let done = sync.step().wrapping_add(1);
    sync.advance();
    sync.wait_all(done)
}

unsafe fn fold(
    sync: &StepSync,
    buffers: Buffers,
    own: Range<usize>,
    reduction: Reduction,
    reader: &mut Reader,
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
            // SAFETY: the own part lies in `src`; the scratch holds a block for each member.
            unsafe {
                if member == me {
                    reader.sources.push(buffers.src.add(start));
                    continue;
                }
                let place = scratch.add(member * block);
                cma::read(reader.pids[member], reader.theirs[member][0] + start as u64, place, n_bytes)
                    .map_err(|cause| unreadable(sync, member, cause))?;
                reader.sources.push(place);
            }
        }
        // SAFETY: as above.
        unsafe {
            let out = buffers.dst.add(start);
            reduce::fold_raw(reduction.dtype, reduction.combine, out, None, &reader.sources, n_bytes);
            reduction.apply_factor(out, n_bytes);
        }
        start += n_bytes;
    }
    Ok(())
}

/// A process that cannot be read any more has most likely ended.
fn unreadable(sync: &StepSync, member: usize, cause: std::io::Error) -> Error {
    sync.peer_table().explain(sync.rank(member), cause)
}
