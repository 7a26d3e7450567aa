//! Audit history: one small row for each state change of a job or node and for each change that a caller made. Written
//! in the transaction of the change, so neither exists without the other. Stored in the database only, never in the
//! snapshot, and bounded in rows and age; see `HistoryTable`.
//!
//! Never holds a secret, nor text that a user's program wrote.

use std::sync::Arc;
use std::time::Duration;

use corro_model::AttemptId;
use serde_json::{Value, json};

use crate::records::*;

mod rows;

pub(crate) use rows::{History, read};

/// Retention limits of the history. Rows beyond any of them are pruned, oldest first.
#[derive(Clone, Copy, Debug)]
pub struct HistoryBounds {
    /// Rows about resources, jobs and nodes.
    pub rows: u64,
    /// Rows of each other table.
    pub rows_per_other_table: u64,
    pub age: Duration,
}

impl HistoryBounds {
    /// About 90 MB on disk when full.
    pub const DEFAULT: Self =
        Self { rows: 300_000, rows_per_other_table: 50_000, age: Duration::from_secs(180 * 24 * 3600) };
}

/// Table of a history row. Events that one kind of caller could flood have their own limits: creating resources, failed
/// requests or file writes must not push out records of role assignments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HistoryTable {
    Work,
    /// Principals, their roles, account keys, and clock jumps.
    Access,
    /// Refused requests, and access to secrets.
    Requests,
    /// Changes of shares and files.
    Files,
}

impl HistoryTable {
    pub const ALL: [HistoryTable; 4] =
        [HistoryTable::Work, HistoryTable::Access, HistoryTable::Requests, HistoryTable::Files];

    pub fn for_event(what: &str) -> HistoryTable {
        match what.split_once('.') {
            Some(("principal" | "key" | "hostToken" | "clock", _)) => HistoryTable::Access,
            Some(("request", _)) => HistoryTable::Requests,
            Some(("share" | "container", _)) => HistoryTable::Files,
            _ => HistoryTable::Work,
        }
    }

    pub fn sql_name(self) -> &'static str {
        match self {
            HistoryTable::Work => "history",
            HistoryTable::Access => "history_access",
            HistoryTable::Requests => "history_requests",
            HistoryTable::Files => "history_files",
        }
    }
}

/// Actor name of the server's own loops.
pub const SERVER: &str = "corro";

/// Principal on whose behalf a transaction runs, and the address of the request.
#[derive(Clone, Debug)]
pub(crate) struct Actor {
    pub name: Arc<str>,
    from: Option<Arc<str>>,
}

impl From<&str> for Actor {
    fn from(name: &str) -> Self {
        Self::new(name, None)
    }
}

impl Actor {
    pub fn new(name: &str, from: Option<&str>) -> Self {
        Self { name: name.into(), from: from.map(Arc::from) }
    }

    /// Detail of an event with the client's address added.
    pub fn located(&self, detail: Value) -> Value {
        match (&self.from, detail) {
            (None, detail) => detail,
            (Some(from), Value::Object(mut fields)) => {
                fields.insert("from".to_owned(), json!(**from));
                Value::Object(fields)
            }
            (Some(from), Value::Null) => json!({ "from": **from }),
            (Some(from), other) => json!({"from": **from, "detail": other}),
        }
    }
}

/// Event name of a clock jump. Needed to compute the age of older rows.
pub(crate) const CLOCK_JUMPED: &str = "clock.jumped";

/// Event of a transaction; its time is that of the commit.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Event {
    pub actor: Arc<str>,
    pub what: String,
    pub resource: String,
    pub detail: Value,
}

/// How a kind of record appears in the history.
pub trait HistorySubject {
    /// Resource path from the group down; `None` if changes are not recorded.
    fn resource(&self, key: &str) -> Option<String> {
        Some(key.to_owned())
    }

    fn is_deleting(&self) -> bool {
        false
    }

    /// Detail recorded on creation or change: small, never a secret.
    fn history_detail(&self) -> Value {
        Value::Null
    }
}

impl HistorySubject for InstanceRecord {
    fn resource(&self, _key: &str) -> Option<String> {
        None
    }
}

impl HistorySubject for OperationRecord {
    fn resource(&self, _key: &str) -> Option<String> {
        None
    }
}

impl HistorySubject for DeliveryRecord {
    fn resource(&self, _key: &str) -> Option<String> {
        None
    }
}

impl HistorySubject for PrincipalRecord {
    fn history_detail(&self) -> Value {
        json!({"name": self.name, "assignments": self.assignments})
    }
}

impl HistorySubject for GroupRecord {
    fn is_deleting(&self) -> bool {
        self.deleting
    }
}

impl HistorySubject for WorkspaceRecord {
    fn is_deleting(&self) -> bool {
        self.provisioning.is_deleting()
    }
}

impl HistorySubject for ExperimentRecord {
    fn is_deleting(&self) -> bool {
        self.provisioning.is_deleting()
    }
}

impl HistorySubject for ClusterRecord {
    fn is_deleting(&self) -> bool {
        self.provisioning.is_deleting()
    }

    fn history_detail(&self) -> Value {
        json!({"vmSize": self.spec.vm_size, "scaleSettings": self.spec.scale_settings})
    }
}

impl HistorySubject for FileServerRecord {
    fn is_deleting(&self) -> bool {
        self.provisioning.is_deleting()
    }
}

impl HistorySubject for NodeRecord {
    fn resource(&self, key: &str) -> Option<String> {
        Some(format!("{}/{key}", self.cluster))
    }
}

impl HistorySubject for JobRecord {
    fn is_deleting(&self) -> bool {
        self.provisioning.is_deleting()
    }

    fn history_detail(&self) -> Value {
        let (priority, nodes) = (self.spec.scheduling_priority, self.spec.node_count);
        json!({"cluster": self.cluster, "priority": priority, "nodeCount": nodes})
    }
}

impl HistorySubject for HostRecord {
    fn history_detail(&self) -> Value {
        let (capacity, draining) = (self.inventory.capacity(), self.draining);
        json!({"capacity": capacity, "cordoned": self.cordoned, "draining": draining, "token": self.token})
    }
}

impl HistorySubject for HostTokenRecord {
    fn history_detail(&self) -> Value {
        json!({"expires": self.expires})
    }
}

impl HistorySubject for AccountRecord {
    fn resource(&self, key: &str) -> Option<String> {
        Some(format!("{}/{key}", self.group))
    }

    fn is_deleting(&self) -> bool {
        self.deleting
    }
}

/// Node names in one row; for larger gangs only the count is complete.
const MAX_NAMED_NODES: usize = 16;

pub(crate) fn placement(attempt: &AttemptId, nodes: &[corro_model::NodeId]) -> Value {
    let named = &nodes[..nodes.len().min(MAX_NAMED_NODES)];
    json!({"attempt": attempt.number, "nodeCount": nodes.len(), "nodes": named})
}
