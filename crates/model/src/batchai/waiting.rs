//! Corro's additions to a job's response: queue status and lost attempts. Batch AI clients ignore them.

use serde::{Deserialize, Serialize};

use super::BatchAiError;
use crate::Timestamp;

/// Status of a queued job: `properties.waiting`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct QueueWait {
    pub reason: WaitReason,
    /// Position in the cluster's queue, from 1. Jobs too large for the cluster are not counted. 0 for a job that waits for
    /// other jobs and is not in the queue yet.
    pub position: i32,
    pub nodes_needed: i32,
    /// Absent if no known event lets the job start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub estimated_start: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub estimate_basis: Option<EstimateBasis>,
    /// Alternatives in plain words; each one alone would help.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unblocked_by: Vec<String>,
    /// Node count or maximum that would let the job start now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resize_to: Option<i32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum WaitReason {
    /// Starts in the next pass.
    Starting,
    /// Head of the queue; too few nodes are idle.
    NodesBusy,
    /// Behind other jobs.
    Behind,
    /// Enough nodes are idle, but it could delay the head of the queue.
    WouldDelay,
    /// The cluster never becomes that large.
    ClusterTooSmall,
    /// Jobs of its `dependsOn` have not succeeded yet.
    Dependencies,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum EstimateBasis {
    /// Nodes that are idle or being prepared.
    Nodes,
    /// Median run time of jobs of the same experiment, and reported epochs of running ones.
    History,
    /// Wall-clock limits, so it is the latest possible time.
    Limits,
    /// History for some of the jobs ahead, limits for the others.
    HistoryAndLimits,
}

/// A running job is evicted: `properties.givingWay`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EvictionNotice {
    /// End of the grace period, when remaining processes are killed.
    pub until: Timestamp,
    pub reason: BatchAiError,
}

/// Attempt that did not end the job: an element of `properties.lostAttempts`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LostAttempt {
    pub number: u32,
    pub end_time: Timestamp,
    /// Exit code of the program that failed; absent if the attempt was lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    pub reason: BatchAiError,
}

/// Change of the number of nodes of an elastic job: an element of `properties.sizeChanges`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SizeChange {
    pub time: Timestamp,
    /// Attempt of the job, from 1.
    pub attempt: u32,
    /// Nodes from then on.
    pub node_count: i32,
    pub reason: BatchAiError,
}
