//! Change events: one small event for each resource that was created, changed or deleted. An event names the resource
//! to read again; it is no copy of it.

use serde::{Deserialize, Serialize};

use crate::Timestamp;

/// Path of the event stream. Query: `after` (an event id; `0` for all buffered events) and `follow` (`false` ends the
/// stream after the buffered events).
pub const EVENTS_PATH: &str = "/events";
/// Media type for server-sent events; any other `Accept` value gets one JSON object per line.
pub const SERVER_SENT: &str = "text/event-stream";
pub const JSON_LINES: &str = "application/x-ndjson";

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Event {
    /// Opaque position for `after`, valid until the server restarts.
    pub id: String,
    pub time: Timestamp,
    pub kind: EventKind,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub change: Option<Change>,
    /// Resource key: the names from the resource group down, in lower case, joined with `/`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub resource: String,
    /// Resource id, with names in lower case.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub resource_id: String,
    /// Name of the resource, with its original case.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// State of a job, node or cluster; provisioning state of any other resource.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// Key of the cluster; jobs and nodes only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
    /// Revision of the server's state that contains the change.
    pub revision: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum EventKind {
    /// First event of every stream. The stream is complete from its id on.
    Start,
    /// Events were dropped from the buffer before delivery: clients must read the state again.
    Missed,
    Group,
    Workspace,
    Experiment,
    Cluster,
    FileServer,
    Node,
    Job,
    Account,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Change {
    Created,
    Changed,
    Deleted,
}
