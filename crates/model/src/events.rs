//! What changes, as it is told to whoever listens: one small event for each resource that came, moved or went. Used by the
//! server, the client and the command line. An event says what to look at again; it is no copy of the resource.

use serde::{Deserialize, Serialize};

use crate::Timestamp;

/// Where the stream is. Query: `after` (an id; `0` for all that is remembered) and `follow` (`false` ends it when all is told).
pub const EVENTS_PATH: &str = "/events";
/// The stream as server-sent events; anything else gets one JSON object in each line.
pub const SERVER_SENT: &str = "text/event-stream";
pub const JSON_LINES: &str = "application/x-ndjson";

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Event {
    /// To go on from; opaque, and good until the server is started anew.
    pub id: String,
    pub time: Timestamp,
    pub kind: EventKind,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub change: Option<Change>,
    /// The names that lead to it, from the group down, in lower case, joined with `/`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub resource: String,
    /// As a path of the API, in lower case where names are.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub resource_id: String,
    /// Its own name, as it was given.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// A job's, a node's or a cluster's own; for all others how far their making has come.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// Of jobs and nodes: the names that lead to their cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
    /// Of the state in which it is so.
    pub revision: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum EventKind {
    /// The first of every stream: from its id on nothing is left out.
    Start,
    /// Some were forgotten before they could be told: whoever shows a state has to read it anew.
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
