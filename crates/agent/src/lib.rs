//! The node agent. Keeps one WebSocket connection to the server, mounts volumes, prepares jobs, starts their ranks,
//! writes their logs and reports the node's state. Keeps running while the server is away. Never acts on orders for
//! another node.
//!
//! Reading order: `config`; `identity` (lock, credential, [`incarnation`], address); `node` (`reconcile` decides,
//! `driver` acts, `setup` runs the cluster's setup task); `connection` and `state` (lease, attempt journal,
//! observation); `task` (one attempt at a job: prepare, start ranks, remote execution); `storage` (directories and
//! mounts), `isolation` (namespaces), `limits` (cgroups, CPU affinity, GPUs), `container` (Docker API), `output` (logs,
//! curves, counters), `stats` (live process statistics), `gpu` (state of GPUs), `ssh_server` (login and exec); [`host`] (a
//! machine that carries nodes) and [`leftovers`] (cleanup after killed agents).

mod config;
mod connection;
pub mod container;
mod events;
mod fs;
mod gpu;
pub mod host;
mod identity;
mod isolation;
pub mod leftovers;
mod limits;
mod node;
mod output;
mod ports;
mod shell;
mod ssh_server;
mod state;
mod stats;
mod storage;
mod task;
mod task_errors;
#[cfg(test)]
mod testing;

use std::fs::DirBuilder;
use std::io::{self, Write as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use corro_model::NodeId;
use corro_model::node::NodeCredential;

use fs::{dirfd, json_file};
use identity::address;
use identity::incarnation::{Incarnation, TagPrefix, Validity};
use node::driver;
use state::{attempt_journal, lease, observation};
use storage::python_cache::{CacheLimits, PythonCache};
use storage::tmp_dir::TmpDir;
use storage::{directories, mounts, tmp_dir};
use task::exec_target;

pub use config::{AgentConfig, Isolation, IsolationMode, PythonCacheConfig};
pub use container::engine::sockets as engine_sockets;
pub use identity::{has_joined, holder, incarnation};
pub use isolation::enforcement;
pub use limits::describe_machine;
pub use node::reconcile;
pub use ports::PortRange;
pub use task::remote_exec::ssh_shim;

/// Reason why an agent ended. All variants are orderly ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AgentEnd {
    /// The server retired the node; everything of the node has been removed.
    Retired,
    /// The server declared the node lost; the credential has been deleted.
    Fenced { reason: String },
    /// Stopped by a signal. The next start continues as the same node.
    Stopped,
}

/// Time limit for sending the final report. The agent ends even if the server does not take it.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(3);

/// Runs the node until the server retires or fences it, or SIGTERM, SIGINT or SIGHUP arrives.
pub async fn run(config: AgentConfig) -> anyhow::Result<AgentEnd> {
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for SIGINT")?;
    let mut hangup = signal(SignalKind::hangup()).context("cannot listen for SIGHUP")?;
    let shutdown = async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
            _ = hangup.recv() => {}
        }
    };
    run_until(config, shutdown).await
}

/// Like [`run`], but ends when `shutdown` resolves. With `rejoin` set it ends only then.
pub async fn run_until(config: AgentConfig, shutdown: impl Future<Output = ()>) -> anyhow::Result<AgentEnd> {
    let mut shutdown = pin!(shutdown);
    loop {
        let end = run_as_node(config.clone(), &mut shutdown).await?;
        if !config.rejoin || end == AgentEnd::Stopped {
            return Ok(end);
        }
        let reason = match end {
            AgentEnd::Fenced { reason } => format!("the server declared this node lost ({reason})"),
            _ => "the server no longer needs this node".to_owned(),
        };
        // The reader of stderr may have closed it; a failed write must not end the node.
        let _ = writeln!(io::stderr(), "{reason}: all its processes have been ended, joining as a new node");
    }
}

