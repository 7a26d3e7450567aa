//! Operations on addresses and bytes: selects an algorithm, runs it, and records failures. Callers have checked the arguments.
//!
//! This file runs a selected algorithm; the operations are in `allreduce` (with the barrier), `parts` (allgather, broadcast, reduce-scatter) and `exchange`
//! (alltoall, Adasum).

mod allreduce;
mod exchange;
mod parts;

use std::ops::Range;

use crate::algorithm::ring::{self, Ring, RingTask};
use crate::algorithm::select::{self, SelectInput};
use crate::algorithm::{Buffers, Collective, cma_collectives, pipelined_shm};
use crate::algorithm_override::Algorithm;
use crate::communicator::Communicator;
use crate::error::Error;
use crate::transport::link::Endpoint;
use crate::transport::shm::step_sync::StepSync;

/// Minimum bytes per stream to a neighbour.
const STRIPE_MIN_BYTES: usize = 512 * 1024;

impl Communicator {
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

    fn select_local(&self, n_bytes: usize, n: usize) -> Algorithm {
        let input = SelectInput { n_bytes, n, n_cores: self.n_cores, has_cma: self.reader.is_some() };
        match select::select_allreduce(input, &self.algorithm_override) {
            Algorithm::OneShot => Algorithm::PipelinedShm { chunk: StepSync::STAGE_BYTES },
            algorithm => algorithm,
        }
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
