//! Orderly shutdown of a server with all its nodes: ends agents, queues running jobs again and removes the shared
//! directories of ended attempts. The latter also runs at the start, after a crash.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use corro_model::batchai::BatchAiError;
use corro_model::state::JobEvent;
use corro_model::{NodeId, Timestamp};
use corro_store::{NodeRecord, State, Store, Txn};
use tokio::sync::watch;

use crate::Provider;

/// Time for nodes to end by themselves, and then by force.
const GRACEFUL_TIMEOUT: Duration = Duration::from_secs(8);
const FORCED_TIMEOUT: Duration = Duration::from_secs(5);

/// Ends the agents of the nodes; returns the nodes that could not be ended.
pub fn end_nodes(provider: &dyn Provider, mut left: Vec<NodeId>) -> Vec<NodeId> {
    let began = Instant::now();
    left.iter().for_each(|node| provider.ask_to_stop(node));
    while !left.is_empty() && began.elapsed() < GRACEFUL_TIMEOUT + FORCED_TIMEOUT {
        let polite = began.elapsed() < GRACEFUL_TIMEOUT;
        left.retain(|node| !provider.ensure_gone(node, polite));
        std::thread::park_timeout(Duration::from_millis(20));
    }
    left
}

/// After all nodes have ended: queues their jobs again and ends the jobs that were terminating. Returns the number of
/// queued jobs.
pub fn requeue_running(txn: &mut Txn, now: Timestamp) -> usize {
    let busy: Vec<_> = txn.state().active_jobs().map(|(key, _)| key.clone()).collect();
    let mut requeued = 0;
    for key in &busy {
        let reason = BatchAiError::new("ServerStopped", "The server was stopped while the job ran");
        match txn.requeue(key, reason, now) {
            Ok(()) => requeued += 1,
            Err(_) => {
                let _ = txn.end_attempt(key, JobEvent::Failed { exit_code: None, errors: vec![], at: now }, now);
            }
        }
    }
    let nodes: Vec<_> = txn.state().nodes.keys().cloned().collect();
    nodes.iter().for_each(|node| txn.remove::<NodeRecord>(node));
    requeued
}

/// Removes the shared directories of ended attempts that their masters did not remove.
pub fn remove_ended_shared_dirs(dir: &Path, state: impl FnOnce() -> Arc<State>) {
    let entries: Vec<_> = std::fs::read_dir(dir).into_iter().flatten().flatten().collect();
    if entries.is_empty() {
        return;
    }
    // State after the listing: a directory created in between is not in the list.
    let state = state();
    let running: Vec<String> = state.active_jobs().map(|(_, job)| job.attempt().to_string()).collect();
    for entry in entries {
        let name = entry.file_name();
        // The `.users` directory beside it is where nodes publish the job's user namespace.
        let attempt = name.to_str().map(|name| name.trim_end_matches(".users"));
        if attempt.is_some_and(|attempt| !running.iter().any(|running| running == attempt))
            && let Err(error) = std::fs::remove_dir_all(entry.path())
            && error.kind() != std::io::ErrorKind::NotFound
        {
            tracing::warn!(%error, "cannot remove a job's shared directory");
        }
    }
}

/// Removes the shared directories of ended attempts until the server stops: a master on another machine cannot reach
/// the directory after its job has ended.
pub async fn watch_shared_dirs(store: Store, dir: PathBuf, mut stopping: watch::Receiver<bool>) {
    let mut changes = store.changes();
    loop {
        tokio::select! {
            _ = stopping.wait_for(|stop| *stop) => return,
            changed = changes.changed() => if changed.is_err() { return },
        }
        let (dir, store) = (dir.clone(), store.clone());
        let _ = tokio::task::spawn_blocking(move || remove_ended_shared_dirs(&dir, || store.snapshot())).await;
        // A busy server changes many times a second, and this is not urgent.
        tokio::select! {
            _ = stopping.wait_for(|stop| *stop) => return,
            () = tokio::time::sleep(CLEANUP_INTERVAL) => {}
        }
    }
}

const CLEANUP_INTERVAL: Duration = Duration::from_secs(2);
