//! The `local` provider: nodes are `corro agent` processes on this machine, each with a directory of its own. Agents run in their own
//! sessions, so that they and their jobs survive a restart of the server. The lock on its directory tells whether an agent is alive,
//! whichever process started it.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use corro_agent::PythonCacheConfig;
use corro_model::{NodeId, Secret};
use corro_server::{NewNode, Provider};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal, setsid};

use crate::isolation::IsolationArg;
use crate::logging::LogArgs;
use crate::trace_export;

/// Settings of [`LocalNodes`].
pub struct LocalNodesConfig {
    /// Parent of the nodes' directories.
    pub nodes_dir: PathBuf,
    pub server_url: String,
    /// File in which agents look up the server's URL after they have lost it.
    pub server_url_file: PathBuf,
    /// Further arguments for each agent, such as `--ca`.
    pub extra_agent_args: Vec<OsString>,
    /// The operator's choice; `None` leaves it to the server for each job.
    pub isolation: Option<IsolationArg>,
    /// Directories that no job may see.
    pub hidden_dirs: Vec<PathBuf>,
    pub log: LogArgs,
    /// Whether jobs that ask for a container run without one (`--no-containers`).
    pub containers_on_host: bool,
    /// Environment variable and value that restrict the nodes to some of the machine's GPUs.
    pub visible_gpus: Option<(&'static str, String)>,
}

pub struct LocalNodes {
    config: LocalNodesConfig,
    /// Agents that this process started and must reap.
    children: Mutex<HashMap<NodeId, Child>>,
    /// Time at which an agent was sent SIGTERM.
    stop_requests: Mutex<HashMap<NodeId, Instant>>,
}

impl LocalNodes {
    pub fn new(config: LocalNodesConfig) -> Self {
        Self { config, children: Mutex::default(), stop_requests: Mutex::default() }
    }

    /// Starts the agent of `node`. An empty token resumes a node that has joined before. Other nodes connect to `address`.
    pub fn launch(&self, node: &NodeId, token: &Secret, address: Option<&str>) -> io::Result<()> {
        let dir = self.config.nodes_dir.join(node.as_str());
        DirBuilder::new().recursive(true).mode(0o700).create(&dir)?;
        let token_file = dir.join(TOKEN_FILE);
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&token_file)?;
        file.write_all(token.expose().as_bytes())?;
        let log = OpenOptions::new().append(true).create(true).mode(0o600).open(dir.join(LOG_FILE))?;
        let mut command = Command::new("/proc/self/exe");
        command
            .arg0("corro")
            .args(["agent", "--server", &self.config.server_url])
            .args(address.iter().flat_map(|address| ["--address", address]))
            .arg("--server-file")
            .arg(&self.config.server_url_file)
            .arg("--data")
            .arg(&dir)
            .arg("--join-token-file")
            .arg(&token_file)
            .arg("--once")
            .args(self.config.isolation.iter().flat_map(|mode| ["--isolation", mode.as_str()]))
            .args(self.config.hidden_dirs.iter().flat_map(|dir| [OsStr::new("--hide"), dir.as_os_str()]))
            .args(self.config.log.to_args())
            .args(&self.config.extra_agent_args)
            .envs(self.config.visible_gpus.iter().map(|(name, value)| (name, value)))
            .envs(self.python_cache().map(|directory| (PythonCacheConfig::DIRECTORY_VARIABLE, directory)))
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .current_dir(&dir);
        for (name, _) in std::env::vars_os().filter(|(name, _)| trace_export::is_otel_variable(&name.to_string_lossy()))
        {
            command.env_remove(name);
        }
        // A session of its own: Ctrl-C in the server's terminal must reach only the server, which ends its nodes in order, and the
        // kernel would send SIGHUP to a stopped agent when its parent, in the same session, dies.
        // SAFETY: the closure runs in the forked child before exec and only calls setsid(2), which is async-signal-safe.
        unsafe {
            command.pre_exec(|| setsid().map(|_| ()).map_err(io::Error::from));
        }
        let child = command.spawn()?;
        self.forget_stop_request(node);
        self.lock_children().insert(node.clone(), child);
        Ok(())
    }

    /// Directory of the Python environments that all nodes here share. `None` if the operator names another one.
    fn python_cache(&self) -> Option<PathBuf> {
        let is_configured =
            std::env::var_os(PythonCacheConfig::DIRECTORY_VARIABLE).is_some_and(|value| !value.is_empty());
        let beside_nodes = self.config.nodes_dir.parent().map(|data| data.join(PYTHON_CACHE_DIR));
        beside_nodes.filter(|path| !is_configured && path.is_absolute())
    }

    /// Signals the agent through a pidfd. The agent is checked again after the pidfd was opened, so that a recycled pid is never hit.
    fn signal_agent(&self, node: &NodeId, signal: Signal) {
        let dir = self.config.nodes_dir.join(node.as_str());
        let pid = self.agent_pid(node);
        let Some(pid) = pid.and_then(|pid| Pid::from_raw(pid as i32)) else { return };
        let Ok(process) = pidfd_open(pid, PidfdFlags::empty()) else { return };
        let number = Some(pid.as_raw_nonzero().get() as u32);
        if self.child_pid(node) == number || corro_agent::holder(&dir) == number {
            let _ = pidfd_send_signal(&process, signal);
        }
    }

    /// Pid of the agent if this process started it and it is alive.
    fn child_pid(&self, node: &NodeId) -> Option<u32> {
        let mut children = self.lock_children();
        let child = children.get_mut(node)?;
        match child.try_wait() {
            Ok(None) => Some(child.id()),
            _ => {
                children.remove(node);
                None
            }
        }
    }

