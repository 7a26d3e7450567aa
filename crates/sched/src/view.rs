//! What the planner looks at: clusters with their nodes, running jobs and queues, nothing else. Made by the server from
//! its state at one revision and one time; it borrows, so that a queue of any length costs nothing to show.

use std::time::Duration;

use corro_model::batchai::{DeallocationOption, Priority};
use corro_model::{ClusterKey, JobKey, NodeId, Timestamp};

pub struct Snapshot<'a> {
    pub now: Timestamp,
    pub clusters: Vec<ClusterView<'a>>,
    pub capacity: RegionCapacity,
}

/// What all clusters share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegionCapacity {
    /// Cores that the nodes of one region may have together, of either priority.
    pub cores: u64,
    /// Nodes are machines that join by themselves: there are as many as there are.
    pub machines_join: bool,
}

impl RegionCapacity {
    pub const UNLIMITED: Self = Self { cores: u64::MAX, machines_join: false };
}

pub struct ClusterView<'a> {
    pub key: &'a ClusterKey,
    pub target: Target,
    /// How many nodes a cluster with autoScale begins with; 0 once it has had any.
    pub initial: usize,
    pub region: &'a str,
    /// Its nodes may be taken back for clusters that are not.
    pub low_priority: bool,
    /// Of one node.
    pub cores: u64,
    pub nodes: Vec<NodeView<'a>>,
    pub jobs: Box<dyn Jobs + 'a>,
}

/// How many nodes the cluster should have.
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
    /// Since when it stands like this.
    pub since: Timestamp,
    /// The machine that carries it beside others, if one does.
    pub host: Option<&'a str>,
    /// It is taken back: its job gives way, then it goes and is replaced.
    pub preempted: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeAvailability<'a> {
    Allocating,
    Preparing,
    Idle,
    Busy(&'a JobKey),
    Leaving,
    /// Its preparation failed: kept, so that a person can see why.
    Unusable,
    /// It fell silent: replaced.
    Lost,
}

#[derive(Clone, Copy, Debug)]
pub struct RunningView<'a> {
    pub key: &'a JobKey,
    pub started: Timestamp,
    /// When its wall-clock limit ends it; now for one that is being stopped.
    pub ends_by: Timestamp,
}

/// A job that waits.
#[derive(Clone, Copy, Debug)]
pub struct WaitingView<'a> {
    pub key: &'a JobKey,
    /// Order of submission.
    pub sequence: u64,
    pub submitted: Timestamp,
    /// At least one.
    pub node_count: usize,
    /// Its wall-clock limit.
    pub limit: Duration,
}

pub type Waiting<'j> = Box<dyn Iterator<Item = WaitingView<'j>> + 'j>;
pub type Running<'j> = Box<dyn Iterator<Item = RunningView<'j>> + 'j>;

/// The unfinished jobs of one cluster, looked at only when and as far as needed: most passes start nobody.
pub trait Jobs {
    /// Those that wait and were submitted with this priority, in the order of submission.
    fn waiting(&self, priority: Priority) -> Waiting<'_>;

    /// Those that hold nodes, in any order.
    fn running(&self) -> Running<'_>;

    /// The longest that jobs like this one took of late; `None` when none has ended well.
    fn longest_run(&self, job: &JobKey) -> Option<Duration>;
}
