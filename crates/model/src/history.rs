//! History queries and entries. A Corro extension.

use serde::{Deserialize, Serialize};

use crate::Timestamp;

/// An entry of the history.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HistoryEntry {
    /// Sequence number, strictly increasing. An entry never changes its number.
    pub number: u64,
    pub time: Timestamp,
    /// Principal that made the request, or `corro` for an action of the server itself.
    pub actor: String,
    /// Kind and event: `job.placed`, `cluster.created`.
    pub what: String,
    /// Resource key: the names from the resource group down, in lower case, joined with `/`.
    pub resource: String,
    #[serde(default, skip_serializing_if = "serde_json::Value::is_null")]
    pub detail: serde_json::Value,
}

/// Filter of entries; all conditions must hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistoryFilter {
    /// This resource and everything inside it.
    pub resource: Option<String>,
    /// `job` for all events of jobs, `job.placed` for one event.
    pub kind: Option<String>,
    pub actor: Option<String>,
    pub since: Option<Timestamp>,
    /// Only entries with a smaller number.
    pub before: Option<u64>,
    /// Only entries with a larger number, oldest first.
    pub after: Option<u64>,
    pub limit: usize,
}

impl HistoryFilter {
    pub fn newest(limit: usize) -> Self {
        Self { resource: None, kind: None, actor: None, since: None, before: None, after: None, limit }
    }
}
