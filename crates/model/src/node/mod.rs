//! What server and node tell each other. The server sends the *whole* desired state of a node; the node reports what it
//! observes. Nothing here is a command to do once: every message can be lost and sent again.
//!
//! Reading order: `identity` (who may speak, and in which version), `desired` and `task` (what the server wants), `volumes` (what a
//! node needs for it and gets from the server), `observed` (what came of it).

mod desired;
mod identity;
mod observed;
mod task;
mod volumes;

use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use desired::*;
pub use identity::*;
pub use observed::*;
pub use task::*;
pub use volumes::*;

/// How often a node speaks, even when it has nothing new to say.
pub const HEARTBEAT: Duration = Duration::from_secs(1);

/// Server to node.
#[allow(clippy::large_enum_variant)] // One at a time; a box would buy nothing.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "camelCase")]
pub enum ToNode {
    Desired(DesiredNode),
    /// The node was declared lost or removed: stop everything, forget the credential.
    Fenced {
        reason: String,
    },
    /// Somebody looks at the node's task: say once what its processes use.
    Look,
    /// Somebody wants a timeline of the node's task: have its ranks record it, and send what they did.
    Record {
        number: u64,
        millis: u64,
        /// Of all its ranks together.
        most_bytes: u64,
    },
}

/// Node to server.
#[allow(clippy::large_enum_variant)]
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "camelCase")]
pub enum FromNode {
    Observed(ObservedNode),
    Heartbeat,
    /// The answer to a look.
    Figures(TaskStats),
    /// The answers to an order to record.
    Recording(FromRecording),
}
