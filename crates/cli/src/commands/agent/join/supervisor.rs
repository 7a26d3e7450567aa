//! Supervisor of a host: reports the inventory to the server, gets the nodes that the host should run, and keeps one `corro agent` process per node.
//! Agents run in their own sessions and directories, so nodes and their jobs survive a restart or upgrade of the supervisor. A signal ends the
//! nodes too; SIGUSR2 re-executes the program, which may be a new version, and leaves them running.

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

use corro_agent::host::gpu_states::GpuStates;
use corro_agent::host::inventory::restrict_gpus;
use corro_agent::host::{self, HostClient, HostError};
use corro_hosting::providers::local::{LocalNodes, LocalNodesConfig};
use corro_hosting::signals::wait_for_shutdown_signal;
use corro_model::host::{DesiredHost, DesiredHostNode, HostCredential, HostReport, Inventory};
use corro_model::{NodeId, Secret};
use corro_server::Provider;
use rustix::process::{Pid, WaitOptions, waitpid};
use tokio::signal::unix::{SignalKind, signal};

use super::host_state::ServerEndpoint;
use super::token::TOKEN_FD_OPTION;
use crate::commands::agent::AgentOptions;
use crate::error::CliError;
use crate::stdio::note;

const REPORT_INTERVAL: Duration = Duration::from_secs(1);
/// Minimum time between two starts of the same agent.
const RESTART_INTERVAL: Duration = Duration::from_secs(3);
/// Time to wait for agents to end; later ones end by themselves.
const AGENT_EXIT_TIMEOUT: Duration = Duration::from_secs(60);

pub struct HostConfig {
    /// Directory of the host.
    pub root: PathBuf,
    pub endpoint: ServerEndpoint,
    pub credential: HostCredential,
    pub inventory: Inventory,
    pub address: Option<String>,
    pub agent_options: AgentOptions,
}

struct Host {
    nodes: Arc<LocalNodes>,
    /// Parent of the nodes' directories.
    nodes_dir: PathBuf,
    address: Option<String>,
    /// Time of the last start of each agent.
    started: HashMap<NodeId, Instant>,
    /// Pids of agents that this process started before it re-executed itself, and must reap.
    inherited_children: BTreeSet<u32>,
}

/// Runs until a signal, or until the server removes the host.
pub async fn run(config: HostConfig) -> Result<(), CliError> {
    let HostConfig { root, endpoint, credential, inventory, address, agent_options } = config;
    // Read now: once the file was replaced, the kernel no longer knows its path.
    let executable = std::env::current_exe().map_err(|error| CliError::from_error(&error))?;
    let link = HostClient::new(&endpoint.server, &endpoint.trust()?, credential)?;
    let nodes_dir = root.join("nodes");
    fs::create_dir_all(&nodes_dir)
        .map_err(|error| CliError::new(format!("cannot create {}: {error}", nodes_dir.display())))?;
    let server_file = root.join("server-url");
    fs::write(&server_file, &endpoint.server)
        .map_err(|error| CliError::new(format!("cannot write {}: {error}", server_file.display())))?;
    let mut extra_agent_args: Vec<OsString> = Vec::new();
    extra_agent_args
        .extend(endpoint.fingerprint.iter().flat_map(|fingerprint| ["--ca-fingerprint".into(), fingerprint.into()]));
    extra_agent_args.extend(agent_options.ports.iter().flat_map(|ports| ["--ports".into(), ports.to_string().into()]));
    extra_agent_args.extend(agent_options.remote_shares.then(|| "--remote-shares".into()));
    let mut hidden_dirs = agent_options.hidden_dirs;
    hidden_dirs.push(root.clone());
    // The profile of the user who runs the host may contain a login.
    hidden_dirs.extend(corro_client::profile::config_dir().ok());
    let nodes = Arc::new(LocalNodes::new(LocalNodesConfig {
        nodes_dir: nodes_dir.clone(),
        server_url: endpoint.server.clone(),
        server_url_file: server_file,
        extra_agent_args,
        isolation: agent_options.isolation,
        hidden_dirs,
        log: agent_options.log,
        containers_on_host: false,
        visible_gpus: agent_options.gpus.and_then(restrict_gpus),
    }));
    let mut host = Host { nodes, nodes_dir, address, started: HashMap::new(), inherited_children: BTreeSet::new() };
    host.find_inherited_children();
    let mut reload = signal(SignalKind::user_defined2()).map_err(|error| CliError::from_error(&error))?;
    let stop = wait_for_shutdown_signal();
    tokio::pin!(stop);
    note(format_args!("host {} serves {}; Ctrl-C ends it and its nodes", link.name(), endpoint.server));
    let gpus = GpuStates::start(agent_options.gpus);
    let mut is_unreachable = false;
    loop {
        let (inventory, gpus) = (inventory.clone(), gpus.latest());
        let report = HostReport { inventory, living: host.live_nodes(), gpus };
        tokio::select! {
            answer = link.report(&report) => match answer {
                Ok(desired) => {
                    if std::mem::take(&mut is_unreachable) {
                        note(format_args!("{} answers again", endpoint.server));
                    }
                    host.apply(desired).await;
                }
                Err(HostError::Removed) => {
                    host.stop_agents(AGENT_EXIT_TIMEOUT).await;
                    host.remove_all_nodes().await;
                    host::forget(&root)?;
                    note(format_args!("the server has removed host {}: its nodes have ended", link.name()));
                    return Ok(());
                }
                Err(error) => {
                    if !std::mem::replace(&mut is_unreachable, true) {
                        note(format_args!("{error}: nodes and their jobs go on; retrying"));
                    }
                }
            },
            signal = &mut stop => {
                signal?;
                return stop_host(&host, link.name()).await;
            }
            _ = reload.recv() => return Err(re_execute(&executable)),
        }
        tokio::select! {
            () = tokio::time::sleep(REPORT_INTERVAL) => {}
            signal = &mut stop => {
                signal?;
                return stop_host(&host, link.name()).await;
            }
            _ = reload.recv() => return Err(re_execute(&executable)),
        }
    }
}

