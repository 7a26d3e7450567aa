//! The history as it is asked for and answered: ours, beside the service's resources. Used by the store, the server, the
//! client and the command line.

use serde::{Deserialize, Serialize};

use crate::Timestamp;

/// One thing that happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HistoryEntry {
    /// Rises with every entry; the same entry keeps its number.
    pub number: u64,
    pub time: Timestamp,
    /// The principal who asked for it, or `corro` when the server did it by itself.
    pub actor: String,
    /// Kind and event: `job.placed`, `cluster.created`.
    pub what: String,
    /// Names from the resource group down, in lower case, joined with `/`.
    pub resource: String,
    #[serde(default, skip_serializing_if = "serde_json::Value::is_null")]
    pub detail: serde_json::Value,
}

/// Which entries are wanted; all conditions must hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistoryFilter {
    /// Of this resource and of everything inside it.
    pub resource: Option<String>,
    /// `job` for everything about jobs, `job.placed` for just that.
    pub kind: Option<String>,
    pub actor: Option<String>,
    pub since: Option<Timestamp>,
    /// Older than the entry of this number.
    pub before: Option<u64>,
    /// Newer than the entry of this number, and then the oldest first.
    pub after: Option<u64>,
    pub limit: usize,
}

impl HistoryFilter {
    pub fn newest(limit: usize) -> Self {
        Self { resource: None, kind: None, actor: None, since: None, before: None, after: None, limit }
    }
}
