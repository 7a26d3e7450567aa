//! The `joined` provider: machines join with `corro agent` and the open join token. The server neither starts nor ends them.

use corro_model::{NodeId, Secret};
use corro_server::{NewNode, Provider};

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

    /// Gone once the server stops being polite: by then the agent has reported its end or its lease has expired.
    fn ensure_gone(&self, _node: &NodeId, polite: bool) -> bool {
        !polite
    }
}
