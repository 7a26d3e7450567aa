//! The connections and shared memory of a world, held by all its communicators and by the engine.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use crate::bootstrap::rank_info::RankInfo;
use crate::options::Options;
use crate::transport::connect::credentials::WorldCredentials;
use crate::transport::control::failure_detector::FailureDetector;
use crate::transport::peer_info::PeerInfo;
use crate::transport::peer_table::PeerTable;
use crate::transport::shm::segment::Segment;
use crate::transport::tcp::listener::PeerListener;
use crate::transport::wait_policy::WaitPolicy;

/// Dropped with the last communicator.
pub(crate) struct WorldState {
    pub rank_info: RankInfo,
    pub peer_table: Arc<PeerTable>,
    /// By rank.
    pub peer_infos: Vec<PeerInfo>,
    /// For each rank, the lowest rank of its host.
    pub lowest: Vec<usize>,
    /// Shared memory of this host; `None` when this rank is alone on it.
    pub segment: Option<Segment>,
    pub listener: PeerListener,
    pub credentials: WorldCredentials,
    pub wait_policy: WaitPolicy,
    /// Cores of this host that its ranks may use together: the same number on all of them, whatever each is bound to.
    pub n_cores: usize,
    /// Attempts to send or receive before a thread sleeps in `poll`.
    pub spin_limit: u32,
    pub options: Options,
    pub timeout: Duration,
    /// Number of the next communicator or control channel, which selects its region of shared memory and tags its TCP connections.
    pub next_comm_id: AtomicU64,
    /// On rank 0: bytes of shared regions that are in use. The other ranks get the offsets from it.
    pub shared_bytes_used: AtomicU64,
    /// Sends BYE to the other ranks when it is dropped.
    pub failure_detector: Arc<FailureDetector>,
}
