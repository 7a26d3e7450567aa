//! Ring algorithm over links: every rank sends to the next and receives from the previous one. Optimal in bytes, and needs only two links.
//!
//! The buffer is divided into parts, one for each member. In step `s` a rank sends part `me - s - 1` and receives part
//! `me - s - 2`. During the first `n - 1` steps (reduce-scatter) received bytes are combined with the local ones, and each rank ends with its own part
//! reduced. During the next `n - 1` steps (allgather) received bytes are results. Bytes are forwarded as soon as they arrive, not when their part
//! is complete, so the steps overlap.
//!
//! With several streams to a neighbour each carries its own stripe of every part; stripes progress independently.

use std::ops::Range;

use crate::algorithm::{Collective, Reduction, partition};
use crate::error::Error;
use crate::reduce;
use crate::transport::link::Endpoint;

/// Members of the ring in ring order, which is the same on all of them, and the index of this rank.
#[derive(Clone, Copy)]
pub struct Ring<'a> {
    pub members: &'a [usize],
    pub me: usize,
}

impl Ring<'_> {
    fn next(&self) -> usize {
        self.members[(self.me + 1) % self.members.len()]
    }

    fn previous(&self) -> usize {
        self.members[(self.me + self.members.len() - 1) % self.members.len()]
    }

    fn sent_part(&self, step: usize) -> usize {
        (2 * self.members.len() + self.me - step % self.members.len() - 1) % self.members.len()
    }

    fn received_part(&self, step: usize) -> usize {
        (2 * self.members.len() + self.me - step % self.members.len() - 2) % self.members.len()
    }
}

/// Buffers that are reused by all operations.
#[derive(Default)]
pub struct RingScratch {
    progress: Vec<StripeProgress>,
    bytes: Vec<u8>,
}

/// Positions of one stripe.
#[derive(Clone, Copy, Debug)]
struct StripeProgress {
    sent: Position,
    received: Position,
    /// Bytes in the scratch of an element that has not arrived completely.
    partial_bytes: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Position {
    step: usize,
    offset: usize,
}

/// Scratch of each stripe. As large as one read of a socket, small enough for the cache.
const SCRATCH_BYTES: usize = 256 * 1024;

/// One operation. Equal on every member.
#[derive(Clone, Copy)]
pub struct RingTask<'a> {
    /// The parts of the members, in ring order.
    pub parts: &'a [Range<usize>],
    /// Bytes of one element.
    pub element: usize,
    pub collective: Collective,
    pub n_stripes: usize,
}

/// Runs a collective in place.
///
/// # Safety
/// `dst` must be valid for reads and writes of all parts, which are whole elements, and hold this rank's input: all parts for a reduction, its own
/// part for an allgather.
pub unsafe fn run(
    endpoint: Endpoint<'_>,
    ring: Ring<'_>,
    dst: *mut u8,
    task: RingTask<'_>,
    scratch: &mut RingScratch,
) -> Result<(), Error> {
    let RingTask { collective, n_stripes, .. } = task;
    let n = ring.members.len();
    let (first, end, reduction) = match collective {
        Collective::ReduceScatter(reduction) => (0, n - 1, Some(reduction)),
        Collective::Allgather => (n - 1, 2 * (n - 1), None),
        Collective::Allreduce(reduction) => (0, 2 * (n - 1), Some(reduction)),
    };
    let start = Position { step: first, offset: 0 };
    scratch.progress.clear();
    scratch.progress.resize(n_stripes, StripeProgress { sent: start, received: start, partial_bytes: 0 });
    scratch.bytes.resize(n_stripes * SCRATCH_BYTES, 0);
    let mut run = RingRun { endpoint, ring, dst, task, first, end, reduction };
    loop {
        let mut moved = false;
        let mut is_complete = true;
        for (index, stripe) in scratch.progress.iter_mut().enumerate() {
            let bytes = &mut scratch.bytes[index * SCRATCH_BYTES..][..SCRATCH_BYTES];
            // SAFETY: `dst` is valid for all parts by the function's contract.
            unsafe {
                moved |= run.receive(index, stripe, bytes)?;
                moved |= run.send(index, stripe)?;
            }
            is_complete &= stripe.sent.step == end && stripe.received.step == end;
        }
        run.endpoint.end_round(moved || is_complete)?;
        if is_complete {
            return Ok(());
        }
    }
}

struct RingRun<'a> {
    endpoint: Endpoint<'a>,
    ring: Ring<'a>,
    dst: *mut u8,
    task: RingTask<'a>,
    first: usize,
    end: usize,
    reduction: Option<Reduction>,
}

