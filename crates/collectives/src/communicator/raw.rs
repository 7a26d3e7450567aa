//! Operations over addresses and bytes: picks a way, runs it, remembers what broke. The doors enter here, after they have checked
//! what they were given.

use std::ops::Range;

use crate::algorithm::choice::{self, Case, Way};
use crate::algorithm::pairwise::{self, Parcel};
use crate::algorithm::ring::{self, Ring, Task};
use crate::algorithm::staged::{self, Work};
use crate::algorithm::{Buffers, Reduction, direct, flat, parts};
use crate::communicator::Communicator;
use crate::error::Error;
use crate::reduce;
use crate::transport::link::Endpoint;
use crate::transport::shm::step_sync::StepSync;

/// From here on the ring's many rounds are worth the bytes it saves (measured with 4 hosts).
const RING_FROM: usize = 256 * 1024;
/// So much for each stream to a neighbour.
const STRIPE_FROM: usize = 512 * 1024;
/// From here on it pays that several members of a host talk to other hosts at once.
const RAILS_FROM: usize = 64 * 1024;

impl Communicator {
    /// # Safety
    /// `buffers` must hold `n_bytes` of whole elements, in the same memory or apart.
    pub unsafe fn allreduce_raw(
        &mut self,
        buffers: Buffers,
        n_bytes: usize,
        reduction: Reduction,
    ) -> Result<(), Error> {
        self.intact()?;
        if n_bytes == 0 {
            return Ok(());
        }
        // SAFETY: the caller's.
        let outcome = unsafe {
            if self.size() == 1 {
                buffers.bring(n_bytes);
                reduction.finish(buffers.dst, n_bytes);
                Ok(())
            } else if self.topology.n_hosts() == 1 {
                self.allreduce_local(buffers, n_bytes, reduction)
            } else {
                self.allreduce_far(buffers, n_bytes, reduction)
            }
        };
        self.remember(outcome)
    }

    unsafe fn allreduce_local(&mut self, buffers: Buffers, n_bytes: usize, reduction: Reduction) -> Result<(), Error> {
        let sync = self.sync.as_mut().expect("several members on one host share a sync");
        let case = Case { n_bytes, n: sync.n(), n_cores: self.n_cores, direct: self.reader.is_some() };
        let way = choice::allreduce(case, &self.forced);
        if way == Way::Flat {
            // SAFETY: the caller's, and it fits, says the table.
            return unsafe { flat::allreduce(sync, buffers, n_bytes, reduction, &mut self.sources) };
        }
        let part = parts::even(n_bytes, sync.n(), reduction.dtype.size());
        self.parts.clear();
        self.parts.extend((0..sync.n()).map(part));
        let work = Work::Both(reduction);
        // SAFETY: the caller's.
        unsafe { self.run_local(buffers, work, way) }
    }

    /// Work among the members of this host over `self.parts`.
    unsafe fn run_local(&mut self, buffers: Buffers, work: Work, way: Way) -> Result<(), Error> {
        let sync = self.sync.as_mut().expect("several members on one host share a sync");
        // SAFETY: the caller's.
        unsafe {
            match (way, &mut self.reader) {
                (Way::Direct, Some(reader)) => direct::run(sync, buffers, &self.parts, work, reader),
                (Way::Staged { chunk }, _) => staged::run(sync, buffers, &self.parts, work, chunk, &mut self.lists),
                (Way::Direct | Way::Flat, _) => {
                    staged::run(sync, buffers, &self.parts, work, StepSync::STAGE_BYTES, &mut self.lists)
                }
            }
        }
    }

