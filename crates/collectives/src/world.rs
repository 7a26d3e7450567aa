//! All ranks of a job, connected. Made once, at the start; communicators are made from it. Who enters: whoever starts an engine or uses
//! the direct door. Dropping it, and everything made from it, says goodbye.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::bootstrap::meet::{join, leave};
use crate::bootstrap::place::{Launch, Meeting, Place};
use crate::communicator::Communicator;
use crate::cores::Cores;
use crate::error::Peer;
use crate::options::{Options, Transport, fit};
use crate::transport::connect::{ConnectError, Credentials};
use crate::transport::connect_watch::ConnectWatch;
use crate::transport::control::connection::Wire;
use crate::transport::control::failure_detector::FailureDetector;
use crate::transport::control::peer_table::PeerTable;
use crate::transport::peer_info::PeerInfo;
use crate::transport::shm::handover::{self, Door};
use crate::transport::shm::segment::Segment;
use crate::transport::tcp::{self, CONTROL, Listening, own_addresses};
use crate::transport::wait_policy::WaitPolicy;

/// This rank's connections to all others. Cheap to keep; communicators outlive it.
pub struct World {
    pub(crate) shared: Arc<Shared>,
}

/// What communicators need of their world.
pub(crate) struct Shared {
    pub place: Place,
    pub peer_table: Arc<PeerTable>,
    /// By rank.
    pub peer_infos: Vec<PeerInfo>,
    /// For each rank, the lowest rank of its machine.
    pub lowest: Vec<usize>,
    pub segment: Option<Segment>,
    pub listening: Listening,
    pub credentials: Credentials,
    pub wait_policy: WaitPolicy,
    /// Processors of this host that its ranks may use: the same number on all of them, whatever each is bound to.
    pub n_cores: usize,
    /// How often a stream is tried before we sleep.
    pub spin_limit: u32,
    pub options: Options,
    pub timeout: Duration,
    pub next_area: AtomicU64,
    /// On rank 0: bytes of rooms that are taken. The others are told.
    pub next_room: AtomicU64,
    /// Says goodbye when the last communicator is gone.
    pub failure_detector: FailureDetector,
}

/// Worlds made by this process: they meet apart from each other.
static ROUNDS: AtomicU64 = AtomicU64::new(0);

impl World {
    /// Returns when all ranks have come and are connected. Collective: a process that makes several worlds makes them in the same order
    /// on every rank.
    ///
    /// # Errors
    /// When ranks are missing or unreachable after the launch's timeout, or one cannot prove that it belongs to the job.
    pub fn connect(launch: &Launch, options: &Options) -> Result<World, ConnectError> {
        World::connect_round(launch, options, ROUNDS.fetch_add(1, Ordering::Relaxed))
    }

