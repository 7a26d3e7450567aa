//! Collectives over parts of a buffer, one per member: allgather, broadcast and reduce-scatter.

use std::ops::Range;

use crate::algorithm::{Buffers, Collective, Reduction, select};
use crate::communicator::Communicator;
use crate::error::Error;

impl Communicator {
    /// Allgather of parts. This rank's part is read from its range of `src`.
    ///
    /// # Safety
    /// `dst` must be writable for all parts and `src` readable for the own one; they are equal or do not overlap.
    pub unsafe fn allgather_raw(&mut self, buffers: Buffers, parts: &[Range<usize>]) -> Result<(), Error> {
        self.check_usable()?;
        let own = parts[self.me].clone();
        let longest = parts.iter().map(Range::len).max().unwrap_or(0);
        if longest == 0 {
            return Ok(());
        }
        // SAFETY: `src` is valid for the own part and `dst` for all parts, by the function's contract.
        let outcome = unsafe {
            let here = Buffers { src: buffers.src.add(own.start), dst: buffers.dst.add(own.start) };
            here.copy_input_to_output(own.len());
            let within = Buffers { src: buffers.dst, dst: buffers.dst };
            if self.size() == 1 {
                Ok(())
            } else if self.topology.n_hosts() == 1 {
                self.parts.clear();
                self.parts.extend_from_slice(parts);
                let algorithm = select::select_copy(longest, self.reader.is_some());
                self.run_local(within, Collective::Allgather, algorithm)
            } else {
                self.run_ring(within.dst, parts, 1, Collective::Allgather)
            }
        };
        self.record_failure(outcome)
    }

    /// Broadcast: an allgather in which the root's part is everything.
    ///
    /// # Safety
    /// `data` must be valid for reads and writes of `n_bytes`.
    pub unsafe fn broadcast_raw(&mut self, data: *mut u8, n_bytes: usize, root: usize) -> Result<(), Error> {
        let parts: Vec<Range<usize>> =
            (0..self.size()).map(|member| if member == root { 0..n_bytes } else { n_bytes..n_bytes }).collect();
        // SAFETY: `data` is valid for `n_bytes`, which all parts are within.
        unsafe { self.allgather_raw(Buffers { src: data, dst: data }, &parts) }
    }

    /// Reduce-scatter of parts. This rank's reduced part is written to `out`.
    ///
    /// # Safety
    /// `src` must be readable for all parts, which are whole elements, and `out` writable for the own one; `out` is this rank's range of `src` or does
    /// not overlap `src`.
    pub unsafe fn reducescatter_raw(
        &mut self,
        src: *const u8,
        out: *mut u8,
        parts: &[Range<usize>],
        reduction: Reduction,
    ) -> Result<(), Error> {
        self.check_usable()?;
        let own = parts[self.me].clone();
        let n_bytes = parts.iter().map(|part| part.end).max().unwrap_or(0);
        if n_bytes == 0 {
            return Ok(());
        }
        // SAFETY: `src` is valid for all parts and `out` for the own one, by the function's contract.
        let outcome = unsafe {
            if self.size() == 1 {
                // In place the two are the same.
                std::ptr::copy(src.add(own.start), out, own.len());
                reduction.apply_factor(out, own.len());
                Ok(())
            } else if self.topology.n_hosts() == 1 {
                self.parts.clear();
                self.parts.extend_from_slice(parts);
                let algorithm = self.select_local(n_bytes, self.size());
                // Only the own part is written, so a pointer before `out` can stand for a buffer of all parts.
                let buffers = Buffers { src, dst: out.wrapping_sub(own.start) };
                self.run_local(buffers, Collective::ReduceScatter(reduction), algorithm)
            } else {
                let mut scratch = std::mem::take(&mut self.scratch);
                scratch.resize(scratch.len().max(n_bytes), 0);
                std::ptr::copy_nonoverlapping(src, scratch.as_mut_ptr(), n_bytes);
                let outcome = self.run_ring(
                    scratch.as_mut_ptr(),
                    parts,
                    reduction.dtype.size(),
                    Collective::ReduceScatter(reduction),
                );
                std::ptr::copy_nonoverlapping(scratch.as_ptr().add(own.start), out, own.len());
                self.scratch = scratch;
                outcome
            }
        };
        self.record_failure(outcome)
    }
}