    /// Between hosts: the members of each host fold their inputs into parts, each part goes around the hosts on its own rail, and
    /// everybody takes all parts.
    unsafe fn allreduce_far(&mut self, buffers: Buffers, n_bytes: usize, reduction: Reduction) -> Result<(), Error> {
        let n_locals = self.topology.locals().len();
        let n_rails = if n_bytes < RAILS_FROM { 1 } else { self.topology.n_rails() };
        let part = parts::even(n_bytes, n_rails, reduction.dtype.size());
        let own = if self.topology.local_rank() < n_rails { part(self.topology.local_rank()) } else { 0..0 };
        let plain = Reduction { factor: 1.0, ..reduction };
        // SAFETY: the caller's, throughout.
        unsafe {
            if n_locals > 1 {
                self.parts.clear();
                let locals = (0..n_locals).map(|local| if local < n_rails { part(local) } else { n_bytes..n_bytes });
                self.parts.extend(locals);
                let way = self.local_way(n_bytes, n_locals);
                self.run_local(buffers, Work::Fold(plain), way)?;
            } else {
                buffers.bring(n_bytes);
            }
            if !own.is_empty() {
                let rail: Vec<usize> = self.topology.rail(self.topology.local_rank()).collect();
                self.allreduce_rail(&rail, buffers.dst.add(own.start), own.len(), reduction)?;
            }
            if n_locals > 1 {
                // What the ring needed of the list is over.
                self.parts.clear();
                let locals = (0..n_locals).map(|local| if local < n_rails { part(local) } else { n_bytes..n_bytes });
                self.parts.extend(locals);
                let way = self.local_way(n_bytes, n_locals);
                let taken = Buffers { src: buffers.dst, dst: buffers.dst };
                self.run_local(taken, Work::Take, way)?;
            }
        }
        Ok(())
    }

    fn local_way(&self, n_bytes: usize, n: usize) -> Way {
        let case = Case { n_bytes, n, n_cores: self.n_cores, direct: self.reader.is_some() };
        match choice::allreduce(case, &self.forced) {
            Way::Flat => Way::Staged { chunk: StepSync::STAGE_BYTES },
            way => way,
        }
    }

    /// In place, among one member of each host.
    unsafe fn allreduce_rail(
        &mut self,
        rail: &[usize],
        data: *mut u8,
        n_bytes: usize,
        reduction: Reduction,
    ) -> Result<(), Error> {
        let me = self.topology.host();
        let ring = Ring { members: rail, me };
        let n_stripes = self.n_stripes(n_bytes);
        let mut road = Endpoint { links: &mut self.links, sync: self.sync.as_ref() };
        // SAFETY: the caller's.
        unsafe {
            if n_bytes < RING_FROM {
                self.scratch.resize(self.scratch.len().max(n_bytes), 0);
                return pairwise::doubling(&mut road, ring, data, n_bytes, reduction, &mut self.scratch);
            }
            let part = parts::even(n_bytes, rail.len(), reduction.dtype.size());
            self.parts.clear();
            self.parts.extend((0..rail.len()).map(part));
            let (element, work) = (reduction.dtype.size(), Work::Both(reduction));
            let task = Task { parts: &self.parts, element, work, n_stripes };
            ring::run(road, ring, data, task, &mut self.stripes)
        }
    }

    /// Everybody ends with all parts; ours is in `src` at its place.
    ///
    /// # Safety
    /// `dst` must hold all parts, `src` the own one at its place, in the same memory or apart.
    pub unsafe fn allgather_raw(&mut self, buffers: Buffers, parts: &[Range<usize>]) -> Result<(), Error> {
        self.intact()?;
        let own = parts[self.me].clone();
        let longest = parts.iter().map(Range::len).max().unwrap_or(0);
        if longest == 0 {
            return Ok(());
        }
        // SAFETY: the caller's.
        let outcome = unsafe {
            let here = Buffers { src: buffers.src.add(own.start), dst: buffers.dst.add(own.start) };
            here.bring(own.len());
            let within = Buffers { src: buffers.dst, dst: buffers.dst };
            if self.size() == 1 {
                Ok(())
            } else if self.topology.n_hosts() == 1 {
                self.parts.clear();
                self.parts.extend_from_slice(parts);
                let way = choice::take(longest, self.reader.is_some());
                self.run_local(within, Work::Take, way)
            } else {
                self.run_ring(within.dst, parts, 1, Work::Take)
            }
        };
        self.remember(outcome)
    }

