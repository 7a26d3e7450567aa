//! Allreduce: on one host by the selected algorithm, between hosts hierarchically, each part on its own rail. A barrier
//! between hosts is an allreduce of one byte.

use crate::algorithm::pairwise;
use crate::algorithm::ring::{self, Ring, RingTask};
use crate::algorithm::select::{self, SelectInput};
use crate::algorithm::{Buffers, Collective, Reduction, one_shot, partition};
use crate::algorithm_override::Algorithm;
use crate::communicator::Communicator;
use crate::error::Error;
use crate::transport::link::Endpoint;

/// From this size on the ring is faster than recursive doubling (measured with 4 hosts).
const RING_MIN_BYTES: usize = 256 * 1024;
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
}
