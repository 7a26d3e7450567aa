//! A host at work: tells the server what it has, hears which nodes it should carry, and keeps one `corro agent` for each. The agents
//! live apart from it, each in a directory of its own, so that nodes and their jobs survive its restart and its upgrade. Stopped by a
//! signal it ends its nodes; with SIGUSR2 it starts itself again, as the program is now, and leaves them alone.

use std::collections::{BTreeSet, HashMap};
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use corro_agent::host::inventory::restrict_gpus;
use corro_agent::host::{self, HostClient, HostError};
use corro_model::host::{DesiredHost, DesiredHostNode, HostCredential, HostReport, Inventory};
use corro_model::{NodeId, Secret};
use corro_server::Provider;
use rustix::process::{Pid, WaitOptions, waitpid};
use tokio::signal::unix::{SignalKind, signal};

use super::NodeWords;
use super::join::failure;
use super::place::Place;
use super::token::TOKEN_FD;
use crate::failure::Failure;
use crate::hosting::providers::local::{Apart, LocalNodes};
use crate::hosting::stop_asked;
use crate::talk::say;

const REPORT_EVERY: Duration = Duration::from_secs(1);
/// An agent that ended by itself is started again after this.
const START_AGAIN: Duration = Duration::from_secs(3);
/// Agents end what they run within this, or by themselves later.
const END_WITHIN: Duration = Duration::from_secs(60);

pub struct Plan {
    pub root: PathBuf,
    pub place: Place,
    pub credential: HostCredential,
    pub inventory: Inventory,
    pub address: Option<String>,
    pub words: NodeWords,
}

struct Host {
    nodes: Arc<LocalNodes>,
    root: PathBuf,
    address: Option<String>,
    /// When the agent of a node was started last.
    started: HashMap<NodeId, Instant>,
    /// Agents that an earlier run of this process started: nobody else waits for them.
    adopted: BTreeSet<u32>,
}

pub async fn run(plan: Plan) -> Result<(), Failure> {
    let Plan { root, place, credential, inventory, address, words } = plan;
    // Before anything is replaced: afterwards the kernel no longer knows the path.
    let program = std::env::current_exe().map_err(|error| Failure::of(&error))?;
    let link = HostClient::new(&place.server, &place.trust()?, credential).map_err(failure)?;
    let dir = root.join("nodes");
    fs::create_dir_all(&dir).map_err(|error| Failure::new(format!("cannot make {}: {error}", dir.display())))?;
    let server_file = root.join("server-url");
    fs::write(&server_file, &place.server)
        .map_err(|error| Failure::new(format!("cannot write {}: {error}", server_file.display())))?;
    let mut told: Vec<OsString> = Vec::new();
    told.extend(place.fingerprint.iter().flat_map(|fingerprint| ["--ca-fingerprint".into(), fingerprint.into()]));
    told.extend(words.ports.iter().flat_map(|ports| ["--ports".into(), ports.to_string().into()]));
    told.extend(words.remote_shares.then(|| "--remote-shares".into()));
    let mut hidden = words.hidden;
    hidden.push(root.clone());
    // With the profile of whoever runs the host one could ask the server for everything.
    hidden.extend(corro_client::profile::config_dir().ok());
    let apart = Apart { isolation: words.isolation, hidden };
    let nodes = LocalNodes::new(dir.clone(), place.server.clone(), server_file, told, apart);
    let nodes = Arc::new(nodes.writing(words.log).giving(words.gpus.and_then(restrict_gpus)));
    let mut host = Host { nodes, root: dir, address, started: HashMap::new(), adopted: BTreeSet::new() };
    host.adopt();
    let mut reload = signal(SignalKind::user_defined2()).map_err(|error| Failure::of(&error))?;
    let stop = stop_asked();
    tokio::pin!(stop);
    say(format_args!("host {} serves {}; Ctrl-C ends it and its nodes", link.name(), place.server));
    let mut away = false;
    loop {
        let report = HostReport { inventory: inventory.clone(), living: host.living() };
        tokio::select! {
            answer = link.report(&report) => match answer {
                Ok(desired) => {
                    if std::mem::take(&mut away) {
                        say(format_args!("{} answers again", place.server));
                    }
                    host.follow(desired).await;
                }
                Err(HostError::Removed) => {
                    host.end(END_WITHIN).await;
                    host.clear().await;
                    host::forget(link_root(&host.root)).map_err(failure)?;
                    say(format_args!("the server has removed host {}: its nodes are ended", link.name()));
                    return Ok(());
                }
                Err(error) => {
                    if !std::mem::replace(&mut away, true) {
                        say(format_args!("{error}: nodes and their jobs go on, asking again"));
                    }
                }
            },
            asked = &mut stop => {
                asked?;
                return stopped(&host, link.name()).await;
            }
            _ = reload.recv() => return Err(start_anew(&program)),
        }
        tokio::select! {
            () = tokio::time::sleep(REPORT_EVERY) => {}
            asked = &mut stop => {
                asked?;
                return stopped(&host, link.name()).await;
            }
            _ = reload.recv() => return Err(start_anew(&program)),
        }
    }
}

