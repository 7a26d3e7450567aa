//! All ranks of a job, connected: rendezvous, shared memory within hosts, control connections, failure detection. Communicators and the
//! engine are built on it. Dropping the world and everything made from it sends BYE to the other ranks.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use crate::affinity::{AllowedCores, host_core_count};
use crate::bootstrap::launch_env::Launch;
use crate::bootstrap::rank_info::RankInfo;
use crate::bootstrap::rendezvous::{clean_up, join};
use crate::bootstrap::rendezvous_method::RendezvousMethod;
use crate::communicator::Communicator;
use crate::error::Peer;
use crate::options::{Options, Transport, check_compatible};
use crate::transport::connect::credentials::WorldCredentials;
use crate::transport::connect::error::ConnectError;
use crate::transport::connect::startup_watch::StartupWatch;
use crate::transport::control::connection::Wire;
use crate::transport::control::failure_detector::FailureDetector;
use crate::transport::peer_info::PeerInfo;
use crate::transport::peer_table::PeerTable;
use crate::transport::shm::handover::{self, LocalListener};
use crate::transport::tcp::dial::connect_mesh;
use crate::transport::tcp::interfaces::local_addresses;
use crate::transport::tcp::listener::{CONTROL_COMM_ID, PeerListener};
use crate::transport::wait_policy::WaitPolicy;
use crate::world_state::WorldState;

/// This rank's connections to all others. Cheap to keep; communicators outlive it.
pub struct World {
    pub(crate) shared: Arc<WorldState>,
}

/// Number of worlds that this process has connected. Part of the rendezvous keys, so that worlds do not mix.
static ROUNDS: AtomicU64 = AtomicU64::new(0);

impl World {
    /// Connects all ranks; returns when all are connected. Collective: a process that connects several worlds does so in the same order
    /// on every rank.
    ///
    /// # Errors
    /// When ranks are missing or unreachable after the launch's timeout, or one fails to authenticate.
    pub fn connect(launch: &Launch, options: &Options) -> Result<World, ConnectError> {
        World::connect_round(launch, options, ROUNDS.fetch_add(1, Ordering::Relaxed))
    }

    /// As [`World::connect`], for ranks that are threads of one process: `round` must be the same for all of them, and used for one world only.
    pub fn connect_round(launch: &Launch, options: &Options, round: u64) -> Result<World, ConnectError> {
        let deadline = Instant::now() + launch.timeout;
        let rank = launch.rank_info.rank;
        let local_listener = LocalListener::open().map_err(ConnectError::Network)?;
        let interfaces: Vec<String> = launch
            .interface
            .iter()
            .flat_map(|names| names.split(','))
            .map(|name| name.trim().to_owned())
            .filter(|name| !name.is_empty())
            .collect();
        let hosts = match launch.rendezvous {
            // No other rank will connect.
            RendezvousMethod::SingleProcess => vec![std::net::Ipv4Addr::LOCALHOST.into()],
            _ => local_addresses(&interfaces)?,
        };
        let listener = PeerListener::open(&hosts, launch.ports.as_ref())?;
        let mut token = [0; 16];
        getrandom::fill(&mut token).map_err(|error| ConnectError::Network(std::io::Error::other(error)))?;
        let own_info = PeerInfo {
            token,
            machine: match options.transport {
                Transport::Auto | Transport::SharedMemory => machine_id(),
                Transport::Tcp => format!("rank {rank}"),
            },
            hostname: launch.rank_info.hostname.clone(),
            pid: std::process::id(),
            pid_namespace: pid_namespace(),
            local_socket: local_listener.name,
            cores: AllowedCores::of_current_thread(),
            algorithm_override: options.algorithm_override,
            addresses: listener.addresses.clone(),
        };
        let (blobs, session) = join(launch, round, &own_info.encode(), deadline)?;
        let decode = |(rank, bytes): (usize, &Vec<u8>)| PeerInfo::decode(bytes).ok_or(ConnectError::PeerInfo { rank });
        let peer_infos: Vec<PeerInfo> = blobs.iter().enumerate().map(decode).collect::<Result<_, _>>()?;
        let hostnames: Vec<_> = peer_infos.iter().map(|peer| &peer.hostname).collect();
        let rank_info = launch.rank_info.clone().complete(&hostnames);
        let lowest = lowest_rank_of_host(&peer_infos);
        check_compatible(options.transport, &peer_infos)?;
        let peers = peer_infos.iter().enumerate();
        let peers = peers.map(|(rank, peer)| Peer { rank, host: peer.hostname.as_str().into() }).collect();
        let peer_table = Arc::new(PeerTable::new(peers));
        let watch =
            StartupWatch::start(session, rank, &peer_infos, peer_table.clone()).map_err(ConnectError::Thread)?;
        let credentials = WorldCredentials { secret: launch.secret.clone(), world: peer_infos[0].token };
        let locals: Vec<usize> = (0..rank_info.size).filter(|other| lowest[*other] == lowest[rank]).collect();
        let (segment, mut control_wires) = if locals.len() > 1 {
            let lowest_name = peer_infos[locals[0]].local_socket;
            let host_memory = handover::share_memory(
                local_listener,
                &lowest_name,
                &locals,
                rank,
                &credentials,
                &peer_table,
                deadline,
            )
            .map_err(|error| watch.explain(error, deadline))?;
            let sockets = host_memory.control_sockets.into_iter();
            (Some(host_memory.segment), sockets.map(|(rank, stream)| (rank, Wire::Unix(stream))).collect())
        } else {
            (None, Vec::new())
        };
        // Ranks of other hosts have a control connection to rank 0.
        let remote: Vec<usize> = match rank {
            0 => (1..rank_info.size).filter(|other| lowest[*other] != 0).collect(),
            _ if lowest[rank] != 0 => vec![0],
            _ => Vec::new(),
        };
        let remote_peers: Vec<_> =
            remote.iter().map(|other| (*other, peer_infos[*other].addresses.as_slice())).collect();
        let sockets =
            connect_mesh(&listener, rank, &remote_peers, CONTROL_COMM_ID, 1, &credentials, &peer_table, deadline)
                .map_err(|error| watch.explain(error, deadline))?;
        let remote_wires = remote.iter().zip(sockets);
        control_wires.extend(remote_wires.map(|(rank, mut sockets)| (*rank, Wire::Tcp(sockets.remove(0)))));
        let failure_detector = FailureDetector::start(rank, control_wires, peer_table.clone(), options.report_after)
            .map_err(ConnectError::Thread)?;
        let n_cores = host_core_count(locals.iter().map(|local| &peer_infos[*local].cores));
        let wait_policy = WaitPolicy::new(locals.len(), n_cores);
        // Hosts may be containers that share the cores of one kernel; spinning would then keep the awaited rank from running. A yield is no
        // alternative: on recent kernels it can cost a thread milliseconds.
        let kernel = |peer: &PeerInfo| peer.machine.split(' ').next().map(str::to_owned);
        let n_on_kernel = peer_infos.iter().filter(|peer| kernel(peer) == kernel(&peer_infos[rank])).count();
        let spin_limit = if n_on_kernel <= n_cores { 60 } else { 4 };
        let world = World {
            shared: Arc::new(WorldState {
                rank_info,
                peer_table,
                peer_infos,
                lowest,
                segment,
                listener,
                credentials,
                wait_policy,
                n_cores,
                spin_limit,
                options: options.clone(),
                timeout: launch.timeout,
                next_comm_id: AtomicU64::new(0),
                shared_bytes_used: AtomicU64::new(0),
                failure_detector: Arc::new(failure_detector),
            }),
        };
        // After this barrier over the new connections no rank needs the rendezvous any more.
        let connected = world.communicator().and_then(|mut all| Ok(all.barrier()?));
        // Explained before the world is dropped: its BYE frames would tell the others less than the error.
        connected.map_err(|error| watch.explain(error, deadline))?;
        watch.finish();
        clean_up(launch, round, deadline)?;
        Ok(world)
    }

