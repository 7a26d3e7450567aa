//! What was used: node-hours of jobs over a window of time. Ours, beside the service's `usages`, which are quotas. Used by the
//! server, the client and the command line.

use serde::{Deserialize, Serialize};

use crate::Timestamp;

/// What the hours are summed by.
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
    /// What happened before is forgotten: hours of the window before it may be missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub known_since: Option<Timestamp>,
    /// The most hours first.
    pub rows: Vec<UsageRow>,
    pub total_node_hours: f64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UsageRow {
    /// A user's name, or the names that lead to the thing, in lower case, joined with `/`.
    pub name: String,
    /// Of users: the principal's id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_id: Option<String>,
    pub node_hours: f64,
    /// Jobs that had nodes in the window.
    pub jobs: u64,
    /// Those of them that have nodes now.
    pub running: u64,
}
