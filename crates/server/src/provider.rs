//! Interface to the component that creates nodes: start an agent, check whether it is alive, remove it. Implemented by
//! the embedder. Calls may block and are repeated until they succeed.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

use corro_model::state::PreemptionCause;
use corro_model::vm_size::VmSize;
use corro_model::{NodeId, Secret};

/// The server that nodes are created for.
pub struct ServerAddress {
    /// Address that the server listens on.
    pub address: SocketAddr,
    /// Unique id of the server; the same after a restart.
    pub instance: String,
}

/// Node to create.
pub struct NewNode {
    pub id: NodeId,
    /// Address of the node if it runs on the server's machine.
    pub address: String,
    /// Name of its cluster, for display.
    pub cluster: String,
    pub size: &'static VmSize,
    /// Whether the node may be preempted.
    pub low_priority: bool,
}

pub trait Provider: Send + Sync + 'static {
    /// Starts an agent that joins as `node` with the one-time `token`.
    fn start(&self, node: &NewNode, token: Secret);

    /// Whether the node's agent is alive; `None` if this provider cannot know.
    fn is_alive(&self, node: &NodeId) -> Option<bool>;

    /// Whether the provider creates as many nodes as requested. Otherwise machines join by themselves, and their number
    /// is given.
    fn creates_nodes(&self) -> bool {
        true
    }

    /// Whether `ensure_gone` can end a node that does not respond. Otherwise nodes must end by themselves when they
    /// lose the server.
    fn can_end_silent_nodes(&self) -> bool {
        true
    }

    /// Asks the node's agent to end its processes and exit.
    fn ask_to_stop(&self, node: &NodeId);

    /// Removes the node's agent, the processes it started and its directory. Returns `true` when nothing is left. With
    /// `polite`, the agent may still end by itself.
    fn ensure_gone(&self, node: &NodeId, polite: bool) -> bool;

    /// Description of the nodes, if they do not have the resources of their VM size.
    fn node_description(&self) -> Option<String> {
        None
    }

    /// Reason why no node can run container jobs now, if known. May block.
    fn container_problem(&self) -> Option<String> {
        None
    }

    /// Reason why the node's agent is not running yet or has ended, as reported by the system that runs it. Never
    /// blocks.
    fn provisioning_issue(&self, _node: &NodeId) -> Option<String> {
        None
    }

    /// Cause if the owner of the node's machine reclaims it, has done so, or will do so within this time. The job is
    /// then evicted and queued again without loss. Never blocks.
    fn pending_reclaim(&self, _node: &NodeId, _within: Duration) -> Option<PreemptionCause> {
        None
    }

    /// Removes the remains of earlier runs of this server: everything that carries its tag and is not in `known`.
    /// `known` is called after the search. Called periodically.
    fn remove_orphans(&self, _known: &dyn Fn() -> BTreeSet<NodeId>) {}
}