    /// Rank, local rank and cross rank of this process.
    pub fn rank_info(&self) -> &RankInfo {
        &self.shared.rank_info
    }

    /// The rank of this process, from 0.
    pub fn rank(&self) -> usize {
        self.shared.rank_info.rank
    }

    /// The number of ranks.
    pub fn size(&self) -> usize {
        self.shared.rank_info.size
    }

    /// Creates a communicator of all ranks. Collective; every rank creates its communicators in the same order.
    ///
    /// # Errors
    /// When memory or connections for it cannot be had, or a rank has died or left.
    pub fn communicator(&self) -> Result<Communicator, ConnectError> {
        let all: Vec<usize> = (0..self.size()).collect();
        Ok(self.subset(&all)?.expect("this rank is one of all"))
    }

    /// Creates a communicator of some ranks, ascending; its own ranks count from 0 again. Collective over *all* ranks of the world; `None` for
    /// ranks that are not members.
    ///
    /// # Errors
    /// As [`World::communicator`], and when `ranks` is empty, not ascending, or names a rank that does not exist.
    pub fn subset(&self, ranks: &[usize]) -> Result<Option<Communicator>, ConnectError> {
        let is_ascending = ranks.windows(2).all(|pair| pair[0] < pair[1]);
        if ranks.is_empty() || !is_ascending || ranks.iter().any(|rank| *rank >= self.size()) {
            return Err(ConnectError::InvalidMembers { ranks: ranks.to_vec(), size: self.size() });
        }
        // Counted on every rank, member or not, so that no two communicators get the same id.
        let comm_id = self.shared.next_comm_id.fetch_add(1, Ordering::Relaxed);
        if !ranks.contains(&self.rank()) {
            return Ok(None);
        }
        Communicator::connect(self.shared.clone(), ranks.to_vec(), comm_id).map(Some)
    }
}

/// Inode of this process's PID namespace; 0 when it is not known.
fn pid_namespace() -> u64 {
    std::fs::metadata("/proc/self/ns/pid").map_or(0, |namespace| std::os::unix::fs::MetadataExt::ino(&namespace))
}

/// For each rank, the lowest rank with the same machine id.
fn lowest_rank_of_host(peer_infos: &[PeerInfo]) -> Vec<usize> {
    let mut first: BTreeMap<&str, usize> = BTreeMap::new();
    let lowest = |(rank, peer)| {
        let peer: &PeerInfo = peer;
        *first.entry(peer.machine.as_str()).or_insert(rank)
    };
    peer_infos.iter().enumerate().map(lowest).collect()
}

/// The boot id of the kernel and the network namespace: abstract Unix sockets are reachable only within one.
fn machine_id() -> String {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let network = std::fs::read_link("/proc/self/ns/net").unwrap_or_default();
    format!("{} {}", boot.trim(), network.display())
}
