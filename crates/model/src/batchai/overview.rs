//! Summaries over all workspaces, for pages and searches. A Corro extension: the service listed one experiment at a
//! time.

use serde::{Deserialize, Serialize};

use super::{EstimateBasis, ExecutionState, JobAnnotations, Priority, ToolType};
use crate::{ApiError, Timestamp};

/// Summary of a job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct JobSummary {
    pub id: String,
    pub name: String,
    pub resource_group: String,
    pub workspace: String,
    pub experiment: String,
    /// Resource id of its cluster, which may be deleted.
    pub cluster_id: String,
    /// Display name of the principal that submitted it; absent for jobs that an older version stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// Sweep of which it is a trial.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sweep: Option<String>,
    pub tool_type: ToolType,
    pub priority: Priority,
    pub node_count: i32,
    pub state: ExecutionState,
    /// Time of the last state change.
    pub since: Timestamp,
    pub creation_time: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_time: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end_time: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// Reason of a failure: the first error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Wait reason and position in the cluster's queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting_for: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub position: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub estimated_start: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub estimate_basis: Option<EstimateBasis>,
    #[serde(default, skip_serializing_if = "JobAnnotations::is_empty")]
    pub annotations: JobAnnotations,
}

/// A page of jobs, newest first, with counts per state over all pages.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct JobSummaries {
    pub value: Vec<JobSummary>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_link: Option<String>,
    /// Counts over all states, independent of the state filter.
    pub counts: JobCounts,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobCounts {
    pub queued: usize,
    pub running: usize,
    pub terminating: usize,
    pub succeeded: usize,
    pub failed: usize,
}

impl JobCounts {
    pub fn count(&mut self, state: ExecutionState) {
        *match state {
            ExecutionState::Queued => &mut self.queued,
            ExecutionState::Running => &mut self.running,
            ExecutionState::Terminating => &mut self.terminating,
            ExecutionState::Succeeded => &mut self.succeeded,
            ExecutionState::Failed => &mut self.failed,
        } += 1;
    }
}

/// Summary of an experiment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ExperimentSummary {
    pub id: String,
    pub name: String,
    pub resource_group: String,
    pub workspace: String,
    pub creation_time: Timestamp,
    /// Jobs of the experiment by state.
    pub counts: JobCounts,
    /// Submission of the newest job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_submission: Option<Timestamp>,
}

/// A search result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SearchResult {
    pub kind: SearchResultKind,
    pub name: String,
    /// Resource id; for a node that of its cluster, for a share that of its account.
    pub id: String,
    /// Location in plain words: `experiment in workspace`.
    pub place: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
}

/// Kind of a search result. Results of equal rank are listed in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum SearchResultKind {
    Cluster,
    Experiment,
    Share,
    Job,
    Node,
}

/// Summary of a share in a list over several accounts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ShareSummary {
    pub name: String,
    pub account: String,
    pub account_id: String,
    pub modified: Timestamp,
}

/// SAS query string that opens one share for a limited time, on behalf of the caller.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ShareLink {
    pub query: String,
    pub expires: Timestamp,
}

/// Node counts of a cluster over time: all nodes, and nodes that run jobs. Each point is valid until the next.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterHistory {
    pub since: Timestamp,
    pub until: Timestamp,
    pub points: Vec<ClusterPoint>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterPoint {
    pub time: Timestamp,
    pub nodes: i32,
    pub busy: i32,
}

/// Parses a list of states such as `queued,running`; an empty text means all states.
pub fn parse_states(text: &str) -> Result<Vec<ExecutionState>, ApiError> {
    let word = |word: &str| {
        serde_json::from_value(serde_json::Value::from(word.trim().to_lowercase())).map_err(|_| {
            let message =
                format!("'{word}' is not a job's state: use queued, running, terminating, succeeded or failed");
            ApiError::new(400, "InvalidQueryParameterValue", message).about("state")
        })
    };
    text.split(',').filter(|text| !text.trim().is_empty()).map(word).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_are_read_in_any_case_and_mistakes_are_named() {
        assert_eq!(parse_states("Queued, running").ok(), Some(vec![ExecutionState::Queued, ExecutionState::Running]));
        assert_eq!(parse_states("").ok(), Some(vec![]));
        let error = parse_states("queued,done").expect_err("no such state");
        assert!(error.message.contains("'done'") && error.status == 400, "{error:?}");
    }
}
