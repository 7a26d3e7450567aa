//! What the planner looks at: clusters with their nodes and unfinished jobs, nothing else. Made by the server from its
//! state at one revision.

use corro_model::batchai::{DeallocationOption, Priority};
use corro_model::{ClusterKey, JobKey, NodeId};

#[derive(Clone, Debug)]
pub struct Snapshot {
    pub clusters: Vec<ClusterView>,
}

#[derive(Clone, Debug)]
pub struct ClusterView {
    pub key: ClusterKey,
    pub target: Target,
    pub nodes: Vec<NodeView>,
    /// Queued and running jobs, in any order.
    pub jobs: Vec<JobView>,
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

#[derive(Clone, Debug)]
pub struct NodeView {
    pub id: NodeId,
    pub index: u32,
    pub standing: NodeStanding,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeStanding {
    Allocating,
    Preparing,
    Idle,
    Busy(JobKey),
    Leaving,
    /// Its preparation failed: kept, so that a person can see why.
    Unusable,
    /// It fell silent: replaced.
    Lost,
}

#[derive(Clone, Debug)]
pub struct JobView {
    pub key: JobKey,
    pub priority: Priority,
    pub sequence: u64,
    pub node_count: usize,
    pub queued: bool,
}
