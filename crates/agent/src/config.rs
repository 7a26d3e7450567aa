//! Configuration of an agent, set by `corro agent` and by tests.

use std::path::PathBuf;
use std::time::Duration;

use corro_client::Trust;
use corro_launch::process::Launcher;
use corro_model::Secret;

use crate::ports::PortRange;

/// Everything an agent is configured with when it starts.
#[derive(Clone, Debug)]
pub struct AgentConfig {
    /// `http://host:port` or `https://host:port`
    pub server: String,
    /// File with the server's current URL, for servers that may move. Read before every connection.
    pub server_file: Option<PathBuf>,
    /// Certificate authorities that the agent trusts.
    pub trust: Trust,
    /// The node's own directory. One agent at a time may use it.
    pub root: PathBuf,
    /// Exchanged for the node's credential when there is none yet.
    pub join_token: Secret,
    /// Starts the guards of the node's processes.
    pub guard: Launcher,
    /// Address at which other nodes reach this one. Default: the local address of the route to the server.
    pub address: Option<String>,
    /// Ports on which this node and its ranks listen for other nodes of a job. Default: any.
    pub ports: Option<PortRange>,
    pub heartbeat: Duration,
    /// Sockets at which a container engine may listen; the first that answers is used. See [`crate::engine_sockets`].
    pub engine_sockets: Vec<PathBuf>,
    /// When retired, wait for the next cluster that needs a node. The join token must be valid for more than one node.
    pub rejoin: bool,
    pub isolation: Isolation,
    /// Mount the server's directories over the network even where this machine can see them.
    pub remote_shares: bool,
}

/// Isolation of jobs from each other and from the server's files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Isolation {
    /// The operator's choice for this node. Without it, each job's order says whether isolation is mandatory.
    pub mode: Option<IsolationMode>,
    /// Directories hidden from jobs, except for the job's own parts of them.
    pub hidden: Vec<PathBuf>,
}

impl Isolation {
    /// Effective mode for processes that the server does or does not order to isolate strictly. The only function that
    /// combines the operator's choice with the server's order.
    pub fn mode_for(&self, ordered_strict: bool) -> IsolationMode {
        let ordered = if ordered_strict { IsolationMode::Strict } else { IsolationMode::Auto };
        self.mode.unwrap_or(ordered)
    }
}

/// How strictly jobs are isolated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IsolationMode {
    /// Isolate as far as the machine allows; the execution log says how far.
    Auto,
    Off,
    /// A job that cannot be isolated fails.
    Strict,
}

impl AgentConfig {
    pub const HEARTBEAT: Duration = corro_model::node::HEARTBEAT;

    /// The server's URL joined with `path`, which begins with a slash.
    pub(crate) fn http_url(&self, path: &str) -> String {
        format!("{}{path}", self.present_server().trim_end_matches('/'))
    }

    /// Current URL of the server: from `server_file` if that can be read, else `server`.
    pub(crate) fn present_server(&self) -> String {
        let url = self.server_file.as_ref().and_then(|file| std::fs::read_to_string(file).ok());
        url.map(|url| url.trim().to_owned()).filter(|url| !url.is_empty()).unwrap_or_else(|| self.server.clone())
    }

    /// Like [`Self::http_url`] with the scheme `ws` or `wss`. `None` if the server's URL is neither `http://` nor
    /// `https://`.
    pub(crate) fn ws_url(&self, path: &str) -> Option<String> {
        let url = self.http_url(path);
        url.strip_prefix("http")
            .filter(|rest| rest.starts_with("://") || rest.starts_with("s://"))
            .map(|rest| format!("ws{rest}"))
    }
}
