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

use crate::algorithm::choice::Forced;
use crate::algorithm::direct::Reader;
use crate::algorithm::ring::Stripes;
use crate::algorithm::staged::{self, Lists, Work};
use crate::algorithm::{Buffers, flat};
use crate::communicator::topology::Topology;
use crate::error::Error;
use crate::options::DirectRead;
use crate::transport::connect::ConnectError;
use crate::transport::link::{Link, Links};
use crate::transport::shm::cma::{self, Pid};
use crate::transport::shm::step_sync::StepSync;
use crate::transport::tcp;
use crate::world::Shared;

/// The direct door for some ranks, its members. What they can do together is in [`typed`] and [`grouped`].
///
/// Belongs to one thread at a time. After an operation has failed, because a member died or left, all that follow fail too; what was
/// merely [refused](crate::error::Refused) changes nothing.
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
    forced: Forced,
    n_cores: usize,
    /// What operations use again and again.
    lists: Lists,
    stripes: Stripes,
    sources: Vec<*const u8>,
    parts: Vec<Range<usize>>,
    scratch: Vec<u8>,
    fused: Vec<u8>,
    /// Why nothing works any more.
    broken: Option<Error>,
    world: Arc<Shared>,
}

// SAFETY: the addresses in its lists mean nothing between operations, and operations need it whole.
unsafe impl Send for Communicator {}

impl Communicator {
    pub(crate) fn connect(world: Arc<Shared>, ranks: Vec<usize>, area: u64) -> Result<Communicator, ConnectError> {
        let deadline = Instant::now() + world.timeout;
        let rank = world.place.rank;
        let me = ranks.iter().position(|member| *member == rank).expect("the caller is a member");
        let topology = Topology::of(&ranks.iter().map(|rank| world.lowest[*rank]).collect::<Vec<_>>(), me);
        let locals = topology.locals().to_vec();
        let sync = match &world.segment {
            Some(segment) if locals.len() > 1 => {
                let mapped = segment.area(area).map_err(ConnectError::Memory)?;
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
        let streams = tcp::mesh(&world.listening, rank, &peers, area, n_streams, credentials, peer_table, deadline)?;
        let mut links: Vec<Link> = ranks.iter().map(|_| Link::None).collect();
        for (place, member) in locals.iter().enumerate().filter(|(_, member)| **member != me) {
            links[*member] = Link::Ring(place);
        }
        for (member, streams) in far.into_iter().zip(streams) {
            links[member] = Link::Tcp(streams);
        }
        let forced = world.options.forced;
        let mut communicator = Communicator {
            links: Links::new(links, ranks.clone(), world.peer_table.clone(), world.spin_limit),
            ranks,
            me,
            topology,
            sync,
            reader: None,
            forced,
            n_cores: world.n_cores,
            lists: Lists::default(),
            stripes: Stripes::default(),
            sources: Vec::new(),
            parts: Vec::new(),
            scratch: Vec::new(),
            fused: Vec::new(),
            broken: None,
            world,
        };
        communicator.reader = communicator.try_reading()?;
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
    fn try_reading(&mut self) -> Result<Option<Reader>, ConnectError> {
        let Some(sync) = &mut self.sync else { return Ok(None) };
        let mut token = [0; 16];
        getrandom::fill(&mut token).map_err(|error| ConnectError::Memory(std::io::Error::other(error)))?;
        let token = Box::new(u128::from_ne_bytes(token));
        let (n, me) = (sync.n(), sync.me());
        let mut shown = vec![[0u64; 4]; n];
        shown[me] = [u64::from(std::process::id()), &raw const *token as u64, *token as u64, (*token >> 64) as u64];
        let parts: Vec<Range<usize>> = (0..n).map(|member| member * 32..(member + 1) * 32).collect();
        let everybody = shown.as_mut_ptr().cast::<u8>();
        let buffers = Buffers { src: everybody, dst: everybody };
        // SAFETY: an array of that many parts.
        unsafe { staged::run(sync, buffers, &parts, Work::Take, StepSync::STAGE_BYTES, &mut self.lists)? };
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
        unsafe { flat::allreduce(sync, buffers, 1, reduction, &mut self.sources)? };
        drop(token);
        if works == 0 && wanted == DirectRead::Insist {
            return Err(ConnectError::NotReadable);
        }
        let pids = shown.iter().map(|member| Pid(member[0] as i32)).collect();
        Ok((works == 1).then(|| Reader::new(pids)))
    }
}
