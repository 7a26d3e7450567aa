//! The direct door: all members call the same operations in the same order, and the calling thread does the work. No negotiation, no
//! other thread. The negotiated door stands on it.
//!
//! `raw` does operations over addresses, `typed` and `grouped` are what people call, [`topology`] says who is where.

pub mod grouped;
pub mod raw;
pub mod topology;
pub mod typed;

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::algorithm::cma_collectives::Reader;
use crate::algorithm::pipelined_shm::{self, PipelineScratch};
use crate::algorithm::ring::RingScratch;
use crate::algorithm::{Buffers, Collective, one_shot};
use crate::algorithm_override::AlgorithmOverride;
use crate::communicator::topology::Topology;
use crate::error::Error;
use crate::options::DirectRead;
use crate::transport::connect::error::ConnectError;
use crate::transport::link::{Link, Links};
use crate::transport::shm::cma::{self, Pid};
use crate::transport::shm::step_sync::StepSync;
use crate::transport::tcp::dial::connect_mesh;
use crate::world_state::WorldState;

/// The direct door for some ranks, its members. What they can do together is in [`typed`] and [`grouped`].
///
/// Belongs to one thread at a time. After an operation has failed, because a member died or left, all that follow fail too; what was
/// merely [refused](crate::error::InvalidArgument) changes nothing.
pub struct Communicator {
    /// Members as ranks of the world, ascending.
    ranks: Vec<usize>,
    me: usize,
    topology: Topology,
    /// Shared with the members of this host, if there are others.
    sync: Option<StepSync>,
    /// Where members may read each other's memory.
    reader: Option<Reader>,
    links: Links,
    algorithm_override: AlgorithmOverride,
    n_cores: usize,
    /// What operations use again and again.
    lists: PipelineScratch,
    stripes: RingScratch,
    sources: Vec<*const u8>,
    parts: Vec<Range<usize>>,
    scratch: Vec<u8>,
    fused: Vec<u8>,
    /// Why nothing works any more.
    broken: Option<Error>,
    world: Arc<WorldState>,
}

// SAFETY: the addresses in its lists mean nothing between operations, and operations need it whole.
unsafe impl Send for Communicator {}

impl Communicator {
    pub(crate) fn connect(
        world: Arc<WorldState>,
        ranks: Vec<usize>,
        comm_id: u64,
    ) -> Result<Communicator, ConnectError> {
        let deadline = Instant::now() + world.timeout;
        let rank = world.rank_info.rank;
        let me = ranks.iter().position(|member| *member == rank).expect("the caller is a member");
        let topology = Topology::new(&ranks.iter().map(|rank| world.lowest[*rank]).collect::<Vec<_>>(), me);
        let locals = topology.locals().to_vec();
        let sync = match &world.segment {
            Some(segment) if locals.len() > 1 => {
                let mapped = segment.comm_region(comm_id).map_err(ConnectError::SharedMemory)?;
                let local_ranks = locals.iter().map(|member| ranks[*member]).collect();
                let peer_table = world.peer_table.clone();
                Some(StepSync::new(Arc::new(mapped), local_ranks, topology.local_rank(), world.wait_policy, peer_table))
            }
            _ => None,
        };
        let far: Vec<usize> = (0..ranks.len()).filter(|member| !locals.contains(member)).collect();
        let addresses = |member: &usize| {
            let rank = ranks[*member];
            (rank, world.peer_infos[rank].addresses.as_slice())
        };
        let peers: Vec<_> = far.iter().map(addresses).collect();
        let n_streams = world.options.n_streams.max(1);
        let (credentials, peer_table) = (&world.credentials, &world.peer_table);
        let streams =
            connect_mesh(&world.listener, rank, &peers, comm_id, n_streams, credentials, peer_table, deadline)?;
        let mut links: Vec<Link> = ranks.iter().map(|_| Link::None).collect();
        for (rank_info, member) in locals.iter().enumerate().filter(|(_, member)| **member != me) {
            links[*member] = Link::Ring(rank_info);
        }
        for (member, streams) in far.into_iter().zip(streams) {
            links[member] = Link::Tcp(streams);
        }
        let algorithm_override = world.options.algorithm_override;
        let mut communicator = Communicator {
            links: Links::new(links, ranks.clone(), world.peer_table.clone(), world.spin_limit),
            ranks,
            me,
            topology,
            sync,
            reader: None,
            algorithm_override,
            n_cores: world.n_cores,
            lists: PipelineScratch::default(),
            stripes: RingScratch::default(),
            sources: Vec::new(),
            parts: Vec::new(),
            scratch: Vec::new(),
            fused: Vec::new(),
            broken: None,
            world,
        };
        communicator.reader = communicator.probe_cma()?;
        Ok(communicator)
    }

    /// This process's number among the members, from 0.
    pub fn rank(&self) -> usize {
        self.me
    }

    /// How many members there are.
    pub fn size(&self) -> usize {
        self.ranks.len()
    }

    /// The members as ranks of the world, ascending.
    pub fn world_ranks(&self) -> &[usize] {
        &self.ranks
    }

    /// From now on an operation fails when a peer that it needs has been silent for so long. Only for operations that all members
    /// are known to have begun: otherwise a rank that computes would be taken for one that hangs.
    pub fn limit_silence(&mut self, limit: Option<Duration>) {
        self.links.limit = limit;
        if let Some(sync) = &mut self.sync {
            sync.limit_silence(limit);
        }
    }

    /// Whether the members of this host may read each other: everybody tries everybody, and all must agree.
    fn probe_cma(&mut self) -> Result<Option<Reader>, ConnectError> {
        let Some(sync) = &mut self.sync else { return Ok(None) };
        let mut token = [0; 16];
        getrandom::fill(&mut token).map_err(|error| ConnectError::SharedMemory(std::io::Error::other(error)))?;
        let token = Box::new(u128::from_ne_bytes(token));
        let (n, me) = (sync.n(), sync.me());
        let mut shown = vec![[0u64; 4]; n];
        shown[me] = [u64::from(std::process::id()), &raw const *token as u64, *token as u64, (*token >> 64) as u64];
        let parts: Vec<Range<usize>> = (0..n).map(|member| member * 32..(member + 1) * 32).collect();
        let everybody = shown.as_mut_ptr().cast::<u8>();
        let buffers = Buffers { src: everybody, dst: everybody };
        // SAFETY: an array of that many parts.
        unsafe {
            pipelined_shm::run(sync, buffers, &parts, Collective::Allgather, StepSync::STAGE_BYTES, &mut self.lists)?
        };
        let readable = |member: &[u64; 4]| {
            let token = u128::from(member[2]) | u128::from(member[3]) << 64;
            cma::works(Pid(member[0] as i32), member[1], token)
        };
        let wanted = self.world.options.direct_read;
        let mut works = u8::from(wanted != DirectRead::Never && shown.iter().all(readable));
        let reduction = crate::algorithm::Reduction {
            dtype: crate::dtype::Dtype::U8,
            combine: crate::op::Combine::Min,
            factor: 1.0,
        };
        let buffers = Buffers { src: &raw const works, dst: &raw mut works };
        // SAFETY: one byte. The token lives until all have read it, which they have when they say what they saw.
        unsafe { one_shot::allreduce(sync, buffers, 1, reduction, &mut self.sources)? };
        drop(token);
        if works == 0 && wanted == DirectRead::Require {
            return Err(ConnectError::CmaUnavailable);
        }
        let pids = shown.iter().map(|member| Pid(member[0] as i32)).collect();
        Ok((works == 1).then(|| Reader::new(pids)))
    }
}
