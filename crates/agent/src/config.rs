//! What an agent is told when it starts. Made by `corro agent` and by tests; read by every other room.

use std::path::PathBuf;
use std::time::Duration;

use corro_launch::process::Launcher;
use corro_model::Secret;

#[derive(Clone, Debug)]
pub struct AgentConfig {
    /// `http://host:port`
    pub server: String,
    /// The node's own directory; one agent at a time.
    pub root: PathBuf,
    /// Traded for the node's credential when there is none yet.
    pub join_token: Secret,
    /// How to start the guards of the node's processes.
    pub guard: Launcher,
    /// The address of this node at which other nodes reach its ranks.
    pub address: String,
    pub heartbeat: Duration,
}

impl AgentConfig {
    pub const HEARTBEAT: Duration = Duration::from_secs(1);

    /// `http://host:port` without a slash at the end, joined with a path that begins with one.
    pub(crate) fn http_url(&self, path: &str) -> String {
        format!("{}{path}", self.server.trim_end_matches('/'))
    }

    /// The same for the WebSocket; `None` when the server's URL is not an `http://` one.
    pub(crate) fn ws_url(&self, path: &str) -> Option<String> {
        self.http_url(path).strip_prefix("http://").map(|rest| format!("ws://{rest}"))
    }
}
