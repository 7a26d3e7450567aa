//! Hosts in the API, and drain parameters.

use serde::{Deserialize, Serialize};

use super::{Capacity, Inventory};
use crate::gpu::GpuReading;
use crate::{NodeId, Timestamp};

/// Host, as in `corro host list`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Host {
    pub name: String,
    pub state: HostState,
    #[serde(flatten)]
    pub inventory: Inventory,
    /// Capacity that no node uses.
    pub free: Capacity,
    pub joined: Timestamp,
    pub last_heard: Timestamp,
    pub nodes: Vec<HostNode>,
    /// State of its GPUs when it last reported.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gpu_readings: Vec<GpuReading>,
    /// Reason why it runs no more, or none, of the nodes that clusters wait for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum HostState {
    /// Sends heartbeats and accepts nodes.
    Ready,
    /// Accepts no nodes, and its nodes accept no jobs.
    Cordoned,
    /// Its nodes leave as their jobs end.
    Draining,
    /// Cordoned without nodes.
    Drained,
    /// Being shut down; its record is removed then.
    Removing,
    /// No heartbeat for a lease.
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

/// Parameters of drain and remove.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DrainParameters {
    /// Requeue running jobs instead of waiting for their end.
    pub now: bool,
}
