//! Single nodes, and the processes that a job has on them. Ours: the service showed nodes only by their numbers.

use serde::{Deserialize, Serialize};

use super::{EngineStats, VmPriority};
use crate::preemption::Preemption;
use crate::{NodeId, Timestamp};

/// A node, as `corro node list` shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeSummary {
    pub node_id: NodeId,
    pub resource_group: String,
    pub workspace: String,
    pub cluster: String,
    /// The cluster's resource id.
    pub cluster_id: String,
    pub vm_priority: VmPriority,
    pub state: String,
    pub since: Timestamp,
    /// What it runs, if the caller may know: `EXPERIMENT/JOB`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preempted: Option<Preemption>,
}

/// How a node is to be taken back.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PreemptParameters {
    /// Between the warning signal and the end of its job's processes; the server's own when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grace_seconds: Option<f64>,
}

impl PreemptParameters {
    /// As long as anything may take to save its work.
    pub const MOST_SECONDS: f64 = 3600.0;
}

/// What a job's processes use, on all its nodes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct JobProcesses {
    /// Which try this is, counted from 1.
    pub attempt: u32,
    /// In rank order; the first is the master.
    pub nodes: Vec<NodeProcesses>,
    /// The rank that the others wait for, when there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub straggler: Option<usize>,
    /// When the timeline that was recorded last began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeline: Option<Timestamp>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeProcesses {
    pub node_id: NodeId,
    /// Did its agent answer in time? If not, nothing is known of its processes.
    pub answered: bool,
    pub processes: Vec<RankStats>,
}

/// One rank, or the job preparation, with all processes it started.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RankStats {
    /// Absent for the job preparation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rank: Option<usize>,
    pub pid: u32,
    /// As `ps` has it: R running, S sleeping, D waiting for a disk, T stopped, Z ended. That of the busiest process.
    pub state: String,
    /// Of one core, since the last look or over a fifth of a second.
    pub cpu_percent: f64,
    /// Memory that is in use and not shared with others, as far as the kernel tells (RSS otherwise).
    pub memory_bytes: u64,
    pub threads: u32,
    /// How many processes these are.
    pub processes: u32,
    /// Since it last wrote anything; absent when it never did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quiet_for_ms: Option<u64>,
    /// Of the ranks among these processes that use our collectives; more than one when a launcher started them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub engines: Vec<EngineStats>,
}
