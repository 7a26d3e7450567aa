//! Output of the planner. It names nodes and jobs outright, so that carrying it out needs no decisions.

use std::collections::BTreeMap;

use corro_model::{ClusterKey, JobKey, NodeId};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// Clusters that need more nodes, with the number of nodes to add.
    pub allocate: Vec<(ClusterKey, usize)>,
    /// Nodes to release now; none of them is busy.
    pub retire: Vec<NodeId>,
    /// Low-priority nodes to preempt because dedicated clusters need their cores or machines.
    pub preempt: Vec<NodeId>,
    /// Jobs to stop or requeue.
    pub evict: BTreeMap<JobKey, Eviction>,
    pub placements: Vec<Placement>,
    /// Running elastic jobs that get nodes or give some back.
    pub resize: Vec<Resize>,
}

/// Change of the nodes of a running elastic job. Nodes in `remove` are free once their processes have left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resize {
    pub job: JobKey,
    /// Idle nodes that the job gets.
    pub add: Vec<NodeId>,
    pub remove: Vec<NodeId>,
    pub cause: ResizeCause,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ResizeCause {
    /// Nodes were idle, and no job waited.
    NodesIdle,
    /// A waiting job can start on the nodes.
    GivesWay { to: JobKey },
    /// The cluster is made smaller.
    ClusterResized,
    /// The nodes are preempted.
    Preempted,
}

/// Gang that starts as a whole on exactly these nodes; the first is the master.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    pub job: JobKey,
    pub nodes: Vec<NodeId>,
}

/// Kind of eviction. If several apply to one job, the greatest in this order wins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Eviction {
    /// Stop the job and put it back into the queue.
    Requeue,
    /// Requeue with a longer grace period to save work, because one of its nodes is preempted.
    Preempt,
    /// Stop the job for good.
    Terminate,
}
