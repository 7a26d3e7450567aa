//! Hosts as the API shows them, and how one is emptied.

use serde::{Deserialize, Serialize};

use super::{Capacity, Inventory};
use crate::{NodeId, Timestamp};

/// A host, as `corro host list` shows it.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Host {
    pub name: String,
    pub state: HostState,
    #[serde(flatten)]
    pub inventory: Inventory,
    /// What no node has taken yet.
    pub free: Capacity,
    pub joined: Timestamp,
    pub last_heard: Timestamp,
    pub nodes: Vec<HostNode>,
    /// Why it carries no more, or none, of the nodes that clusters wait for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum HostState {
    /// It is heard, and takes nodes.
    Ready,
    /// It takes no nodes, and its nodes take no jobs.
    Cordoned,
    /// Its nodes leave as their jobs end.
    Draining,
    /// It is cordoned, and nothing is left on it.
    Drained,
    /// It is ended, and forgotten then.
    Removing,
    /// It was not heard for a lease.
    Silent,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HostNode {
    pub node_id: NodeId,
    pub cluster: String,
    pub vm_size: String,
    pub state: String,
}

/// How a host is emptied, or removed.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DrainParameters {
    /// Running jobs go back to the queue, instead of ending by themselves.
    pub now: bool,
}
