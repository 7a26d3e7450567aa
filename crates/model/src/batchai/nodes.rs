//! Nodes, and the processes of a job on them. Corro's extension: Batch AI showed only node counts.

use serde::{Deserialize, Serialize};

use super::{EngineStats, VmPriority};
use crate::gpu::{GpuPoint, GpuReading};
use crate::preemption::Preemption;
use crate::{NodeId, Timestamp};

/// Node, as in `corro node list`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeSummary {
    pub node_id: NodeId,
    pub resource_group: String,
    pub workspace: String,
    pub cluster: String,
    /// Resource id of the cluster.
    pub cluster_id: String,
    pub vm_priority: VmPriority,
    pub state: String,
    pub since: Timestamp,
    /// Job that it runs, if the caller may read it: `EXPERIMENT/JOB`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preempted: Option<Preemption>,
}

/// Parameters of a preemption.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PreemptParameters {
    /// Seconds between the warning signal and SIGKILL; the server's default if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grace_seconds: Option<f64>,
}

impl PreemptParameters {
    pub const MAX_GRACE_SECONDS: f64 = 3600.0;
}

/// Resource use of a node's tasks over time. Times without a task have no points.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeResources {
    pub node_id: NodeId,
    /// Oldest first; averages of longer times after half an hour.
    pub points: Vec<ResourcePoint>,
    /// State of the GPUs of its task when the last point was measured.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gpus: Vec<GpuReading>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourcePoint {
    pub time: Timestamp,
    /// Percent of one core, of all processes of the task.
    pub cpu_percent: f64,
    pub memory_bytes: u64,
    /// The GPUs of the task.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gpus: Vec<GpuPoint>,
}

/// Resource use of the last attempt of a job over time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct JobResources {
    /// Attempt number, from 1.
    pub attempt: u32,
    pub nodes: Vec<NodeResources>,
}

/// Process statistics of a job on all its nodes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct JobProcesses {
    /// Attempt number, from 1.
    pub attempt: u32,
    /// In rank order; the first is the master.
    pub nodes: Vec<NodeProcesses>,
    /// Straggler: the rank that the others wait for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub straggler: Option<usize>,
    /// Start of the last recorded timeline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeline: Option<Timestamp>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeProcesses {
    pub node_id: NodeId,
    /// Whether the agent responded in time. If not, its processes are unknown.
    pub answered: bool,
    pub processes: Vec<RankStats>,
    /// The GPUs that the job may use there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gpus: Vec<GpuReading>,
}

/// Statistics of one rank, or of the job preparation, including child processes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RankStats {
    /// Absent for the job preparation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rank: Option<usize>,
    pub pid: u32,
    /// State of the busiest process, as in `ps`: R running, S sleeping, D disk wait, T stopped, Z zombie.
    pub state: String,
    /// Percent of one core, since the last sample or over 200 ms.
    pub cpu_percent: f64,
    /// Resident memory that is not shared with other processes, if the kernel reports it; otherwise RSS.
    pub memory_bytes: u64,
    pub threads: u32,
    /// Number of processes.
    pub processes: u32,
    /// Time since the last output; absent if there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quiet_for_ms: Option<u64>,
    /// Engines of the ranks among these processes; more than one below a launcher.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub engines: Vec<EngineStats>,
}