    /// # Safety
    /// `data` must hold `n_bytes`.
    pub unsafe fn broadcast_raw(&mut self, data: *mut u8, n_bytes: usize, root: usize) -> Result<(), Error> {
        let parts: Vec<Range<usize>> =
            (0..self.size()).map(|member| if member == root { 0..n_bytes } else { n_bytes..n_bytes }).collect();
        // SAFETY: the caller's.
        unsafe { self.allgather_raw(Buffers { src: data, dst: data }, &parts) }
    }

    /// Everybody ends with its own part in `out`.
    ///
    /// # Safety
    /// `src` must hold all parts, `out` the own one, at its place in `src` or apart. Whole elements.
    pub unsafe fn reducescatter_raw(
        &mut self,
        src: *const u8,
        out: *mut u8,
        parts: &[Range<usize>],
        reduction: Reduction,
    ) -> Result<(), Error> {
        self.intact()?;
        let own = parts[self.me].clone();
        let n_bytes = parts.iter().map(|part| part.end).max().unwrap_or(0);
        if n_bytes == 0 {
            return Ok(());
        }
        // SAFETY: the caller's.
        let outcome = unsafe {
            if self.size() == 1 {
                std::ptr::copy_nonoverlapping(src.add(own.start), out, own.len());
                reduction.finish(out, own.len());
                Ok(())
            } else if self.topology.n_hosts() == 1 {
                self.parts.clear();
                self.parts.extend_from_slice(parts);
                let way = self.local_way(n_bytes, self.size());
                // Only the own part is written, so `out` may stand for the whole.
                let buffers = Buffers { src, dst: out.wrapping_sub(own.start) };
                self.run_local(buffers, Work::Fold(reduction), way)
            } else {
                let mut scratch = std::mem::take(&mut self.scratch);
                scratch.resize(scratch.len().max(n_bytes), 0);
                std::ptr::copy_nonoverlapping(src, scratch.as_mut_ptr(), n_bytes);
                let outcome = self.run_ring(scratch.as_mut_ptr(), parts, reduction.dtype.size(), Work::Fold(reduction));
                std::ptr::copy_nonoverlapping(scratch.as_ptr().add(own.start), out, own.len());
                self.scratch = scratch;
                outcome
            }
        };
        self.remember(outcome)
    }

    /// Over all members, whatever lies between them.
    unsafe fn run_ring(
        &mut self,
        dst: *mut u8,
        parts: &[Range<usize>],
        element: usize,
        work: Work,
    ) -> Result<(), Error> {
        let members: Vec<usize> = (0..self.size()).collect();
        let ring = Ring { members: &members, me: self.me };
        // A ring through shared memory is one stream, and all must divide alike.
        let n_bytes = parts.iter().map(|part| part.end).max().unwrap_or(0);
        let n_stripes = if self.topology.is_scattered() { self.n_stripes(n_bytes) } else { 1 };
        let road = Endpoint { links: &mut self.links, sync: self.sync.as_ref() };
        let task = Task { parts, element, work, n_stripes };
        // SAFETY: the caller's.
        unsafe { ring::run(road, ring, dst, task, &mut self.stripes) }
    }

    /// Several streams are worth their system calls only with much to carry.
    fn n_stripes(&self, n_bytes: usize) -> usize {
        (n_bytes / STRIPE_FROM).clamp(1, self.world.options.n_streams.max(1))
    }

