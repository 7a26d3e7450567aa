//! The planner's answer. It names nodes and jobs outright; whoever carries it out makes no choices.

use std::collections::BTreeMap;

use corro_model::{ClusterKey, JobKey, NodeId};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// Clusters that need more nodes, and how many.
    pub allocate: Vec<(ClusterKey, usize)>,
    /// Nodes that must leave now; none of them is busy.
    pub retire: Vec<NodeId>,
    /// Low-priority nodes whose cores or machines dedicated clusters need.
    pub preempt: Vec<NodeId>,
    /// Jobs that must end or give up their nodes.
    pub evict: BTreeMap<JobKey, Eviction>,
    pub placements: Vec<Placement>,
}

/// A gang that starts whole, on exactly these nodes; the first is the master.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    pub job: JobKey,
    pub nodes: Vec<NodeId>,
}

/// A job of which several are wanted gets the last of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Eviction {
    /// Back to the queue.
    Requeue,
    /// Back to the queue, with more time to save its work: a node of it is taken back.
    Preempt,
    /// For good.
    Terminate,
}