/// Ends the agents after a signal.
async fn stop_host(host: &Host, name: &str) -> Result<(), CliError> {
    host.stop_agents(AGENT_EXIT_TIMEOUT).await;
    note(format_args!("host {name} has stopped; restarted soon, it resumes the same nodes"));
    Ok(())
}

/// Replaces this process by the program that is on disk now; agents go on. Returns only on an error.
fn re_execute(executable: &Path) -> CliError {
    let mut args = std::env::args_os();
    let name = args.next().unwrap_or_else(|| "corro".into());
    // The descriptor of the token is closed by now.
    let args = args.filter(|arg| !arg.to_string_lossy().starts_with(TOKEN_FD_OPTION));
    let error = Command::new(executable).arg0(name).args(args).exec();
    CliError::new(format!("cannot re-execute {}: {error}", executable.display()))
}

impl Host {
    /// Nodes that have a directory on this host.
    fn node_directories(&self) -> Vec<NodeId> {
        let entries = fs::read_dir(&self.nodes_dir).into_iter().flatten().flatten();
        entries.filter_map(|entry| NodeId::parse(entry.file_name().to_str()?)).collect()
    }

    fn live_nodes(&mut self) -> Vec<NodeId> {
        // Reap inherited agents that have ended; they would stay as zombies.
        let has_ended = |pid: &u32| {
            let pid = Pid::from_raw(*pid as i32);
            matches!(waitpid(pid, WaitOptions::NOHANG), Ok(Some(_)) | Err(_))
        };
        self.inherited_children.retain(|pid| !has_ended(pid));
        self.node_directories().into_iter().filter(|node| self.nodes.is_alive(node) == Some(true)).collect()
    }

    fn find_inherited_children(&mut self) {
        let holders = self
            .node_directories()
            .into_iter()
            .filter_map(|node| corro_agent::holder(&self.nodes_dir.join(node.as_str())));
        self.inherited_children = holders.filter(|pid| *pid != 0).collect();
    }

    /// Starts and ends agents so that the desired nodes run.
    async fn apply(&mut self, desired: DesiredHost) {
        let desired_ids: BTreeSet<NodeId> = desired.nodes.iter().map(|node| node.node.clone()).collect();
        for node in self.node_directories().into_iter().filter(|node| !desired_ids.contains(node)) {
            // The server has given the node up, so its processes must not go on.
            let nodes = Arc::clone(&self.nodes);
            let _ = tokio::task::spawn_blocking(move || nodes.ensure_gone(&node, false)).await;
        }
        self.started.retain(|node, _| desired_ids.contains(node));
        for node in &desired.nodes {
            let dir = self.nodes_dir.join(node.node.as_str());
            if self.nodes.is_alive(&node.node) == Some(true) {
                if !node.busy && runs_other_executable(&dir) {
                    // The next report restarts it with the current program.
                    self.nodes.ask_to_stop(&node.node);
                }
                continue;
            }
            let can_resume = node.token.is_none() && corro_agent::has_joined(&dir);
            let was_just_started = self.started.get(&node.node).is_some_and(|at| at.elapsed() < RESTART_INTERVAL);
            if was_just_started || node.token.is_none() && !can_resume {
                continue;
            }
            self.start_agent(node);
        }
    }

    fn start_agent(&mut self, node: &DesiredHostNode) {
        self.started.insert(node.node.clone(), Instant::now());
        let token = node.token.clone().unwrap_or_else(|| Secret::new(""));
        if let Err(error) = self.nodes.launch(&node.node, &token, self.address.as_deref()) {
            note(format_args!("the agent of node {} cannot be started: {error}; retrying", node.node));
        }
    }

    /// Asks all agents to end, and waits for it.
    async fn stop_agents(&self, within: Duration) {
        let nodes = self.node_directories();
        nodes.iter().for_each(|node| self.nodes.ask_to_stop(node));
        let deadline = Instant::now() + within;
        while nodes.iter().any(|node| self.nodes.is_alive(node) == Some(true)) && Instant::now() < deadline {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    async fn remove_all_nodes(&self) {
        for node in self.node_directories() {
            let nodes = Arc::clone(&self.nodes);
            let _ = tokio::task::spawn_blocking(move || nodes.ensure_gone(&node, false)).await;
        }
    }
}

/// Whether the agent of this directory runs another executable file than this process.
fn runs_other_executable(dir: &Path) -> bool {
    let file_id = |pid: &str| -> io::Result<(u64, u64)> {
        let metadata = fs::metadata(format!("/proc/{pid}/exe"))?;
        Ok((metadata.dev(), metadata.ino()))
    };
    let Some(pid) = corro_agent::holder(dir).filter(|pid| *pid != 0) else { return false };
    matches!((file_id(&pid.to_string()), file_id("self")), (Ok(theirs), Ok(own)) if theirs != own)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_without_an_agent_runs_no_other_executable() {
        assert!(!runs_other_executable(Path::new("/nonexistent")));
    }
}
