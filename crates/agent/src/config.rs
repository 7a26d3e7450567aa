//! What an agent is told when it starts. Made by `corro agent` and by tests; read by every other room.

use std::path::PathBuf;
use std::time::Duration;

use corro_client::Trust;
use corro_launch::process::Launcher;
use corro_model::Secret;

use crate::ports::PortRange;

#[derive(Clone, Debug)]
pub struct AgentConfig {
    /// `http://host:port` or `https://host:port`
    pub server: String,
    /// A file that holds the server's present URL, for servers that may move; looked into before every connection.
    pub server_file: Option<PathBuf>,
    /// Whose certificates are believed.
    pub trust: Trust,
    /// The node's own directory; one agent at a time.
    pub root: PathBuf,
    /// Traded for the node's credential when there is none yet.
    pub join_token: Secret,
    /// How to start the guards of the node's processes.
    pub guard: Launcher,
    /// At which other nodes reach this one; without it, the address by which this machine reaches the server.
    pub address: Option<String>,
    /// On which ports this node listens for others of a job, and its ranks do; any, without.
    pub ports: Option<PortRange>,
    pub heartbeat: Duration,
    /// Where a container engine may listen; the first that answers is used. See [`crate::engine_sockets`].
    pub engine_sockets: Vec<PathBuf>,
    /// When the server no longer needs this node, wait for the next cluster that does. The join token must be good for
    /// more than one node.
    pub rejoin: bool,
    pub isolation: Isolation,
    /// Mount the server's directories even where this machine sees them.
    pub remote_shares: bool,
}

/// What jobs are kept from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Isolation {
    /// What the operator chose for this node. Without a choice the order of each job says whether it must be isolated.
    pub mode: Option<IsolationMode>,
    /// Directories that no job may see, but for what is its own in them.
    pub hidden: Vec<PathBuf>,
}

impl Isolation {
    /// How processes are isolated that the server does, or does not, order to be isolated strictly. The only place where the operator's
    /// choice and the server's order are put together.
    pub fn mode_for(&self, ordered_strict: bool) -> IsolationMode {
        let ordered = if ordered_strict { IsolationMode::Strict } else { IsolationMode::Auto };
        self.mode.unwrap_or(ordered)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IsolationMode {
    /// As far as the machine allows; the execution log says how far.
    Auto,
    Off,
    /// A job that cannot be isolated does not run.
    Strict,
}

impl AgentConfig {
    pub const HEARTBEAT: Duration = corro_model::node::HEARTBEAT;

    /// The server's URL without a slash at the end, joined with a path that begins with one.
    pub(crate) fn http_url(&self, path: &str) -> String {
        format!("{}{path}", self.present_server().trim_end_matches('/'))
    }

    /// Where the server is now, as far as this machine tells.
    pub(crate) fn present_server(&self) -> String {
        let told = self.server_file.as_ref().and_then(|file| std::fs::read_to_string(file).ok());
        told.map(|url| url.trim().to_owned()).filter(|url| !url.is_empty()).unwrap_or_else(|| self.server.clone())
    }

    /// The same for the WebSocket; `None` when the server's URL is neither an `http://` nor an `https://` one.
    pub(crate) fn ws_url(&self, path: &str) -> Option<String> {
        let url = self.http_url(path);
        url.strip_prefix("http")
            .filter(|rest| rest.starts_with("://") || rest.starts_with("s://"))
            .map(|rest| format!("ws{rest}"))
    }
}
