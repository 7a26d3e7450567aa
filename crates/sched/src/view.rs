//! Input of the planner: clusters with their nodes, running jobs and queues. Built by the server from one state
//! revision at one time. It borrows, so that a long queue costs nothing to pass.

use std::time::Duration;

use corro_model::batchai::{DeallocationOption, Priority};
use corro_model::{ClusterKey, JobKey, NodeId, Timestamp};

pub struct Snapshot<'a> {
    pub now: Timestamp,
    pub clusters: Vec<ClusterView<'a>>,
    pub capacity: RegionCapacity,
}

/// Limits shared by the clusters of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegionCapacity {
    /// Cores that the nodes of one region may have together, dedicated and low-priority.
    pub cores: u64,
    /// Nodes run on machines that join on their own; the server cannot create more.
    pub machines_join: bool,
}

impl RegionCapacity {
    pub const UNLIMITED: Self = Self { cores: u64::MAX, machines_join: false };
}

pub struct ClusterView<'a> {
    pub key: &'a ClusterKey,
    pub target: Target,
    /// Initial node count of an autoScale cluster; 0 once it has had any node.
    pub initial: usize,
    pub region: &'a str,
    /// Its nodes may be preempted for dedicated clusters.
    pub low_priority: bool,
    /// Cores of one node.
    pub cores: u64,
    pub nodes: Vec<NodeView<'a>>,
    pub jobs: Box<dyn Jobs + 'a>,
}

/// Desired node count of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    Manual {
        count: usize,
        option: DeallocationOption,
    },
    Auto {
        min: usize,
        max: usize,
    },
    /// The cluster is being deleted: no nodes, and its jobs end.
    Deleting,
}

#[derive(Clone, Copy, Debug)]
pub struct NodeView<'a> {
    pub id: &'a NodeId,
    pub index: u32,
    pub availability: NodeAvailability<'a>,
    /// Start of the present availability.
    pub since: Timestamp,
    /// Host that runs this node beside others, if it has one.
    pub host: Option<&'a str>,
    /// The node is being preempted: its job is evicted, then the node is released and replaced.
    pub preempted: bool,
    /// Time by which an elastic job frees the node at the latest, if it was told to.
    pub releasing: Option<Timestamp>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeAvailability<'a> {
    Allocating,
    Preparing,
    Idle,
    Busy(&'a JobKey),
    Leaving,
    /// Preparation failed. The node is kept so that a person can find out why.
    Unusable,
    /// The node stopped reporting and will be replaced.
    Lost,
}

#[derive(Clone, Copy, Debug)]
pub struct RunningView<'a> {
    pub key: &'a JobKey,
    pub started: Timestamp,
    /// End by the job's wall-clock limit; the present time for a job that is being stopped.
    pub ends_by: Timestamp,
    /// `None` for a gang of a fixed size, and for a job that is being stopped.
    pub elastic: Option<RunningElastic<'a>>,
}

/// Numbers of nodes of an elastic job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ElasticRange {
    pub min: usize,
    pub max: usize,
    /// Up to this number, clusters with auto-scale get new nodes for the job.
    pub asked: usize,
}

/// Size of a running elastic job.
#[derive(Clone, Copy, Debug)]
pub struct RunningElastic<'a> {
    pub range: ElasticRange,
    pub priority: Priority,
    /// Submission number.
    pub sequence: u64,
    /// All its nodes in rank order. The last ones are given back first.
    pub nodes: &'a [NodeId],
    /// Start, or last change of the number of nodes.
    pub resized: Timestamp,
    /// Nodes that it does not get again.
    pub refused: &'a [NodeId],
}

/// Queued job.
#[derive(Clone, Copy, Debug)]
pub struct WaitingView<'a> {
    pub key: &'a JobKey,
    pub priority: Priority,
    /// Submission number.
    pub sequence: u64,
    pub submitted: Timestamp,
    /// Nodes with which it starts; at least one. The minimum of an elastic job.
    pub node_count: usize,
    /// `None` for a gang of a fixed size.
    pub elastic: Option<ElasticRange>,
    /// Wall-clock limit.
    pub limit: Duration,
}

impl WaitingView<'_> {
    /// Nodes for which a cluster with auto-scale grows.
    pub fn demand(&self, most: usize) -> usize {
        self.elastic.map_or(self.node_count, |elastic| elastic.asked.min(most).max(self.node_count))
    }
}

pub type WaitingIter<'j> = Box<dyn Iterator<Item = WaitingView<'j>> + 'j>;
pub type RunningIter<'j> = Box<dyn Iterator<Item = RunningView<'j>> + 'j>;

/// Unfinished jobs of one cluster, read lazily because most passes start no job.
pub trait Jobs {
    /// Queued jobs that were submitted with this priority, in order of submission.
    fn waiting(&self, priority: Priority) -> WaitingIter<'_>;

    /// Jobs that hold nodes, in any order.
    fn running(&self) -> RunningIter<'_>;

    /// Running jobs whose `elastic` is set. Implementations skip the others without making a view of them.
    fn elastic(&self) -> RunningIter<'_> {
        Box::new(self.running().filter(|job| job.elastic.is_some()))
    }

    /// Longest recent run time of jobs in the same experiment; `None` if none has succeeded.
    fn longest_run(&self, job: &JobKey) -> Option<Duration>;
}
