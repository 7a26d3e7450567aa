//! Operations on addresses and bytes: selects an algorithm, runs it, and records failures. Callers have checked the arguments.

use std::ops::Range;

use crate::algorithm::pairwise::{self, Transfer};
use crate::algorithm::ring::{self, Ring, RingTask};
use crate::algorithm::select::{self, SelectInput};
use crate::algorithm::{Buffers, Collective, Reduction, cma_collectives, one_shot, partition, pipelined_shm};
use crate::algorithm_override::Algorithm;
use crate::communicator::Communicator;
use crate::error::Error;
use crate::reduce;
use crate::transport::link::Endpoint;
use crate::transport::shm::step_sync::StepSync;

/// From this size on the ring is faster than recursive doubling (measured with 4 hosts).
const RING_MIN_BYTES: usize = 256 * 1024;
/// Minimum bytes per stream to a neighbour.
const STRIPE_MIN_BYTES: usize = 512 * 1024;
/// From this size on several members of a host exchange data with other hosts at the same time.
const RAILS_MIN_BYTES: usize = 64 * 1024;

impl Communicator {
    /// Allreduce of `n_bytes`.
    ///
    /// # Safety
    /// `src` must be readable and `dst` writable for `n_bytes`, whole elements; they are equal or do not overlap.
    pub unsafe fn allreduce_raw(
        &mut self,
        buffers: Buffers,
        n_bytes: usize,
        reduction: Reduction,
    ) -> Result<(), Error> {
        self.check_usable()?;
        if n_bytes == 0 {
            return Ok(());
        }
        // SAFETY: `buffers` are valid for `n_bytes` by the function's contract.
        let outcome = unsafe {
            if self.size() == 1 {
                buffers.copy_input_to_output(n_bytes);
                reduction.apply_factor(buffers.dst, n_bytes);
                Ok(())
            } else if self.topology.n_hosts() == 1 {
                self.allreduce_local(buffers, n_bytes, reduction)
            } else {
                self.allreduce_hierarchical(buffers, n_bytes, reduction)
            }
        };
        self.record_failure(outcome)
    }

    /// Allreduce among the members of one host.
    ///
    /// # Safety
    /// As [`Communicator::allreduce_raw`].
    unsafe fn allreduce_local(&mut self, buffers: Buffers, n_bytes: usize, reduction: Reduction) -> Result<(), Error> {
        let sync = self.sync.as_mut().expect("several members on one host have a step synchronisation");
        let input = SelectInput { n_bytes, n: sync.n(), n_cores: self.n_cores, has_cma: self.reader.is_some() };
        let algorithm = select::select_allreduce(input, &self.algorithm_override);
        if algorithm == Algorithm::OneShot {
            // SAFETY: `buffers` are valid for `n_bytes`, and the selection has checked that they fit into a slot.
            return unsafe { one_shot::allreduce(sync, buffers, n_bytes, reduction, &mut self.sources) };
        }
        let part = partition::split_even(n_bytes, sync.n(), reduction.dtype.size());
        self.parts.clear();
        self.parts.extend((0..sync.n()).map(part));
        let collective = Collective::Allreduce(reduction);
        // SAFETY: `buffers` are valid for `n_bytes` by the function's contract, which the parts cover.
        unsafe { self.run_local(buffers, collective, algorithm) }
    }

    /// Runs a collective among the members of this host over `self.parts`.
    ///
    /// # Safety
    /// As [`pipelined_shm::run`].
    unsafe fn run_local(
        &mut self,
        buffers: Buffers,
        collective: Collective,
        algorithm: Algorithm,
    ) -> Result<(), Error> {
        let sync = self.sync.as_mut().expect("several members on one host have a step synchronisation");
        // SAFETY: this function has the contract of the algorithms.
        unsafe {
            match (algorithm, &mut self.reader) {
                (Algorithm::Cma, Some(reader)) => cma_collectives::run(sync, buffers, &self.parts, collective, reader),
                (Algorithm::PipelinedShm { chunk }, _) => {
                    pipelined_shm::run(sync, buffers, &self.parts, collective, chunk, &mut self.pipeline)
                }
                (Algorithm::Cma | Algorithm::OneShot, _) => pipelined_shm::run(
                    sync,
                    buffers,
                    &self.parts,
                    collective,
                    StepSync::STAGE_BYTES,
                    &mut self.pipeline,
                ),
            }
        }
    }

    /// Allreduce between hosts: reduce-scatter within each host, allreduce of each part between the hosts on its own rail, allgather within each host.
    ///
    /// # Safety
    /// As [`Communicator::allreduce_raw`].
    unsafe fn allreduce_hierarchical(
        &mut self,
        buffers: Buffers,
        n_bytes: usize,
        reduction: Reduction,
    ) -> Result<(), Error> {
        let n_locals = self.topology.locals().len();
        let n_rails = if n_bytes < RAILS_MIN_BYTES { 1 } else { self.topology.n_rails() };
        let part = partition::split_even(n_bytes, n_rails, reduction.dtype.size());
        let own = if self.topology.local_rank() < n_rails { part(self.topology.local_rank()) } else { 0..0 };
        let plain = Reduction { factor: 1.0, ..reduction };
        // SAFETY: `buffers` are valid for `n_bytes` by the function's contract, and all parts are within them.
        unsafe {
            if n_locals > 1 {
                self.parts.clear();
                let locals = (0..n_locals).map(|local| if local < n_rails { part(local) } else { n_bytes..n_bytes });
                self.parts.extend(locals);
                let algorithm = self.select_local(n_bytes, n_locals);
                self.run_local(buffers, Collective::ReduceScatter(plain), algorithm)?;
            } else {
                buffers.copy_input_to_output(n_bytes);
            }
            if !own.is_empty() {
                let rail: Vec<usize> = self.topology.rail(self.topology.local_rank()).collect();
                self.allreduce_on_rail(&rail, buffers.dst.add(own.start), own.len(), reduction)?;
            }
            if n_locals > 1 {
                // The ring has replaced the list.
                self.parts.clear();
                let locals = (0..n_locals).map(|local| if local < n_rails { part(local) } else { n_bytes..n_bytes });
                self.parts.extend(locals);
                let algorithm = self.select_local(n_bytes, n_locals);
                let taken = Buffers { src: buffers.dst, dst: buffers.dst };
                self.run_local(taken, Collective::Allgather, algorithm)?;
            }
        }
        Ok(())
    }

