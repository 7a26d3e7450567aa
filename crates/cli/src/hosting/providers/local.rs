//! The `local` provider: nodes are `corro agent` processes on this machine, each with a directory of its own. They live
//! apart from the server, so that they and their jobs survive its restart: whether one is alive is told by the lock on
//! its directory, not by who started it.

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

use corro_model::{NodeId, Secret};
use corro_server::{NewNode, Provider};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal, setsid};

use crate::commands::agent::IsolationArg;
use crate::hosting::traces;
use crate::logging::LogArgs;

pub struct LocalNodes {
    root: PathBuf,
    server: String,
    /// Where agents look for the server after it has moved.
    server_file: PathBuf,
    /// Words that say who vouches for the server's certificate, and whatever else every agent is told.
    words: Vec<OsString>,
    apart: Apart,
    /// How they write their logs.
    log: LogArgs,
    /// Whether jobs that ask for a container run without one.
    containers_on_host: bool,
    /// The variable that leaves them some of the machine's GPUs only.
    gpus: Option<(&'static str, String)>,
    /// Agents this process started: they must be waited for.
    children: Mutex<HashMap<NodeId, Child>>,
    /// When agents that are to end were asked to.
    asked: Mutex<HashMap<NodeId, Instant>>,
}

/// How jobs on this machine are kept apart, and what none of them may see.
pub struct Apart {
    /// The operator's choice; without one the server decides for each job.
    pub isolation: Option<IsolationArg>,
    pub hidden: Vec<PathBuf>,
}

impl LocalNodes {
    pub fn new(root: PathBuf, server: String, server_file: PathBuf, words: Vec<OsString>, apart: Apart) -> Self {
        let (log, gpus, children, asked) = (LogArgs::default(), None, Mutex::default(), Mutex::default());
        let containers_on_host = false;
        Self { root, server, server_file, words, apart, log, containers_on_host, gpus, children, asked }
    }

    /// The same, where jobs that ask for a container run without one (`--no-containers`) or not.
    pub fn with_containers_on_host(self, containers_on_host: bool) -> Self {
        Self { containers_on_host, ..self }
    }

    /// The same, whose nodes write their logs so.
    pub fn writing(self, log: LogArgs) -> Self {
        Self { log, ..self }
    }