impl RingRun<'_> {
    /// The bytes of a part that a stripe carries.
    fn stripe_range(&self, part: usize, index: usize) -> Range<usize> {
        let part = &self.task.parts[part];
        if self.task.n_stripes == 1 {
            return part.clone();
        }
        let within = partition::split_even(part.len(), self.task.n_stripes, self.task.element)(index);
        part.start + within.start..part.start + within.end
    }

    /// Moves a position at the end of its part to the next part that is not empty.
    fn skip_finished(&self, index: usize, position: &mut Position, part_of: impl Fn(usize) -> usize) {
        while position.step < self.end && position.offset == self.stripe_range(part_of(position.step), index).len() {
            *position = Position { step: position.step + 1, offset: 0 };
        }
    }

    /// Sends what is ready. True if any byte was sent.
    ///
    /// # Safety
    /// `dst` must be valid for reads of all parts.
    unsafe fn send(&mut self, index: usize, stripe: &mut StripeProgress) -> Result<bool, Error> {
        let ring = self.ring;
        let mut moved = false;
        loop {
            self.skip_finished(index, &mut stripe.sent, |step| ring.sent_part(step));
            let Position { step, offset } = stripe.sent;
            if step == self.end {
                return Ok(moved);
            }
            let bytes = self.stripe_range(ring.sent_part(step), index);
            // The bytes that are sent in a step were received in the previous one.
            let ready = if step == self.first || stripe.received.step >= step {
                bytes.len()
            } else if stripe.received.step + 1 == step {
                stripe.received.offset
            } else {
                0
            };
            if ready == offset {
                return Ok(moved);
            }
            // SAFETY: the range is in a part, for which `dst` is valid.
            let sent = unsafe {
                let from = self.dst.add(bytes.start + offset);
                self.endpoint.send(ring.next(), index, from, ready - offset)?
            };
            if sent == 0 {
                return Ok(moved);
            }
            moved = true;
            stripe.sent.offset += sent;
        }
    }

    /// Receives and reduces what has arrived. True if any byte was received.
    ///
    /// # Safety
    /// `dst` must be valid for reads and writes of all parts.
    unsafe fn receive(&mut self, index: usize, stripe: &mut StripeProgress, scratch: &mut [u8]) -> Result<bool, Error> {
        let ring = self.ring;
        self.skip_finished(index, &mut stripe.received, |step| ring.received_part(step));
        let Position { step, offset } = stripe.received;
        if step == self.end {
            return Ok(false);
        }
        let n = ring.members.len();
        let bytes = self.stripe_range(ring.received_part(step), index);
        let remaining = bytes.len() - offset;
        // SAFETY: the offset is in a part, for which `dst` is valid.
        let here = unsafe { self.dst.add(bytes.start + offset) };
        let reduction = match self.reduction {
            Some(reduction) if step < n - 1 => reduction,
            _ => {
                // SAFETY: `here` is writable for the rest of the stripe.
                let received = unsafe { self.endpoint.receive(ring.previous(), index, here, remaining)? };
                stripe.received.offset += received;
                self.skip_finished(index, &mut stripe.received, |step| ring.received_part(step));
                return Ok(received > 0);
            }
        };
        let room = scratch.len().min(remaining) - stripe.partial_bytes;
        // SAFETY: the scratch has at least `room` bytes after the partial element.
        let received = unsafe {
            let to = scratch.as_mut_ptr().add(stripe.partial_bytes);
            self.endpoint.receive(ring.previous(), index, to, room)?
        };
        let n_available = stripe.partial_bytes + received;
        let whole = n_available - n_available % self.task.element;
        // SAFETY: `here` is valid for `whole` bytes, and the scratch holds as many, which are whole elements.
        unsafe {
            reduce::combine_raw(reduction.dtype, reduction.combine, here, scratch.as_ptr(), whole);
            if step == n - 2 {
                reduction.apply_factor(here, whole);
            }
        }
        scratch.copy_within(whole..n_available, 0);
        stripe.partial_bytes = n_available - whole;
        stripe.received.offset += whole;
        self.skip_finished(index, &mut stripe.received, |step| ring.received_part(step));
        Ok(received > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_follow_the_ring() {
        for n in 2..6 {
            let members: Vec<usize> = (0..n).collect();
            let ring = |me| Ring { members: &members, me };
            for me in 0..n {
                let next = ring((me + 1) % n);
                for step in 0..2 * (n - 1) {
                    assert_eq!(
                        ring(me).sent_part(step),
                        next.received_part(step),
                        "the sent part is the one that the next rank expects"
                    );
                    assert_eq!(
                        ring(me).received_part(step),
                        ring(me).sent_part(step + 1),
                        "a received part is forwarded"
                    );
                }
                assert_eq!(ring(me).received_part(n - 2), me, "the own part is reduced last");
                assert_eq!(ring(me).sent_part(n - 1), me, "and sent first");
            }
        }
    }
}
