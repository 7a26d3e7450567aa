//! The `local` provider: nodes are `corro agent` processes on this machine, each with a directory of its own. They live
//! apart from the server, so that they and their jobs survive its restart: whether one is alive is told by the lock on
//! its directory, not by who started it.

use std::collections::HashMap;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard};

use corro_launch::sweep::sweep;
use corro_model::{NodeId, Secret};
use corro_server::Provider;
use rustix::fs::{FlockOperation, flock};
use rustix::process::{Pid, Signal, kill_process};

pub struct LocalNodes {
    root: PathBuf,
    server: String,
    /// Where agents look for the server after it has moved.
    server_file: PathBuf,
    /// Agents this process started: they must be waited for.
    children: Mutex<HashMap<NodeId, Child>>,
}

impl LocalNodes {
    pub fn new(root: PathBuf, server: String, server_file: PathBuf) -> Self {
        Self { root, server, server_file, children: Mutex::new(HashMap::new()) }
    }

    fn try_start(&self, node: &NodeId, address: &str, token: &Secret) -> io::Result<()> {
        let dir = self.root.join(node.as_str());
        DirBuilder::new().recursive(true).mode(0o700).create(&dir)?;
        let token_file = dir.join(TOKEN);
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&token_file)?;
        file.write_all(token.expose().as_bytes())?;
        let log = OpenOptions::new().append(true).create(true).mode(0o600).open(dir.join(LOG))?;
        let child = Command::new("/proc/self/exe")
            .arg0("corro")
            .args(["agent", "--server", &self.server, "--address", address])
            .arg("--server-file")
            .arg(&self.server_file)
            .arg("--data")
            .arg(&dir)
            .arg("--join-token-file")
            .arg(&token_file)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .current_dir(&dir)
            // Ctrl-C in the server's terminal is for the server; it ends its nodes in order.
            .process_group(0)
            .spawn()?;
        fs::write(dir.join(PID), child.id().to_string())?;
        self.lock().insert(node.clone(), child);
        Ok(())
    }

    fn signal(&self, node: &NodeId, signal: Signal) {
        let pid = fs::read_to_string(self.root.join(node.as_str()).join(PID)).ok();
        if let Some(pid) = pid.and_then(|text| text.trim().parse().ok()).and_then(Pid::from_raw)
            && self.is_alive(node) == Some(true)
        {
            let _ = kill_process(pid, signal);
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<NodeId, Child>> {
        self.children.lock().expect("no one panics while holding the children")
    }
}

const TOKEN: &str = "join-token";
const LOG: &str = "agent.log";
const PID: &str = "agent.pid";
/// Held by the agent as long as it lives.
const AGENT_LOCK: &str = "lock";

impl Provider for LocalNodes {
    fn start(&self, node: &NodeId, address: &str, token: Secret) {
        if let Err(error) = self.try_start(node, address, &token) {
            tracing::error!(%node, %error, "the node's agent cannot be started; it is tried again");
        }
    }

    fn is_alive(&self, node: &NodeId) -> Option<bool> {
        let mut children = self.lock();
        if let Some(child) = children.get_mut(node) {
            match child.try_wait() {
                Ok(None) => return Some(true),
                _ => children.remove(node),
            };
        }
        Some(holds_lock(&self.root.join(node.as_str()).join(AGENT_LOCK)))
    }

    fn ask_to_stop(&self, node: &NodeId) {
        self.signal(node, Signal::TERM);
    }

    fn ensure_gone(&self, node: &NodeId, polite: bool) -> bool {
        if self.is_alive(node) == Some(true) {
            if !polite {
                self.signal(node, Signal::KILL);
            }
            return false;
        }
        clear(&self.root.join(node.as_str()), node)
    }
}

/// Ends and removes what a crash left behind: directories of nodes that nobody knows any more.
pub fn remove_strays(root: &Path, known: &[NodeId]) {
    let Ok(entries) = fs::read_dir(root) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let Some(node) = name.to_str().and_then(NodeId::parse).filter(|node| !known.contains(node)) else { continue };
        let dir = entry.path();
        if !holds_lock(&dir.join(AGENT_LOCK)) {
            clear(&dir, &node);
        }
    }
}

/// With the agent dead, its processes and its directory go. Shares are symbolic links in it and are not followed.
fn clear(dir: &Path, node: &NodeId) -> bool {
    let swept = sweep(&format!("{node}/"));
    if !swept.is_empty() {
        tracing::warn!(%node, processes = swept.len(), "processes that a lost node left behind were ended");
    }
    match fs::remove_dir_all(dir) {
        Ok(()) => true,
        Err(error) if error.kind() == io::ErrorKind::NotFound => true,
        Err(error) => {
            tracing::warn!(%node, %error, "the node's directory cannot be removed");
            true
        }
    }
}

fn holds_lock(path: &Path) -> bool {
    let Ok(file) = File::open(path) else { return false };
    matches!(flock(&file, FlockOperation::NonBlockingLockShared), Err(rustix::io::Errno::WOULDBLOCK))
}
