//! What the server needs from whoever makes nodes: start an agent somewhere, say whether it lives, make it be gone. That
//! is all a provider does. Implementations live with the embedder; calls may block and are repeated until they hold.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

use corro_model::state::PreemptionCause;
use corro_model::vm_size::VmSize;
use corro_model::{NodeId, Secret};

/// The server for which nodes are to be made.
pub struct ServerAddress {
    /// Where it listens.
    pub address: SocketAddr,
    /// Tells it from every other server; the same after a restart.
    pub instance: String,
}

/// A node that is wanted, as far as whoever makes it needs to know.
pub struct NewNode {
    pub id: NodeId,
    /// Where it is reached if it is on the server's machine.
    pub address: String,
    /// The name of its cluster, for people.
    pub cluster: String,
    pub size: &'static VmSize,
    /// It may be taken back.
    pub low_priority: bool,
}

pub trait Provider: Send + Sync + 'static {
    /// Starts an agent that will join as `node` with the one-time `token`.
    fn start(&self, node: &NewNode, token: Secret);

    /// Does the node's agent live? `None` when this provider cannot know.
    fn is_alive(&self, node: &NodeId) -> Option<bool>;

    /// Are there as many nodes as are asked for? If not, machines join by themselves, and there are as many as there are.
    fn creates_nodes(&self) -> bool {
        true
    }

    /// Can `ensure_gone` end a node that does not answer? If not, nodes are told to end by themselves when they lose the
    /// server.
    fn can_end_silent_nodes(&self) -> bool {
        true
    }

    /// Asks the node's agent to end what it runs and exit.
    fn ask_to_stop(&self, node: &NodeId);

    /// Makes sure that nothing of the node is left: its agent, the processes it started, its directory. Returns `true`
    /// once that holds. While `polite` the agent is left to finish by itself.
    fn ensure_gone(&self, node: &NodeId, polite: bool) -> bool;

    /// What nodes are here, in words, where they have not what their VM size names.
    fn node_description(&self) -> Option<String> {
        None
    }

    /// Why jobs in containers cannot run on any node now, where that is known. May block.
    fn container_problem(&self) -> Option<String> {
        None
    }

    /// Why the node's agent is not there yet, or is no more, in the words of whoever was asked for it. Never blocks.
    fn provisioning_issue(&self, _node: &NodeId) -> Option<String> {
        None
    }

    /// Does whoever lends the node's machine take it back, or has it done so, or will it within this time? Then its job is
    /// told, and goes back to the queue without having lost anything. Never blocks.
    fn pending_reclaim(&self, _node: &NodeId, _within: Duration) -> Option<PreemptionCause> {
        None
    }

    /// Ends whatever this server's earlier runs left: what carries its mark and is none of `known`, which is asked after
    /// looking. Called now and then.
    fn remove_orphans(&self, _known: &dyn Fn() -> BTreeSet<NodeId>) {}
}
