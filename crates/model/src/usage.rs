//! Usage report: node-hours of jobs in a time window. A Corro extension; the service's `usages` are quotas.

use serde::{Deserialize, Serialize};

use crate::Timestamp;

/// Grouping of the report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum UsageBy {
    User,
    Experiment,
    Cluster,
    Job,
}

impl UsageBy {
    pub const ALL: [UsageBy; 4] = [UsageBy::User, UsageBy::Experiment, UsageBy::Cluster, UsageBy::Job];

    pub fn as_str(self) -> &'static str {
        match self {
            UsageBy::User => "user",
            UsageBy::Experiment => "experiment",
            UsageBy::Cluster => "cluster",
            UsageBy::Job => "job",
        }
    }

    pub fn parse(text: &str) -> Option<UsageBy> {
        UsageBy::ALL.into_iter().find(|by| by.as_str().eq_ignore_ascii_case(text))
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UsageReport {
    pub since: Timestamp,
    pub until: Timestamp,
    pub by: UsageBy,
    /// Start of the known history: hours of the window before it may be missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub known_since: Option<Timestamp>,
    /// Sorted by node-hours, largest first.
    pub rows: Vec<UsageRow>,
    pub total_node_hours: f64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UsageRow {
    /// A user's name, or the key of the resource: names in lower case, joined with `/`.
    pub name: String,
    /// The principal's id; users only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_id: Option<String>,
    pub node_hours: f64,
    /// Number of jobs that had nodes in the window.
    pub jobs: u64,
    /// Number of these jobs that have nodes now.
    pub running: u64,
}
