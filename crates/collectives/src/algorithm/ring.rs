//! Operations over streams, in a ring: every rank sends to the next and receives from the one before. Moves no byte twice that need
//! not, and needs nothing but two links.
//!
//! The buffer is divided into parts, one for each member. In step `s` a rank sends part `me - s - 1` and receives part
//! `me - s - 2`. During the first `n - 1` steps what comes is added to what is there, and each rank ends with its own part, whole.
//! During the next `n - 1` steps what comes is the result. Bytes are passed on as soon as they are there, not when their part
//! is whole, so that the steps overlap.
//!
//! With several streams to a neighbour each carries its own stripe of every part, and they know nothing of each other.

use std::ops::Range;

use crate::algorithm::{Collective, Reduction, partition};
use crate::error::Error;
use crate::reduce;
use crate::transport::link::Endpoint;

/// Members of the ring in their order, which is the same on all of them, and our place in it.
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

/// What is kept between operations.
#[derive(Default)]
pub struct RingScratch {
    stripes: Vec<Stripe>,
    scratch: Vec<u8>,
}

/// How far a stripe has come.
#[derive(Clone, Copy, Debug)]
struct Stripe {
    sent: Position,
    received: Position,
    /// Bytes in the scratch that make no whole element yet.
    torn: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Position {
    step: usize,
    offset: usize,
}

/// Of each stripe. As large as what a socket gives at once, small enough for the cache.
const SCRATCH_BYTES: usize = 256 * 1024;

/// What is to be done, the same on every member but for where.
#[derive(Clone, Copy)]
pub struct RingTask<'a> {
    /// Those of the members in ring order.
    pub parts: &'a [Range<usize>],
    /// Bytes of one.
    pub element: usize,
    pub work: Collective,
    pub n_stripes: usize,
}

/// # Safety
/// `dst` must hold all parts and, but for what is folded, the own input already. Whole elements.
pub unsafe fn run(
    endpoint: Endpoint<'_>,
    ring: Ring<'_>,
    dst: *mut u8,
    task: RingTask<'_>,
    kept: &mut RingScratch,
) -> Result<(), Error> {
    let RingTask { work, n_stripes, .. } = task;
    let n = ring.members.len();
    let (first, end, reduction) = match work {
        Collective::ReduceScatter(reduction) => (0, n - 1, Some(reduction)),
        Collective::Allgather => (n - 1, 2 * (n - 1), None),
        Collective::Allreduce(reduction) => (0, 2 * (n - 1), Some(reduction)),
    };
    let start = Position { step: first, offset: 0 };
    kept.stripes.clear();
    kept.stripes.resize(n_stripes, Stripe { sent: start, received: start, torn: 0 });
    kept.scratch.resize(n_stripes * SCRATCH_BYTES, 0);
    let mut pass = Pass { endpoint, ring, dst, task, first, end, reduction };
    loop {
        let mut moved = false;
        let mut whole = true;
        for (index, stripe) in kept.stripes.iter_mut().enumerate() {
            let scratch = &mut kept.scratch[index * SCRATCH_BYTES..][..SCRATCH_BYTES];
            // SAFETY: the caller's.
            unsafe {
                moved |= pass.receive(index, stripe, scratch)?;
                moved |= pass.send(index, stripe)?;
            }
            whole &= stripe.sent.step == end && stripe.received.step == end;
        }
        pass.endpoint.after(moved || whole)?;
        if whole {
            return Ok(());
        }
    }
}

struct Pass<'a> {
    endpoint: Endpoint<'a>,
    ring: Ring<'a>,
    dst: *mut u8,
    task: RingTask<'a>,
    first: usize,
    end: usize,
    reduction: Option<Reduction>,
}

impl Pass<'_> {
    /// The part of `part` that a stripe carries.
    fn stripe(&self, part: usize, index: usize) -> Range<usize> {
        let part = &self.task.parts[part];
        if self.task.n_stripes == 1 {
            return part.clone();
        }
        let within = partition::split_even(part.len(), self.task.n_stripes, self.task.element)(index);
        part.start + within.start..part.start + within.end
    }

    /// Passes over what is empty.
    fn settle(&self, index: usize, position: &mut Position, part_of: impl Fn(usize) -> usize) {
        while position.step < self.end && position.offset == self.stripe(part_of(position.step), index).len() {
            *position = Position { step: position.step + 1, offset: 0 };
        }
    }

    unsafe fn send(&mut self, index: usize, stripe: &mut Stripe) -> Result<bool, Error> {
        let ring = self.ring;
        let mut moved = false;
        loop {
            self.settle(index, &mut stripe.sent, |step| ring.sent_part(step));
            let Position { step, offset } = stripe.sent;
            if step == self.end {
                return Ok(moved);
            }
            let bytes = self.stripe(ring.sent_part(step), index);
            // What we send in a step is what we received in the one before.
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
            // SAFETY: within the part, which the buffer holds.
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

    unsafe fn receive(&mut self, index: usize, stripe: &mut Stripe, scratch: &mut [u8]) -> Result<bool, Error> {
        let ring = self.ring;
        self.settle(index, &mut stripe.received, |step| ring.received_part(step));
        let Position { step, offset } = stripe.received;
        if step == self.end {
            return Ok(false);
        }
        let n = ring.members.len();
        let bytes = self.stripe(ring.received_part(step), index);
        let left = bytes.len() - offset;
        // SAFETY: within the part, which the buffer holds.
        let here = unsafe { self.dst.add(bytes.start + offset) };
        let reduction = match self.reduction {
            Some(reduction) if step < n - 1 => reduction,
            _ => {
                // SAFETY: as above.
                let received = unsafe { self.endpoint.receive(ring.previous(), index, here, left)? };
                stripe.received.offset += received;
                self.settle(index, &mut stripe.received, |step| ring.received_part(step));
                return Ok(received > 0);
            }
        };
        let room = scratch.len().min(left) - stripe.torn;
        // SAFETY: the scratch has that room.
        let received = unsafe {
            let to = scratch.as_mut_ptr().add(stripe.torn);
            self.endpoint.receive(ring.previous(), index, to, room)?
        };
        let there = stripe.torn + received;
        let whole = there - there % self.task.element;
        // SAFETY: as above; the reduced part of the scratch is whole elements.
        unsafe {
            reduce::combine_raw(reduction.dtype, reduction.combine, here, scratch.as_ptr(), whole);
            if step == n - 2 {
                reduction.apply_factor(here, whole);
            }
        }
        scratch.copy_within(whole..there, 0);
        stripe.torn = there - whole;
        stripe.received.offset += whole;
        self.settle(index, &mut stripe.received, |step| ring.received_part(step));
        Ok(received > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_travel_as_the_prose_says() {
        for n in 2..6 {
            let members: Vec<usize> = (0..n).collect();
            let ring = |me| Ring { members: &members, me };
            for me in 0..n {
                let next = ring((me + 1) % n);
                for step in 0..2 * (n - 1) {
                    assert_eq!(ring(me).sent_part(step), next.received_part(step), "what is sent is what is awaited");
                    assert_eq!(ring(me).received_part(step), ring(me).sent_part(step + 1), "and is passed on");
                }
                assert_eq!(ring(me).received_part(n - 2), me, "the own part comes last");
                assert_eq!(ring(me).sent_part(n - 1), me, "and is shared first");
            }
        }
    }
}
