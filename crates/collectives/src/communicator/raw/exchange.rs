//! Collectives of exchanges between pairs of members: alltoall and Adasum.

use std::ops::Range;

use crate::algorithm::pairwise::{self, Transfer};
use crate::communicator::Communicator;
use crate::error::Error;
use crate::reduce;
use crate::transport::link::Endpoint;

impl Communicator {
    /// Alltoall: part `i` of `src` is sent to member `i`, part `i` of `dst` is received from it.
    ///
    /// # Safety
    /// `src` must be readable for the ranges `sent` and `dst` writable for `received`; they do not overlap.
    pub unsafe fn alltoall_raw(
        &mut self,
        src: *const u8,
        sent: &[Range<usize>],
        dst: *mut u8,
        received: &[Range<usize>],
    ) -> Result<(), Error> {
        self.check_usable()?;
        let others = |parts: &[Range<usize>], at: *const u8| -> Vec<Transfer> {
            // Every rank begins with the next member, so that not all send to the same one.
            let order = (1..self.size()).map(|distance| (self.me + distance) % self.size());
            let parcel =
                |member: usize| Transfer::new(member, at.wrapping_add(parts[member].start), parts[member].len());
            order.map(parcel).collect()
        };
        let (mut outgoing, mut incoming) = (others(sent, src), others(received, dst));
        let (from, to) = (&sent[self.me], &received[self.me]);
        // SAFETY: `src` and `dst` are valid for the ranges, and do not overlap, by the function's contract.
        let outcome = unsafe {
            std::ptr::copy_nonoverlapping(src.add(from.start), dst.add(to.start), from.len().min(to.len()));
            let mut endpoint = Endpoint { links: &mut self.links, sync: self.sync.as_ref() };
            pairwise::exchange(&mut endpoint, &mut outgoing, &mut incoming)
        };
        self.record_failure(outcome)
    }

    /// Adasum in place: pairs at doubling distances exchange whole vectors, and both compute the adaptive sum of each tensor.
    ///
    /// # Safety
    /// `data` must be valid for reads and writes of all `tensors`, which are whole elements of a floating-point type. The number of members must be a
    /// power of two.
    pub unsafe fn adasum_raw(
        &mut self,
        data: *mut u8,
        tensors: &[Range<usize>],
        dtype: crate::Dtype,
    ) -> Result<(), Error> {
        self.check_usable()?;
        let n_bytes = tensors.iter().map(|tensor| tensor.end).max().unwrap_or(0);
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.resize(scratch.len().max(n_bytes), 0);
        let mut outcome = Ok(());
        let mut distance = 1;
        while distance < self.size() && outcome.is_ok() {
            let partner = self.me ^ distance;
            let mut sent = [Transfer::new(partner, data, n_bytes)];
            let mut received = [Transfer::new(partner, scratch.as_ptr(), n_bytes)];
            // SAFETY: `data` and the scratch are valid for `n_bytes`, and do not overlap.
            let mut endpoint = Endpoint { links: &mut self.links, sync: self.sync.as_ref() };
            outcome = unsafe { pairwise::exchange(&mut endpoint, &mut sent, &mut received) };
            if outcome.is_ok() {
                for tensor in tensors {
                    // SAFETY: `data` is valid for the tensor by the function's contract, and accessed by no other.
                    let mine = unsafe { std::slice::from_raw_parts_mut(data.add(tensor.start), tensor.len()) };
                    let theirs = &mut scratch[tensor.clone()];
                    // Both sides compute the same bits: the lower rank's vector comes first.
                    if self.me < partner {
                        adasum(dtype, mine, theirs);
                    } else {
                        adasum(dtype, theirs, mine);
                        mine.copy_from_slice(theirs);
                    }
                }
            }
            distance *= 2;
        }
        self.scratch = scratch;
        self.record_failure(outcome)
    }
}

/// Replaces `a` by the adaptive sum of `a` and `b`.
fn adasum(dtype: crate::Dtype, a: &mut [u8], b: &[u8]) {
    let dots = reduce::dots(dtype, a, b).expect("the caller has checked that the dtype is a float");
    reduce::adasum_into(dtype, dots, a, b).expect("the dtype is a float");
}