    /// Part `i` of `src` goes to member `i`; part `i` of `dst` comes from it.
    ///
    /// # Safety
    /// `src` must hold `sent`, `dst` `received`; apart from each other.
    pub unsafe fn alltoall_raw(
        &mut self,
        src: *const u8,
        sent: &[Range<usize>],
        dst: *mut u8,
        received: &[Range<usize>],
    ) -> Result<(), Error> {
        self.intact()?;
        let others = |parts: &[Range<usize>], at: *const u8| -> Vec<Parcel> {
            // Everybody begins with the member after itself, so that not all send to one.
            let order = (1..self.size()).map(|distance| (self.me + distance) % self.size());
            let parcel = |member: usize| Parcel::new(member, at.wrapping_add(parts[member].start), parts[member].len());
            order.map(parcel).collect()
        };
        let (mut outgoing, mut incoming) = (others(sent, src), others(received, dst));
        let (from, to) = (&sent[self.me], &received[self.me]);
        // SAFETY: the caller's.
        let outcome = unsafe {
            std::ptr::copy_nonoverlapping(src.add(from.start), dst.add(to.start), from.len().min(to.len()));
            let mut road = Endpoint { links: &mut self.links, sync: self.sync.as_ref() };
            pairwise::exchange(&mut road, &mut outgoing, &mut incoming)
        };
        self.remember(outcome)
    }

    pub fn barrier_raw(&mut self) -> Result<(), Error> {
        self.intact()?;
        if self.size() == 1 {
            return Ok(());
        }
        if let (Some(sync), 1) = (&mut self.sync, self.topology.n_hosts()) {
            let outcome = flat::barrier(sync);
            return self.remember(outcome);
        }
        let mut byte = 0u8;
        let reduction = Reduction { dtype: crate::Dtype::U8, combine: crate::Combine::Max, factor: 1.0 };
        let buffers = Buffers { src: &raw const byte, dst: &raw mut byte };
        // SAFETY: one byte.
        unsafe { self.allreduce_raw(buffers, 1, reduction) }
    }

    /// In place: pairs of growing distance exchange whole vectors and both compute the adaptive sum.
    ///
    /// # Safety
    /// `data` must hold `n_bytes` of whole elements of a floating type. The number of members is a power of two.
    pub unsafe fn adasum_raw(
        &mut self,
        data: *mut u8,
        tensors: &[Range<usize>],
        dtype: crate::Dtype,
    ) -> Result<(), Error> {
        self.intact()?;
        let n_bytes = tensors.iter().map(|tensor| tensor.end).max().unwrap_or(0);
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.resize(scratch.len().max(n_bytes), 0);
        let mut outcome = Ok(());
        let mut distance = 1;
        while distance < self.size() && outcome.is_ok() {
            let partner = self.me ^ distance;
            let mut sent = [Parcel::new(partner, data, n_bytes)];
            let mut received = [Parcel::new(partner, scratch.as_ptr(), n_bytes)];
            // SAFETY: the caller's.
            let mut road = Endpoint { links: &mut self.links, sync: self.sync.as_ref() };
            outcome = unsafe { pairwise::exchange(&mut road, &mut sent, &mut received) };
            if outcome.is_ok() {
                for tensor in tensors {
                    // SAFETY: the caller's.
                    let mine = unsafe { std::slice::from_raw_parts_mut(data.add(tensor.start), tensor.len()) };
                    let theirs = &mut scratch[tensor.clone()];
                    // Both sides compute the same, with the lower rank's vector first.
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
        self.remember(outcome)
    }

    fn intact(&self) -> Result<(), Error> {
        if let Some(error) = &self.broken {
            return Err(error.clone());
        }
        // Who only sends would not notice for a while.
        self.world.peer_table.death().map_or(Ok(()), Err)
    }

    /// After a failure the members no longer agree where they are, so nothing that follows could be right.
    fn remember(&mut self, outcome: Result<(), Error>) -> Result<(), Error> {
        if let Err(error) = &outcome {
            self.broken = Some(error.clone());
            // Nobody else need know of it yet, and all wait for us.
            if let Error::Link { peer, .. } | Error::Silent { peer, .. } = error {
                self.world.failure_detector.give_up(peer.rank);
            }
        }
        outcome
    }
}

/// `a` becomes the adaptive sum of both.
fn adasum(dtype: crate::Dtype, a: &mut [u8], b: &[u8]) {
    let dots = reduce::dots(dtype, a, b).expect("the door refused what is no floating type");
    reduce::adasum_into(dtype, dots, a, b).expect("as above");
}