/// Joins or resumes as one node and runs until that node is retired, fenced or stopped.
async fn run_as_node(config: AgentConfig, shutdown: impl Future<Output = ()>) -> anyhow::Result<AgentEnd> {
    let mut shutdown = pin!(shutdown);
    connection::url(&config)?;
    let lock = identity::lock(&config.root)?;
    let incarnation = ensure_incarnation(&config.root)?;
    let credential = tokio::select! {
        credential = identity::load_or_join(&config) => credential?,
        () = &mut shutdown => return Ok(AgentEnd::Stopped),
    };
    let address = tokio::select! {
        address = address::node_address(&config, &credential.node) => address,
        () = &mut shutdown => return Ok(AgentEnd::Stopped),
    };
    let (context, record) = take_over(config, &credential, incarnation, address).await?;
    let (cgroups, fuse_mounts) = (Arc::clone(&context.cgroups), Arc::clone(&context.fuse_mounts));
    let (observed, observed_receiver) = watch::channel(observation::Observation::default());
    let (sender, events) = mpsc::channel(events::QUEUE_CAPACITY);
    let config = Arc::clone(&context.config);
    let (reached, last_reached) = watch::channel(Instant::now());
    let (tags, exec_targets) = (context.tags.clone(), context.exec_targets.clone());
    let gpus = context.gpus.clone();
    let driver = driver::Driver::new(context, record, observed, last_reached, (sender.clone(), events));
    let connection = connection::Connection::start(
        &config,
        &credential,
        observed_receiver,
        sender,
        reached,
        (tags, gpus),
        exec_targets,
    )?;
    let end = driver.drive(shutdown).await;
    let _ = tokio::task::spawn_blocking(move || fuse_mounts.processes.unmount_all()).await;
    connection.close(CLOSE_TIMEOUT).await;
    if let Err(error) = config.root.canonicalize().and_then(|root| TmpDir::new(&root).remove()) {
        tracing::warn!(%error, "cannot remove the node's temporary directory");
    }
    config.guard.release_idle_guards().await;
    let removed = tokio::task::spawn_blocking(move || cgroups.remove());
    if let Ok(Err(error)) = removed.await {
        tracing::warn!(%error, "cannot remove the node's cgroups");
    }
    if let AgentEnd::Retired | AgentEnd::Fenced { .. } = end {
        identity::forget(&config.root)?;
    }
    if end == AgentEnd::Retired {
        incarnation::forget(&config.root).context("cannot remove the node's incarnation")?;
        // Removed while the lock is still held, so that no other agent can be waiting on the deleted file.
        json_file::remove(&config.root.join(identity::LOCK_FILE)).context("cannot remove the node's lock")?;
    }
    drop(lock);
    Ok(end)
}

