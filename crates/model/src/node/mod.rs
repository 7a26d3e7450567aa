//! Protocol between server and node. The server sends the *whole* desired state of a node; the node reports its
//! observed state. Messages are idempotent: each can be lost and sent again.
//!
//! Reading order: `identity` (credentials and versions), `desired` and `task` (desired state), `elastic` (processes of
//! elastic attempts), `volumes` (mounts and wheels), `observed` (observed state), `tunnel` (byte streams to ports of a node).

mod desired;
mod elastic;
mod identity;
mod observed;
mod task;
mod tunnel;
mod volumes;

use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use desired::*;
pub use elastic::*;
pub use identity::*;
pub use observed::*;
pub use task::*;
pub use tunnel::*;
pub use volumes::*;

/// Interval of a node's messages, even without news.
pub const HEARTBEAT: Duration = Duration::from_secs(1);

/// Server to node.
#[allow(clippy::large_enum_variant)] // One at a time; a box would buy nothing.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "camelCase")]
pub enum ToNode {
    Desired(DesiredNode),
    /// The node was declared lost or removed: stop everything, delete the credential.
    Fenced {
        reason: String,
    },
    /// Requests one sample of the process statistics of the node's task.
    Look,
    /// Requests a timeline recording of the node's ranks.
    Record {
        number: u64,
        millis: u64,
        /// Limit for all its ranks together.
        most_bytes: u64,
    },
    /// Requests the agent's end of a tunnel. Sent only to agents that report `tunnels`.
    Tunnel(TunnelOrder),
}

/// Node to server.
#[allow(clippy::large_enum_variant)]
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "camelCase")]
pub enum FromNode {
    Observed(ObservedNode),
    Heartbeat,
    /// Response to `Look`.
    Figures(TaskStats),
    /// Response to `Record`.
    Recording(FromRecording),
}
