//! The ordered API: all members call the same operations in the same order, as in MPI, and the calling thread does the work. No negotiation, no
//! other thread. The named API ([`crate::engine`]) executes its operations with it.
//!
//! [`typed`] and [`grouped`] are the public operations on slices, [`raw`] operates on addresses, [`topology`] groups members by host.

pub mod grouped;
pub mod raw;
pub mod topology;
pub mod typed;

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::algorithm::cma_collectives::CmaReader;
use crate::algorithm::pipelined_shm::{self, PipelineScratch};
use crate::algorithm::ring::RingScratch;
use crate::algorithm::{Buffers, Collective, one_shot};
use crate::algorithm_override::AlgorithmOverride;
use crate::communicator::topology::Topology;
use crate::error::Error;
use crate::options::DirectRead;
use crate::transport::connect::error::ConnectError;
use crate::transport::link::{Link, Links};
use crate::transport::peer_table::PeerTable;
use crate::transport::shm::cma::{self, Pid};
use crate::transport::shm::segment::CommRegion;
use crate::transport::shm::step_sync::StepSync;
use crate::transport::tcp::dial::connect_mesh;
use crate::transport::wait_policy::WaitPolicy;
use crate::world_state::WorldState;

/// A group of ranks, its members, that perform collective operations. The operations are in [`typed`] and [`grouped`].
///
/// Used by one thread at a time. After an operation has failed, because a member died or left, all later ones fail too;
/// [invalid arguments](crate::error::InvalidArgument) change nothing.
pub struct Communicator {
    /// Members as ranks of the world, ascending.
    ranks: Vec<usize>,
    me: usize,
    topology: Topology,
    /// Synchronisation with the other members of this host; `None` if there are none.
    sync: Option<StepSync>,
    /// `None` where members cannot read each other's memory.
    reader: Option<CmaReader>,
    links: Links,
    algorithm_override: AlgorithmOverride,
    n_cores: usize,
    /// Buffers that are reused by all operations.
    pipeline: PipelineScratch,
    stripes: RingScratch,
    sources: Vec<*const u8>,
    parts: Vec<Range<usize>>,
    scratch: Vec<u8>,
    fused: Vec<u8>,
    /// The failure after which the communicator is unusable.
    broken: Option<Error>,
    world: Arc<WorldState>,
}

// SAFETY: the raw pointers in its scratch lists are used only within an operation, which borrows the communicator exclusively.
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
        let remote: Vec<usize> = (0..ranks.len()).filter(|member| !locals.contains(member)).collect();
        let addresses = |member: &usize| {
            let rank = ranks[*member];
            (rank, world.peer_infos[rank].addresses.as_slice())
        };
        let peers: Vec<_> = remote.iter().map(addresses).collect();
        let n_streams = world.options.n_streams.max(1);
        let (credentials, peer_table) = (&world.credentials, &world.peer_table);
        let streams =
            connect_mesh(&world.listener, rank, &peers, comm_id, n_streams, credentials, peer_table, deadline)?;
        let mut links: Vec<Link> = ranks.iter().map(|_| Link::None).collect();
        for (rank_info, member) in locals.iter().enumerate().filter(|(_, member)| **member != me) {
            links[*member] = Link::Ring(rank_info);
        }
        for (member, streams) in remote.into_iter().zip(streams) {
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
            pipeline: PipelineScratch::default(),
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

    /// Rank of this process among the members, from 0.
    pub fn rank(&self) -> usize {
        self.me
    }

    /// Number of members.
    pub fn size(&self) -> usize {
        self.ranks.len()
    }

    /// The members as ranks of the world, ascending.
    pub fn world_ranks(&self) -> &[usize] {
        &self.ranks
    }

    /// Memory shared by all members for the descriptions of their tensors in device memory, zero at first; `None` if they are not all on this
    /// host.
    pub(crate) fn device_area(&self) -> Option<(*mut u8, Arc<CommRegion>)> {
        let sync = self.sync.as_ref().filter(|_| self.topology.n_hosts() == 1)?;
        Some((sync.region().device_area(), sync.region().clone()))
    }

    /// The ranks of the world, with the deaths that are known.
    pub(crate) fn peer_table(&self) -> &Arc<PeerTable> {
        &self.world.peer_table
    }

    /// How threads wait, and the table in which long waits are reported.
    pub(crate) fn wait_policy(&self) -> (WaitPolicy, &PeerTable) {
        (self.world.wait_policy, &self.world.peer_table)
    }

    /// Number that is the same for all members of this host.
    pub(crate) fn host_id(&self) -> usize {
        self.world.lowest[self.world.rank_info.rank]
    }

    /// Limits the time that an operation waits for a peer without progress. Only for operations that all members
    /// are known to have begun: otherwise a rank that still computes would be taken for one that hangs.
    pub fn limit_silence(&mut self, limit: Option<Duration>) {
        self.links.limit = limit;
        if let Some(sync) = &mut self.sync {
            sync.limit_silence(limit);
        }
    }

    /// Tests whether the members of this host can read each other's memory. Every member reads from every other, and all must succeed.
    fn probe_cma(&mut self) -> Result<Option<CmaReader>, ConnectError> {
        let Some(sync) = &mut self.sync else { return Ok(None) };
        let mut token = [0; 16];
        getrandom::fill(&mut token).map_err(|error| ConnectError::SharedMemory(std::io::Error::other(error)))?;
        let token = Box::new(u128::from_ne_bytes(token));
        let (n, me) = (sync.n(), sync.me());
        let mut probes = vec![[0u64; 4]; n];
        probes[me] = [u64::from(std::process::id()), &raw const *token as u64, *token as u64, (*token >> 64) as u64];
        let parts: Vec<Range<usize>> = (0..n).map(|member| member * 32..(member + 1) * 32).collect();
        let all_probes = probes.as_mut_ptr().cast::<u8>();
        let buffers = Buffers { src: all_probes, dst: all_probes };
        // SAFETY: `probes` is an array of `n` parts of 32 bytes.
        unsafe {
            pipelined_shm::run(sync, buffers, &parts, Collective::Allgather, StepSync::STAGE_BYTES, &mut self.pipeline)?
        };
        let readable = |member: &[u64; 4]| {
            let token = u128::from(member[2]) | u128::from(member[3]) << 64;
            cma::works(Pid(member[0] as i32), member[1], token)
        };
        let mode = self.world.options.direct_read;
        let mut works = u8::from(mode != DirectRead::Never && probes.iter().all(readable));
        let reduction = crate::algorithm::Reduction {
            dtype: crate::dtype::Dtype::U8,
            combine: crate::op::Combine::Min,
            factor: 1.0,
        };
        let buffers = Buffers { src: &raw const works, dst: &raw mut works };
        // SAFETY: `works` is one byte. The token outlives all reads: every member has read it when it contributes to this allreduce.
        unsafe { one_shot::allreduce(sync, buffers, 1, reduction, &mut self.sources)? };
        drop(token);
        if works == 0 && mode == DirectRead::Require {
            return Err(ConnectError::CmaUnavailable);
        }
        let pids = probes.iter().map(|member| Pid(member[0] as i32)).collect();
        Ok((works == 1).then(|| CmaReader::new(pids)))
    }
}