    /// Pid of the node's agent, whichever process started it.
    fn agent_pid(&self, node: &NodeId) -> Option<u32> {
        self.child_pid(node).or_else(|| corro_agent::holder(&self.config.nodes_dir.join(node.as_str())))
    }

    /// Sends SIGTERM once and returns when. SIGCONT follows, because a stopped process handles no signals.
    fn request_stop(&self, node: &NodeId) -> Instant {
        let mut stop_requests = self.stop_requests.lock().expect("no holder of this lock panics");
        *stop_requests.entry(node.clone()).or_insert_with(|| {
            self.signal_agent(node, Signal::TERM);
            self.signal_agent(node, Signal::CONT);
            Instant::now()
        })
    }

    fn forget_stop_request(&self, node: &NodeId) {
        self.stop_requests.lock().expect("no holder of this lock panics").remove(node);
    }

    fn lock_children(&self) -> MutexGuard<'_, HashMap<NodeId, Child>> {
        self.children.lock().expect("no holder of this lock panics")
    }
}

const TOKEN_FILE: &str = "join-token";
const LOG_FILE: &str = "agent.log";
/// Beside the parent of the nodes' directories.
const PYTHON_CACHE_DIR: &str = "python-environments";
/// Time between SIGTERM and SIGKILL for an agent that must be gone. It flushes its jobs' output meanwhile.
const KILL_DELAY: Duration = Duration::from_secs(2);

impl Provider for LocalNodes {
    fn start(&self, node: &NewNode, token: Secret) {
        if let Err(error) = self.launch(&node.id, &token, Some(&node.address)) {
            tracing::error!(node = %node.id, %error, "cannot start the node's agent; retrying");
        }
    }

    fn is_alive(&self, node: &NodeId) -> Option<bool> {
        let dir = self.config.nodes_dir.join(node.as_str());
        // The agent of a directory that was moved still uses the old paths, which no longer exist.
        let is_usable = || corro_agent::holder(&dir).is_some() && !corro_agent::incarnation::was_moved(&dir);
        Some(self.child_pid(node).is_some() || is_usable())
    }

    fn node_description(&self) -> Option<String> {
        let machine = corro_agent::describe_machine();
        Some(format!("a group of processes on the server's machine, which has {machine} for all of them"))
    }

    fn container_problem(&self) -> Option<String> {
        let sockets = corro_agent::engine_sockets(|name| std::env::var(name).ok());
        let answers = || sockets.iter().any(|socket| UnixStream::connect(socket).is_ok());
        (!self.config.containers_on_host && !answers()).then(|| {
            "no engine answers on this machine, so it will fail unless one is started before its nodes are free. Start Docker \
             or Podman, or the server with --no-containers"
                .to_owned()
        })
    }

    fn ask_to_stop(&self, node: &NodeId) {
        self.request_stop(node);
    }

    fn ensure_gone(&self, node: &NodeId, polite: bool) -> bool {
        if self.agent_pid(node).is_some() {
            // An agent that was stopped (SIGSTOP) may hold output of its processes that is in no log yet, so it gets time to write it.
            if !polite && self.request_stop(node).elapsed() >= KILL_DELAY {
                self.signal_agent(node, Signal::KILL);
            }
            return false;
        }
        let is_gone = remove_remains(&self.config.nodes_dir.join(node.as_str()), node);
        if is_gone {
            self.forget_stop_request(node);
        }
        is_gone
    }
}

/// Removes directories, left by a crash, of nodes that are not in `known` and have no live agent. A live agent is fenced by the server
/// and ends by itself; the next start removes its directory.
pub fn remove_stray_directories(root: &Path, known: impl FnOnce() -> Vec<NodeId>) {
    let Ok(entries) = fs::read_dir(root) else { return };
    let listed: Vec<NodeId> =
        entries.flatten().filter_map(|entry| NodeId::parse(entry.file_name().to_str()?)).collect();
    // Read after the listing: a node that is made meanwhile is known before its directory exists.
    let known = known();
    for node in listed.iter().filter(|node| !known.contains(node)) {
        let dir = root.join(node.as_str());
        if corro_agent::holder(&dir).is_none() {
            remove_remains(&dir, node);
        }
    }
}

/// Removes directories in `root` of agents that had joined and were killed. For machines without a server. The directory of an agent
/// that has not joined stays: the agent may be about to use it.
pub fn remove_directories_of_killed_agents(root: &Path) {
    remove_stray_directories(root, || {
        let entries = fs::read_dir(root).into_iter().flatten().flatten();
        let unjoined = entries.filter(|entry| !corro_agent::has_joined(&entry.path()));
        unjoined.filter_map(|entry| NodeId::parse(entry.file_name().to_str()?)).collect()
    });
}

/// Ends what a dead agent left running and removes its directory. Symbolic links to shares are not followed. `false` means that
/// containers may still run.
fn remove_remains(dir: &Path, node: &NodeId) -> bool {
    let sockets = corro_agent::engine_sockets(|name| std::env::var(name).ok());
    match corro_agent::leftovers::end_all(dir, node, &sockets) {
        Ok(ended) => {
            if !ended.processes.is_empty() {
                let n_processes = ended.processes.len();
                tracing::warn!(%node, n_processes, "processes that a lost node left behind were ended");
            }
            if !ended.containers.is_empty() {
                let n_containers = ended.containers.len();
                tracing::warn!(%node, n_containers, "containers that a lost node left behind were removed");
            }
        }
        // A job that may still run here must not start elsewhere.
        Err(error) => {
            tracing::error!(%node, error, "cannot check whether a lost node left containers behind; retrying");
            return false;
        }
    }
    if let Err(error) = corro_agent::remove_node_directory(dir) {
        // Nothing runs any more; the next start tries to remove the directory again.
        tracing::warn!(%node, %error, "the node's directory cannot be removed");
    }
    true
}
