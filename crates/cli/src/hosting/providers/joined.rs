//! Machines that join with `corro agent` and the open join token: they come and go by themselves.

use corro_model::{NodeId, Secret};
use corro_server::{NewNode, Provider};

/// Nodes that come and go by themselves: nothing to start, nothing to end.
pub struct JoinedNodes;

impl Provider for JoinedNodes {
    fn start(&self, _node: &NewNode, _token: Secret) {}

    fn is_alive(&self, _node: &NodeId) -> Option<bool> {
        None
    }

    fn can_end_silent_nodes(&self) -> bool {
        false
    }

    fn creates_nodes(&self) -> bool {
        false
    }

    fn ask_to_stop(&self, _node: &NodeId) {}

    /// Gone once it has said so or fell silent, which is when politeness ends.
    fn ensure_gone(&self, _node: &NodeId, polite: bool) -> bool {
        !polite
    }
}
