//! What there is in all workspaces together, in short: ours, for pages and searches. The service listed one experiment at a
//! time.

use serde::{Deserialize, Serialize};

use super::{EstimateBasis, ExecutionState, Priority, ToolType};
use crate::{ApiError, Timestamp};

/// A job in one line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct JobSummary {
    pub id: String,
    pub name: String,
    pub resource_group: String,
    pub workspace: String,
    pub experiment: String,
    /// The resource id of its cluster, which may be gone.
    pub cluster_id: String,
    pub tool_type: ToolType,
    pub priority: Priority,
    pub node_count: i32,
    pub state: ExecutionState,
    /// When it got into this state.
    pub since: Timestamp,
    pub creation_time: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_time: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end_time: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// Why it failed, as its first error says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Why it waits, and at which place of its cluster's queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting_for: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub position: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub estimated_start: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub estimate_basis: Option<EstimateBasis>,
}

/// A page of jobs, newest first, and how many there are in each state on all pages.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct JobSummaries {
    pub value: Vec<JobSummary>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_link: Option<String>,
    /// Whatever states were asked for.
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

/// Something that a search found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Found {
    pub kind: FoundKind,
    pub name: String,
    /// Its resource id; that of a node is its cluster's, that of a share its account's.
    pub id: String,
    /// Where it is, in the words of a person: `experiment in workspace`.
    pub place: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
}

/// In the order in which equally good finds are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum FoundKind {
    Cluster,
    Experiment,
    Share,
    Job,
    Node,
}

/// A share, as it is listed beside those of other accounts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ShareSummary {
    pub name: String,
    pub account: String,
    pub account_id: String,
    pub modified: Timestamp,
}

/// The query of a link that opens one share for a while, as the caller's own login does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ShareLink {
    pub query: String,
    pub expires: Timestamp,
}

/// How many nodes a cluster had, and how many of them ran jobs: each point holds until the next.
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

/// The states in `queued,running`; all of them when nothing is said.
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