    /// The same, whose nodes have these GPUs only.
    pub fn giving(self, gpus: Option<(&'static str, String)>) -> Self {
        Self { gpus, ..self }
    }

    /// Starts the agent of `node`: with a token to become it, or with an empty one to go on as it. Others reach it at `address`.
    pub fn launch(&self, node: &NodeId, token: &Secret, address: Option<&str>) -> io::Result<()> {
        let dir = self.root.join(node.as_str());
        DirBuilder::new().recursive(true).mode(0o700).create(&dir)?;
        let token_file = dir.join(TOKEN);
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&token_file)?;
        file.write_all(token.expose().as_bytes())?;
        let log = OpenOptions::new().append(true).create(true).mode(0o600).open(dir.join(LOG))?;
        let mut command = Command::new("/proc/self/exe");
        command
            .arg0("corro")
            .args(["agent", "--server", &self.server])
            .args(address.iter().flat_map(|address| ["--address", address]))
            .arg("--server-file")
            .arg(&self.server_file)
            .arg("--data")
            .arg(&dir)
            .arg("--join-token-file")
            .arg(&token_file)
            .arg("--once")
            .args(self.apart.isolation.iter().flat_map(|mode| ["--isolation", mode.word()]))
            .args(self.apart.hidden.iter().flat_map(|dir| [OsStr::new("--hide"), dir.as_os_str()]))
            .args(self.log.words())
            .args(&self.words)
            .envs(self.gpus.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .current_dir(&dir);
        for (name, _) in std::env::vars_os().filter(|(name, _)| traces::is_ours(&name.to_string_lossy())) {
            command.env_remove(name);
        }
        // A session of its own: Ctrl-C in the server's terminal is for the server, which ends its nodes in order, and the
        // kernel hangs up on an agent that stands still when its parent, in the same session, dies.
        // SAFETY: runs between fork and exec and makes one system call.
        unsafe {
            command.pre_exec(|| setsid().map(|_| ()).map_err(io::Error::from));
        }
        let child = command.spawn()?;
        self.forget_asked(node);
        self.lock().insert(node.clone(), child);
        Ok(())
    }

    /// Signals the agent by a handle on its process, so that nobody who inherited its number is hit.
    fn signal(&self, node: &NodeId, signal: Signal) {
        let dir = self.root.join(node.as_str());
        let pid = self.agent(node);
        let Some(pid) = pid.and_then(|pid| Pid::from_raw(pid as i32)) else { return };
        let Ok(process) = pidfd_open(pid, PidfdFlags::empty()) else { return };
        let number = Some(pid.as_raw_nonzero().get() as u32);
        if self.child(node) == number || corro_agent::holder(&dir) == number {
            let _ = pidfd_send_signal(&process, signal);
        }
    }

    /// The process of an agent that this process started and that lives.
    fn child(&self, node: &NodeId) -> Option<u32> {
        let mut children = self.lock();
        let child = children.get_mut(node)?;
        match child.try_wait() {
            Ok(None) => Some(child.id()),
            _ => {
                children.remove(node);
                None
            }
        }
    }

    /// The process of the node's agent, whoever started it.
    fn agent(&self, node: &NodeId) -> Option<u32> {
        self.child(node).or_else(|| corro_agent::holder(&self.root.join(node.as_str())))
    }

    /// Asks the agent to end, once. One that was stopped acts on it only once it goes on.
    fn ask(&self, node: &NodeId) -> Instant {
        let mut asked = self.asked.lock().expect("no one panics while holding the times");
        *asked.entry(node.clone()).or_insert_with(|| {
            self.signal(node, Signal::TERM);
            self.signal(node, Signal::CONT);
            Instant::now()
        })
    }

    fn forget_asked(&self, node: &NodeId) {
        self.asked.lock().expect("no one panics while holding the times").remove(node);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<NodeId, Child>> {
        self.children.lock().expect("no one panics while holding the children")
    }
}

const TOKEN: &str = "join-token";
const LOG: &str = "agent.log";
/// From asking an agent that must go until it is killed.
const LAST_OUTPUT_WITHIN: Duration = Duration::from_secs(2);

impl Provider for LocalNodes {
    fn start(&self, node: &NewNode, token: Secret) {
        if let Err(error) = self.launch(&node.id, &token, Some(&node.address)) {
            tracing::error!(node = %node.id, %error, "the node's agent cannot be started; it is tried again");
        }
    }

    fn is_alive(&self, node: &NodeId) -> Option<bool> {
        let dir = self.root.join(node.as_str());
        // The agent of a directory that was moved goes on with the paths of before, where nothing is: it is of no use.
        let is_usable = || corro_agent::holder(&dir).is_some() && !corro_agent::incarnation::was_moved(&dir);
        Some(self.child(node).is_some() || is_usable())
    }

    fn node_description(&self) -> Option<String> {
        let machine = corro_agent::describe_machine();
        Some(format!("a group of processes on the server's machine, which has {machine} for all of them"))
    }

    fn container_problem(&self) -> Option<String> {
        let sockets = corro_agent::engine_sockets(|name| std::env::var(name).ok());
        let answers = || sockets.iter().any(|socket| UnixStream::connect(socket).is_ok());
        (!self.containers_on_host && !answers()).then(|| {
            "no engine answers on this machine, so it will fail unless one is started before its nodes are free. Start Docker \
             or Podman, or the server with --no-containers"
                .to_owned()
        })
    }

    fn ask_to_stop(&self, node: &NodeId) {
        self.ask(node);
    }

    fn ensure_gone(&self, node: &NodeId, polite: bool) -> bool {
        if self.agent(node).is_some() {
            // An agent that was frozen holds output of its processes that is in no log yet, so it gets the time to write it.
            if !polite && self.ask(node).elapsed() >= LAST_OUTPUT_WITHIN {
                self.signal(node, Signal::KILL);
            }
            return false;
        }
        let is_gone = clear(&self.root.join(node.as_str()), node);
        if is_gone {
            self.forget_asked(node);
        }
        is_gone
    }
}

/// Removes what a crash left behind: directories of nodes that nobody knows any more and no agent lives in. One that
/// still lives is fenced by the server and ends by itself; the next start finds its directory.
pub fn remove_strays(root: &Path, known: impl FnOnce() -> Vec<NodeId>) {
    let Ok(entries) = fs::read_dir(root) else { return };
    let found: Vec<NodeId> = entries.flatten().filter_map(|entry| NodeId::parse(entry.file_name().to_str()?)).collect();
    // Asked after looking: a node that is made meanwhile is known before its directory is there.
    let known = known();
    for node in found.iter().filter(|node| !known.contains(node)) {
        let dir = root.join(node.as_str());
        if corro_agent::holder(&dir).is_none() {
            clear(&dir, node);
        }
    }
}

/// The same where no server is: what agents that had joined left in `root` when they were killed. One that has not joined
/// may be about to take its directory.
pub fn remove_left_by_killed(root: &Path) {
    remove_strays(root, || {
        let entries = fs::read_dir(root).into_iter().flatten().flatten();
        let new = entries.filter(|entry| !corro_agent::has_joined(&entry.path()));
        new.filter_map(|entry| NodeId::parse(entry.file_name().to_str()?)).collect()
    });
}

/// With the agent dead, what was started from its directory is ended, and the directory goes. Shares are symbolic links in it and are not followed.
fn clear(dir: &Path, node: &NodeId) -> bool {
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
        // What may still run must not run a second time elsewhere.
        Err(error) => {
            tracing::error!(%node, error, "whether a lost node left containers cannot be seen to; it is tried again");
            return false;
        }
    }
    if let Err(error) = corro_agent::remove_node_directory(dir) {
        // Nothing runs any more, which is what counts; the next start tries again.
        tracing::warn!(%node, %error, "the node's directory cannot be removed");
    }
    true
}