    /// For ranks that are threads of one process: `round` must be the same for all, and new.
    pub fn connect_round(launch: &Launch, options: &Options, round: u64) -> Result<World, ConnectError> {
        let deadline = Instant::now() + launch.timeout;
        let rank = launch.place.rank;
        let door = Door::open().map_err(ConnectError::Network)?;
        let interfaces: Vec<String> = launch
            .interface
            .iter()
            .flat_map(|names| names.split(','))
            .map(|name| name.trim().to_owned())
            .filter(|name| !name.is_empty())
            .collect();
        let hosts = match launch.meeting {
            // Nobody will come.
            Meeting::Alone => vec![std::net::Ipv4Addr::LOCALHOST.into()],
            _ => own_addresses(&interfaces)?,
        };
        let listening = Listening::open(&hosts, launch.ports.as_ref())?;
        let mut token = [0; 16];
        getrandom::fill(&mut token).map_err(|error| ConnectError::Network(std::io::Error::other(error)))?;
        let mine = PeerInfo {
            token,
            machine: match options.transport {
                Transport::Auto | Transport::SharedMemory => machine(),
                Transport::Tcp => format!("rank {rank}"),
            },
            hostname: launch.place.hostname.clone(),
            pid: std::process::id(),
            pid_namespace: pid_namespace(),
            door: door.name,
            cores: Cores::own(),
            forced: options.forced,
            addresses: listening.addresses.clone(),
        };
        let (met, session) = join(launch, round, &mine.encode(), deadline)?;
        let read = |(rank, bytes): (usize, &Vec<u8>)| PeerInfo::decode(bytes).ok_or(ConnectError::PeerInfo { rank });
        let peer_infos: Vec<PeerInfo> = met.iter().enumerate().map(read).collect::<Result<_, _>>()?;
        let place = launch.place.clone().complete(&peer_infos.iter().map(|peer| &peer.hostname).collect::<Vec<_>>());
        let lowest = lowest_of_machines(&peer_infos);
        fit(options.transport, &peer_infos)?;
        let peers = peer_infos.iter().enumerate();
        let peers = peers.map(|(rank, peer)| Peer { rank, host: peer.hostname.as_str().into() }).collect();
        let peer_table = Arc::new(PeerTable::new(peers));
        let watch =
            ConnectWatch::start(session, rank, &peer_infos, peer_table.clone()).map_err(ConnectError::Thread)?;
        let credentials = Credentials { secret: launch.secret.clone(), world: peer_infos[0].token };
        let locals: Vec<usize> = (0..place.size).filter(|other| lowest[*other] == lowest[rank]).collect();
        let (segment, mut ties) = if locals.len() > 1 {
            let lowest_door = peer_infos[locals[0]].door;
            let gathered = handover::gather(door, &lowest_door, &locals, rank, &credentials, &peer_table, deadline)
                .map_err(|error| watch.explain(error, deadline))?;
            let ties = gathered.watched.into_iter().map(|(rank, stream)| (rank, Wire::Unix(stream))).collect();
            (Some(gathered.segment), ties)
        } else {
            (None, Vec::new())
        };
        // The ranks of other machines are tied to rank 0.
        let far: Vec<usize> = match rank {
            0 => (1..place.size).filter(|other| lowest[*other] != 0).collect(),
            _ if lowest[rank] != 0 => vec![0],
            _ => Vec::new(),
        };
        let far_peers: Vec<_> = far.iter().map(|other| (*other, peer_infos[*other].addresses.as_slice())).collect();
        let wires = tcp::mesh(&listening, rank, &far_peers, CONTROL, 1, &credentials, &peer_table, deadline)
            .map_err(|error| watch.explain(error, deadline))?;
        ties.extend(far.iter().zip(wires).map(|(rank, mut wires)| (*rank, Wire::Tcp(wires.remove(0)))));
        let failure_detector = FailureDetector::start(rank, ties, peer_table.clone(), options.report_after)
            .map_err(ConnectError::Thread)?;
        let n_cores = Cores::together(locals.iter().map(|local| &peer_infos[*local].cores));
        let wait_policy = WaitPolicy::of(locals.len(), n_cores);
        // "Hosts" may be containers that share the cores of one kernel: then whoever we wait for needs ours. A yield would not do: on
        // recent kernels it costs a thread its turn for milliseconds.
        let kernel = |peer: &PeerInfo| peer.machine.split(' ').next().map(str::to_owned);
        let n_beside = peer_infos.iter().filter(|peer| kernel(peer) == kernel(&peer_infos[rank])).count();
        let spin_limit = if n_beside <= n_cores { 60 } else { 4 };
        let world = World {
            shared: Arc::new(Shared {
                place,
                peer_table,
                peer_infos,
                lowest,
                segment,
                listening,
                credentials,
                wait_policy,
                n_cores,
                spin_limit,
                options: options.clone(),
                timeout: launch.timeout,
                next_area: AtomicU64::new(0),
                next_room: AtomicU64::new(0),
                failure_detector,
            }),
        };
        // All are connected when all have said so over the connections; then nobody needs the meeting place any more.
        let connected = world.communicator().and_then(|mut all| Ok(all.barrier()?));
        // While the world is there: what the others are told with its end would be less than the reason.
        connected.map_err(|error| watch.explain(error, deadline))?;
        watch.finish();
        leave(launch, round, deadline)?;
        Ok(world)
    }

    /// Where this rank is: in the job, on its host, among the hosts.
    pub fn place(&self) -> &Place {
        &self.shared.place
    }

    /// From 0.
    pub fn rank(&self) -> usize {
        self.shared.place.rank
    }

    /// How many ranks there are.
    pub fn size(&self) -> usize {
        self.shared.place.size
    }

    /// A communicator of all ranks. Collective; every rank makes its communicators in the same order.
    ///
    /// # Errors
    /// When memory or connections for it cannot be had, or a rank is gone.
    pub fn communicator(&self) -> Result<Communicator, ConnectError> {
        let all: Vec<usize> = (0..self.size()).collect();
        Ok(self.subset(&all)?.expect("this rank is one of all"))
    }

    /// A communicator of some ranks, ascending; its own ranks count from 0 again. Collective over *all* ranks of the world; `None` for
    /// those that are not in it.
    ///
    /// # Errors
    /// As [`World::communicator`], and when the ranks are not ascending or not there.
    pub fn subset(&self, ranks: &[usize]) -> Result<Option<Communicator>, ConnectError> {
        let ascending = ranks.windows(2).all(|pair| pair[0] < pair[1]);
        if ranks.is_empty() || !ascending || ranks.iter().any(|rank| *rank >= self.size()) {
            return Err(ConnectError::Members { ranks: ranks.to_vec(), size: self.size() });
        }
        // Everybody counts, member or not, so that no two communicators share an area.
        let area = self.shared.next_area.fetch_add(1, Ordering::Relaxed);
        if !ranks.contains(&self.rank()) {
            return Ok(None);
        }
        Communicator::connect(self.shared.clone(), ranks.to_vec(), area).map(Some)
    }
}

fn pid_namespace() -> u64 {
    std::fs::metadata("/proc/self/ns/pid").map_or(0, |namespace| std::os::unix::fs::MetadataExt::ino(&namespace))
}

fn lowest_of_machines(peer_infos: &[PeerInfo]) -> Vec<usize> {
    let mut first: BTreeMap<&str, usize> = BTreeMap::new();
    let of = |(rank, peer)| {
        let peer: &PeerInfo = peer;
        *first.entry(peer.machine.as_str()).or_insert(rank)
    };
    peer_infos.iter().enumerate().map(of).collect()
}

/// The kernel this process runs on, and the network it sees: sockets without a file are found only within one.
fn machine() -> String {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let network = std::fs::read_link("/proc/self/ns/net").unwrap_or_default();
    format!("{} {}", boot.trim(), network.display())
}
