//! An orderly end of a server with all its nodes: agents are ended, jobs go back to the queue, what they shared is removed.
//! Entered by `Server::stop_with_nodes`, and at the start for what a crash left.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use corro_model::batchai::BatchAiError;
use corro_model::state::JobEvent;
use corro_model::{NodeId, Timestamp};
use corro_store::{NodeRecord, State, Store, Txn};
use tokio::sync::watch;

use crate::Provider;

/// How long nodes may take to end by themselves, and then by force.
const GRACEFUL_TIMEOUT: Duration = Duration::from_secs(8);
const FORCED_TIMEOUT: Duration = Duration::from_secs(5);

/// Ends the nodes' agents; gives those that could not be ended.
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

/// With all nodes gone: their jobs wait again, and one that was being terminated has reached its end.
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

/// Removes the directories that attempts shared and whose attempts are over; their masters could not.
pub fn remove_ended_shared_dirs(dir: &Path, state: impl FnOnce() -> Arc<State>) {
    let entries: Vec<_> = std::fs::read_dir(dir).into_iter().flatten().flatten().collect();
    if entries.is_empty() {
        return;
    }
    // In this order: one that is made meanwhile is not among those that were found.
    let state = state();
    let running: Vec<String> = state.active_jobs().map(|(_, job)| job.attempt().to_string()).collect();
    for entry in entries {
        let name = entry.file_name();
        // What nodes told each other about a job lies beside its directory.
        let attempt = name.to_str().map(|name| name.trim_end_matches(".users"));
        if attempt.is_some_and(|attempt| !running.iter().any(|running| running == attempt))
            && let Err(error) = std::fs::remove_dir_all(entry.path())
            && error.kind() != std::io::ErrorKind::NotFound
        {
            tracing::warn!(%error, "a directory that a job shared cannot be removed");
        }
    }
}

/// The same after jobs, until the server stops: a master on another machine cannot reach the directory any more when its job is over.
pub async fn watch_shared_dirs(store: Store, dir: PathBuf, mut stopping: watch::Receiver<bool>) {
    let mut changes = store.changes();
    loop {
        tokio::select! {
            _ = stopping.wait_for(|stop| *stop) => return,
            changed = changes.changed() => if changed.is_err() { return },
        }
        let (dir, store) = (dir.clone(), store.clone());
        let _ = tokio::task::spawn_blocking(move || remove_ended_shared_dirs(&dir, || store.snapshot())).await;
        // A busy server changes many times a second, and nobody waits for this.
        tokio::select! {
            _ = stopping.wait_for(|stop| *stop) => return,
            () = tokio::time::sleep(CLEANUP_INTERVAL) => {}
        }
    }
}

const CLEANUP_INTERVAL: Duration = Duration::from_secs(2);
