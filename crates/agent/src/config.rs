//! Configuration of an agent, set by `corro agent` and by tests.

use std::path::PathBuf;
use std::time::Duration;

use corro_client::Trust;
use corro_launch::process::Launcher;
use corro_model::Secret;
use corro_model::container::parse_size;
use thiserror::Error;

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
    pub python_cache: PythonCacheConfig,
}

/// Cache of the Python environments of jobs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PythonCacheConfig {
    /// Directory that several nodes of a machine may share. Default: in the node's own directory.
    pub directory: Option<PathBuf>,
    pub max_environments: usize,
    pub max_bytes: u64,
}

impl PythonCacheConfig {
    /// Variable with the directory.
    pub const DIRECTORY_VARIABLE: &str = "CORRO_PYTHON_CACHE";
    const COUNT_VARIABLE: &str = "CORRO_PYTHON_CACHE_COUNT";
    const SIZE_VARIABLE: &str = "CORRO_PYTHON_CACHE_SIZE";
    const DEFAULT_COUNT: usize = 8;
    const DEFAULT_BYTES: u64 = 20 << 30;

    /// From the environment of this process. A setting that is not valid has no effect but a warning.
    pub fn from_environment() -> PythonCacheConfig {
        Self::from_variables(|name| std::env::var(name).ok()).unwrap_or_else(|error| {
            tracing::warn!(%error, "the default bounds and directory of the Python cache are used");
            Self::from_variables(|_| None).expect("no variable is invalid")
        })
    }

    /// From the variables of an agent's environment. The error names a variable with an invalid value.
    fn from_variables(get: impl Fn(&str) -> Option<String>) -> Result<PythonCacheConfig, PythonCacheError> {
        let get = |name: &str| get(name).filter(|value| !value.is_empty());
        let directory = get(Self::DIRECTORY_VARIABLE).map(PathBuf::from);
        if let Some(path) = directory.as_ref().filter(|path| !path.is_absolute()) {
            return Err(PythonCacheError::Directory { path: path.clone() });
        }
        let max_environments = match get(Self::COUNT_VARIABLE) {
            Some(text) => {
                let count = text.parse().ok().filter(|count| *count > 0);
                count.ok_or(PythonCacheError::Count { text })?
            }
            None => Self::DEFAULT_COUNT,
        };
        let max_bytes = match get(Self::SIZE_VARIABLE) {
            Some(text) => parse_size(&text).ok_or(PythonCacheError::Size { text })?,
            None => Self::DEFAULT_BYTES,
        };
        Ok(PythonCacheConfig { directory, max_environments, max_bytes })
    }
}

/// An invalid variable of the cache.
#[derive(Debug, Error, PartialEq, Eq)]
enum PythonCacheError {
    #[error("{} is '{}': give an absolute path", PythonCacheConfig::DIRECTORY_VARIABLE, path.display())]
    Directory { path: PathBuf },
    #[error("{} is '{text}': give a number of environments from 1", PythonCacheConfig::COUNT_VARIABLE)]
    Count { text: String },
    #[error("{} is '{text}': give a size such as 20g or 500m", PythonCacheConfig::SIZE_VARIABLE)]
    Size { text: String },
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_python_cache_is_configured_by_variables() {
        let read = |given: &[(&str, &str)]| {
            let value =
                |name: &str| given.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
            PythonCacheConfig::from_variables(value)
        };
        let default = PythonCacheConfig { directory: None, max_environments: 8, max_bytes: 20 << 30 };
        assert_eq!(read(&[]), Ok(default.clone()));
        assert_eq!(read(&[("CORRO_PYTHON_CACHE", ""), ("CORRO_PYTHON_CACHE_COUNT", "")]), Ok(default));
        let all = [
            ("CORRO_PYTHON_CACHE", "/var/cache/python"),
            ("CORRO_PYTHON_CACHE_COUNT", "3"),
            ("CORRO_PYTHON_CACHE_SIZE", "500m"),
        ];
        let expected = PythonCacheConfig {
            directory: Some("/var/cache/python".into()),
            max_environments: 3,
            max_bytes: 500 << 20,
        };
        assert_eq!(read(&all), Ok(expected));
        for (name, value, message) in [
            ("CORRO_PYTHON_CACHE", "here", "CORRO_PYTHON_CACHE is 'here': give an absolute path"),
            ("CORRO_PYTHON_CACHE_COUNT", "0", "CORRO_PYTHON_CACHE_COUNT is '0': give a number of environments from 1"),
            ("CORRO_PYTHON_CACHE_SIZE", "much", "CORRO_PYTHON_CACHE_SIZE is 'much': give a size such as 20g or 500m"),
        ] {
            assert_eq!(read(&[(name, value)]).expect_err(name).to_string(), message);
        }
    }
}