fn link_root(nodes: &Path) -> &Path {
    nodes.parent().unwrap_or(nodes)
}

async fn stopped(host: &Host, name: &str) -> Result<(), Failure> {
    host.end(END_WITHIN).await;
    say(format_args!("host {name} has stopped; started again soon, its nodes go on as the same nodes"));
    Ok(())
}

/// The program as it is on the disk now takes the place of this one, as the same process. The agents are left alone.
fn start_anew(program: &Path) -> Failure {
    let mut words = std::env::args_os();
    let name = words.next().unwrap_or_else(|| "corro".into());
    // What was handed over is closed by now.
    let words = words.filter(|word| !word.to_string_lossy().starts_with(TOKEN_FD));
    let error = Command::new(program).arg0(name).args(words).exec();
    Failure::new(format!("cannot start {} anew: {error}", program.display()))
}

impl Host {
    /// Nodes that have a directory here.
    fn known(&self) -> Vec<NodeId> {
        let entries = fs::read_dir(&self.root).into_iter().flatten().flatten();
        entries.filter_map(|entry| NodeId::parse(entry.file_name().to_str()?)).collect()
    }

    fn living(&mut self) -> Vec<NodeId> {
        // Whoever ended and was started before this program took over would stay as a shadow.
        let ended = |pid: &u32| {
            let pid = Pid::from_raw(*pid as i32);
            matches!(waitpid(pid, WaitOptions::NOHANG), Ok(Some(_)) | Err(_))
        };
        self.adopted.retain(|pid| !ended(pid));
        self.known().into_iter().filter(|node| self.nodes.is_alive(node) == Some(true)).collect()
    }

    fn adopt(&mut self) {
        let holders = self.known().into_iter().filter_map(|node| corro_agent::holder(&self.root.join(node.as_str())));
        self.adopted = holders.filter(|pid| *pid != 0).collect();
    }

    async fn follow(&mut self, desired: DesiredHost) {
        let wanted: BTreeSet<NodeId> = desired.nodes.iter().map(|node| node.node.clone()).collect();
        for node in self.known().into_iter().filter(|node| !wanted.contains(node)) {
            // The server has given it up already: whatever it still does must not go on.
            let nodes = Arc::clone(&self.nodes);
            let _ = tokio::task::spawn_blocking(move || nodes.ensure_gone(&node, false)).await;
        }
        self.started.retain(|node, _| wanted.contains(node));
        for node in &desired.nodes {
            let dir = self.root.join(node.node.as_str());
            if self.nodes.is_alive(&node.node) == Some(true) {
                if !node.busy && is_of_another_program(&dir) {
                    // The next round starts it again, as this program.
                    self.nodes.ask_to_stop(&node.node);
                }
                continue;
            }
            let goes_on = node.token.is_none() && corro_agent::has_joined(&dir);
            let soon = self.started.get(&node.node).is_some_and(|at| at.elapsed() < START_AGAIN);
            if soon || node.token.is_none() && !goes_on {
                continue;
            }
            self.start(node);
        }
    }

    fn start(&mut self, node: &DesiredHostNode) {
        self.started.insert(node.node.clone(), Instant::now());
        let token = node.token.clone().unwrap_or_else(|| Secret::new(""));
        if let Err(error) = self.nodes.launch(&node.node, &token, self.address.as_deref()) {
            say(format_args!("the agent of node {} cannot be started: {error}; trying again", node.node));
        }
    }

    /// Asks every agent to end, and waits for that.
    async fn end(&self, within: Duration) {
        let nodes = self.known();
        nodes.iter().for_each(|node| self.nodes.ask_to_stop(node));
        let deadline = Instant::now() + within;
        while nodes.iter().any(|node| self.nodes.is_alive(node) == Some(true)) && Instant::now() < deadline {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    async fn clear(&self) {
        for node in self.known() {
            let nodes = Arc::clone(&self.nodes);
            let _ = tokio::task::spawn_blocking(move || nodes.ensure_gone(&node, false)).await;
        }
    }
}

/// Does the agent in this directory run another file than this process does?
fn is_of_another_program(dir: &Path) -> bool {
    let file = |pid: &str| -> io::Result<(u64, u64)> {
        let about = fs::metadata(format!("/proc/{pid}/exe"))?;
        Ok((about.dev(), about.ino()))
    };
    let Some(pid) = corro_agent::holder(dir).filter(|pid| *pid != 0) else { return false };
    matches!((file(&pid.to_string()), file("self")), (Ok(theirs), Ok(own)) if theirs != own)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_without_an_agent_is_not_of_another_program() {
        assert!(!is_of_another_program(Path::new("/nonexistent")));
    }
}
