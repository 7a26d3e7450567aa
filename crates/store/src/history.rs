//! What happened, in order: one small row for each change of a job or a node, and for whatever a caller changed. Written
//! in the transaction of the change itself, so that neither is there without the other. Kept in the database alone, never
//! in the snapshot, and bounded in number and age; see [`HistoryTable`].
//!
//! Entered by `txn`, which notes, by the writer, which keeps it bounded, and by readers through
//! [`Store::history`](crate::Store::history). Never holds a secret, nor text that a user's program wrote.

use std::sync::Arc;
use std::time::Duration;

use corro_model::AttemptId;
use serde_json::{Value, json};

use crate::records::*;

mod rows;

pub(crate) use rows::{History, read};

/// How much of the past is kept. Whatever is beyond one of these is forgotten, oldest first.
#[derive(Clone, Copy, Debug)]
pub struct HistoryBounds {
    /// Of what happened to resources, jobs and nodes.
    pub rows: u64,
    /// Of each of the other tables.
    pub apart: u64,
    pub age: Duration,
}

impl HistoryBounds {
    /// About 90 MB on the disk when full.
    pub const USUAL: Self = Self { rows: 300_000, apart: 50_000, age: Duration::from_secs(180 * 24 * 3600) };
}

/// Where a line is kept. What could be flooded by one kind of caller has a bound apart from the rest, so that whoever may
/// make and delete resources, knock at the door or write files cannot push out who was given which rights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HistoryTable {
    Work,
    /// Principals, their roles, keys of accounts, and jumps of the clock.
    Access,
    /// Refusals, and what was shown to whom.
    Requests,
    /// What was done to shares and files.
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

/// Who acts when nobody asked: the server's own loops.
pub const SERVER: &str = "corro";

/// On whose behalf a transaction is made, and from where they asked.
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

    /// The detail of an event, with the address it was asked from.
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

/// How a jump of the server's clock is written down: with this the age of older rows is known.
pub(crate) const CLOCK_JUMPED: &str = "clock.jumped";

/// Something that happened in a transaction; its time is that of the commit.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Event {
    pub actor: Arc<str>,
    pub what: String,
    pub resource: String,
    pub detail: Value,
}

/// How the history speaks of a kind of record.
pub trait HistorySubject {
    /// The names that lead to it, from the group down; `None` when its changes are nobody's business.
    fn resource(&self, key: &str) -> Option<String> {
        Some(key.to_owned())
    }

    fn is_deleting(&self) -> bool {
        false
    }

    /// What is worth knowing when it was made or changed: small, and never a secret.
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

/// Names of nodes that one row may hold; of a larger gang the number is told.
const MAX_NAMED_NODES: usize = 16;

pub(crate) fn placement(attempt: &AttemptId, nodes: &[corro_model::NodeId]) -> Value {
    let named = &nodes[..nodes.len().min(MAX_NAMED_NODES)];
    json!({"attempt": attempt.number, "nodeCount": nodes.len(), "nodes": named})
}