/// Removes the directory of a dead node through directory descriptors. Unmounts everything below it first, follows no
/// symbolic link and enters no other file system.
pub fn remove_node_directory(root: &Path) -> io::Result<()> {
    mounts::unmount_below(root)?;
    let (Some(parent), Some(name)) = (root.parent(), root.file_name().and_then(|name| name.to_str())) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let _ = limits::remove(root);
    TmpDir::new(root).remove()?;
    match dirfd::open_directory(parent) {
        Ok(parent) => dirfd::remove(parent, name),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

/// Reads or creates the incarnation of the node's directory. In a copy of another node's directory the credential and
/// the attempt journal are deleted: they belong to the original, which may be running.
fn ensure_incarnation(root: &Path) -> anyhow::Result<Incarnation> {
    let failed = || format!("cannot record the incarnation of directory {}", root.display());
    let incarnation = incarnation::ensure(root, Validity::Boot).with_context(failed)?;
    if incarnation.is_copy() {
        tracing::warn!(root = %root.display(), "the node's directory is a copy of another one: this agent joins as a new node");
        identity::forget(root)?;
        attempt_journal::AttemptJournal::remove(root)
            .context("cannot delete the attempt journal copied from another node's directory")?;
    }
    Ok(incarnation)
}

/// Ends everything an earlier agent of this node left behind: processes, containers, mounts, job directories. No
/// attempt is continued.
async fn take_over(
    config: AgentConfig,
    credential: &NodeCredential,
    incarnation: Incarnation,
    address: String,
) -> anyhow::Result<(task::node_context::NodeContext, Option<attempt_journal::AttemptRecord>)> {
    let node = credential.node.clone();
    // A new node has no containers; skipping the search lets its first job start sooner.
    if attempt_journal::AttemptJournal::exists(&config.root) {
        remove_containers(&incarnation, &config).await;
    }
    // Runs before the node's cgroups are reused, since it kills every process in them.
    let (root, node_id, own) = (config.root.clone(), node.clone(), incarnation.clone());
    let killed = tokio::task::spawn_blocking(move || end_leftovers(&root, &node_id, &own)).await?;
    if !killed.is_empty() {
        tracing::warn!(?killed, "killed processes that an earlier agent had left behind");
    }
    let (root, isolation) = (config.root.clone(), config.isolation.clone());
    let prepared = tokio::task::spawn_blocking(move || {
        match tmp_dir::remove_orphans() {
            Ok(left) => left.iter().for_each(|node| drop(limits::remove_named(node))),
            Err(error) => tracing::warn!(%error, "temporary files of removed nodes could not be deleted"),
        }
        let directories = directories::Directories::open(&root)?;
        if let Err(error) = directories.clean() {
            tracing::warn!(%error, "not everything that an earlier agent left could be removed");
        }
        Ok::<_, io::Error>((
            directories,
            attempt_journal::AttemptJournal::open(&root)?,
            isolation::probe_namespaces(&isolation),
        ))
    });
    let mut config = config;
    let cgroups = match (config.isolation.mode, config.root.canonicalize()) {
        (Some(IsolationMode::Off), _) => limits::Cgroups::none("the operator started this node with --isolation off"),
        (_, Err(error)) => limits::Cgroups::none(&error.to_string()),
        (_, Ok(root)) => limits::Cgroups::make(&root),
    };
    config.guard = config.guard.in_cgroups(cgroups.procs_files());
    // Starts the fork server ahead of the first job. A failure is reported by the job that needs it.
    let _ = config.guard.start_fork_server().await;
    let (directories, (journal, record), isolation_support) =
        prepared.await?.context("cannot use the node's directory")?;
    let python_cache = open_python_cache(&config, directories.root()).context("cannot use the Python cache")?;
    let (config, directories, journal) = (Arc::new(config), Arc::new(directories), Arc::new(journal));
    let credential = Arc::new(credential.clone());
    let (isolation_support, cgroups) = (Arc::new(isolation_support), Arc::new(cgroups));
    let tags = TagPrefix::new(&node, &incarnation.id);
    let exec_targets = exec_target::ExecTargets::default();
    let fuse_mounts = Arc::new(mounts::FuseMounts::new(Arc::clone(&config), Arc::clone(&credential)));
    let address = address.into();
    let cluster_volumes = mounts::ClusterVolumes::default();
    #[rustfmt::skip]
    let context = task::node_context::NodeContext {
        config, node, incarnation, tags, address, credential, directories, python_cache, journal, isolation_support, cgroups,
        exec_targets, lease_expiry: lease::LeaseExpiry::default(), fuse_mounts, cluster_volumes,
        strict_cluster: Arc::default(), gpus: gpu::monitor::GpuMonitor::default(),
    };
    Ok((context, record))
}

/// The cache of Python environments. What killed agents left in it is removed in the background.
fn open_python_cache(config: &AgentConfig, root: &Path) -> io::Result<Arc<PythonCache>> {
    let PythonCacheConfig { directory, max_environments, max_bytes } = config.python_cache.clone();
    let limits = CacheLimits { max_environments, max_bytes };
    let path = directory.unwrap_or_else(|| root.join(directories::PYTHON_ENVIRONMENTS));
    if ![root].into_iter().chain(config.isolation.hidden.iter().map(AsRef::as_ref)).any(|dir| path.starts_with(dir)) {
        // Jobs must not see it, and only what is there can be hidden.
        DirBuilder::new().recursive(true).mode(0o700).create(&path)?;
    }
    let cache = Arc::new(PythonCache::open(&path, limits)?);
    let swept = Arc::clone(&cache);
    tokio::task::spawn_blocking(move || {
        if let Err(error) = swept.remove_unfinished() {
            tracing::warn!(%error, "unfinished Python environments could not be removed");
        }
    });
    Ok(cache)
}

/// Kills processes of earlier agents of this directory and removes temporary files and cgroups under names the
/// directory no longer has. Returns the killed process ids.
fn end_leftovers(root: &Path, node: &NodeId, incarnation: &Incarnation) -> Vec<u32> {
    let owned = incarnation.owned_ids();
    let killed = match incarnation.is_first() {
        true if attempt_journal::AttemptJournal::exists(root) => leftovers::end_unrecorded(root, node),
        true => Vec::new(),
        false => leftovers::end_processes(root, &owned),
    };
    if let Ok(root) = root.canonicalize() {
        for former in owned.iter().skip(1).map(tmp_dir::dir_name_of) {
            let removed = tmp_dir::remove_named(&root, former).and(limits::remove_named(former));
            if let Err(error) = removed {
                tracing::warn!(%error, "temporary files from before the node was moved or its machine rebooted could not be removed");
            }
        }
    }
    killed
}

async fn remove_containers(incarnation: &Incarnation, config: &AgentConfig) {
    let owner = container::cleanup::Owner::Incarnation(incarnation.owned_ids());
    match container::cleanup::remove_owned(&owner, &config.engine_sockets).await {
        Ok(removed) if removed.is_empty() => {}
        Ok(removed) => {
            tracing::warn!(?removed, "removed containers that an earlier agent had left behind")
        }
        Err(error) => tracing::warn!(error, "cannot check for containers of an earlier agent"),
    }
}