    fn select_local(&self, n_bytes: usize, n: usize) -> Algorithm {
        let input = SelectInput { n_bytes, n, n_cores: self.n_cores, has_cma: self.reader.is_some() };
        match select::select_allreduce(input, &self.algorithm_override) {
            Algorithm::OneShot => Algorithm::PipelinedShm { chunk: StepSync::STAGE_BYTES },
            algorithm => algorithm,
        }
    }

    /// Allreduce in place among the members of a rail.
    ///
    /// # Safety
    /// `data` must be valid for reads and writes of `n_bytes`, whole elements.
    unsafe fn allreduce_on_rail(
        &mut self,
        rail: &[usize],
        data: *mut u8,
        n_bytes: usize,
        reduction: Reduction,
    ) -> Result<(), Error> {
        let me = self.topology.host();
        let ring = Ring { members: rail, me };
        let n_stripes = self.n_stripes(n_bytes);
        let mut endpoint = Endpoint { links: &mut self.links, sync: self.sync.as_ref() };
        // SAFETY: `data` is valid for `n_bytes` by the function's contract, and the scratch is at least as long.
        unsafe {
            if n_bytes < RING_MIN_BYTES {
                self.scratch.resize(self.scratch.len().max(n_bytes), 0);
                return pairwise::recursive_doubling(&mut endpoint, ring, data, n_bytes, reduction, &mut self.scratch);
            }
            let part = partition::split_even(n_bytes, rail.len(), reduction.dtype.size());
            self.parts.clear();
            self.parts.extend((0..rail.len()).map(part));
            let (element, collective) = (reduction.dtype.size(), Collective::Allreduce(reduction));
            let task = RingTask { parts: &self.parts, element, collective, n_stripes };
            ring::run(endpoint, ring, data, task, &mut self.stripes)
        }
    }

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
                std::ptr::copy_nonoverlapping(src.add(own.start), out, own.len());
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

    /// Runs a collective as a ring over all members, through shared memory and TCP.
    ///
    /// # Safety
    /// As [`ring::run`].
    unsafe fn run_ring(
        &mut self,
        dst: *mut u8,
        parts: &[Range<usize>],
        element: usize,
        collective: Collective,
    ) -> Result<(), Error> {
        let members: Vec<usize> = (0..self.size()).collect();
        let ring = Ring { members: &members, me: self.me };
        // A link through shared memory has one stream, and all members must use the same number of stripes.
        let n_bytes = parts.iter().map(|part| part.end).max().unwrap_or(0);
        let n_stripes = if self.topology.is_one_per_host() { self.n_stripes(n_bytes) } else { 1 };
        let endpoint = Endpoint { links: &mut self.links, sync: self.sync.as_ref() };
        let task = RingTask { parts, element, collective, n_stripes };
        // SAFETY: this function has the contract of `ring::run`.
        unsafe { ring::run(endpoint, ring, dst, task, &mut self.stripes) }
    }

    /// Number of stripes. More streams cost system calls, so small buffers use one.
    fn n_stripes(&self, n_bytes: usize) -> usize {
        (n_bytes / STRIPE_MIN_BYTES).clamp(1, self.world.options.n_streams.max(1))
    }

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

    pub fn barrier_raw(&mut self) -> Result<(), Error> {
        self.check_usable()?;
        if self.size() == 1 {
            return Ok(());
        }
        if let (Some(sync), 1) = (&mut self.sync, self.topology.n_hosts()) {
            let outcome = one_shot::barrier(sync);
            return self.record_failure(outcome);
        }
        let mut byte = 0u8;
        let reduction = Reduction { dtype: crate::Dtype::U8, combine: crate::Combine::Max, factor: 1.0 };
        let buffers = Buffers { src: &raw const byte, dst: &raw mut byte };
        // SAFETY: `buffers` point to one byte.
        unsafe { self.allreduce_raw(buffers, 1, reduction) }
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

    fn check_usable(&self) -> Result<(), Error> {
        if let Some(error) = &self.broken {
            return Err(error.clone());
        }
        // A rank that only sends would notice a death late.
        self.world.peer_table.death().map_or(Ok(()), Err)
    }

    /// Records a failure. The members are then out of step, so all later operations must fail.
    fn record_failure(&mut self, outcome: Result<(), Error>) -> Result<(), Error> {
        if let Err(error) = &outcome {
            self.broken = Some(error.clone());
            // The other ranks may not know of it, and would wait for this rank.
            if let Error::Link { peer, .. } | Error::Silent { peer, .. } = error {
                self.world.failure_detector.give_up(peer.rank);
            }
        }
        outcome
    }
}

/// Replaces `a` by the adaptive sum of `a` and `b`.
fn adasum(dtype: crate::Dtype, a: &mut [u8], b: &[u8]) {
    let dots = reduce::dots(dtype, a, b).expect("the caller has checked that the dtype is a float");
    reduce::adasum_into(dtype, dots, a, b).expect("the dtype is a float");
}
