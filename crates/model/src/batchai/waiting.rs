//! What a job's answer adds to the service's fields: how a queued job stands, and which tries it has lost. Ours; a client
//! of the service does not look at it.

use serde::{Deserialize, Serialize};

use super::BatchAiError;
use crate::Timestamp;

/// How a queued job stands: `properties.waiting`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Waiting {
    pub reason: WaitReason,
    /// In the queue of its cluster; 1 is the front. Jobs too large for the cluster are not counted.
    pub position: i32,
    pub nodes_needed: i32,
    /// Absent when nothing that is known will let the job start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub estimated_start: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub estimate_basis: Option<EstimateBasis>,
    /// In plain words; any one of these would help.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unblocked_by: Vec<String>,
    /// So many nodes, or so high a maximum, would let the job start now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resize_to: Option<i32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum WaitReason {
    /// It starts with the next step.
    Starting,
    /// It is the first in line; too few nodes are idle.
    NodesBusy,
    /// Others come first.
    Behind,
    /// There are idle nodes, but it could delay the first in line.
    WouldDelay,
    /// The cluster never becomes that large.
    ClusterTooSmall,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum EstimateBasis {
    /// Nodes that are idle or being prepared.
    Nodes,
    /// The median time that jobs of the same experiments took, and for running ones the epochs that they have reported.
    History,
    /// Wall-clock limits: it is the latest time.
    Limits,
    /// History for some of the jobs before it, limits for the others.
    HistoryAndLimits,
}

/// A running job has to give up its nodes: `properties.givingWay`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GivingWay {
    /// What is left of its processes then is killed.
    pub until: Timestamp,
    pub reason: BatchAiError,
}

/// A try that did not end the job: an element of `properties.lostAttempts`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LostAttempt {
    pub number: u32,
    pub end_time: Timestamp,
    pub reason: BatchAiError,
}
