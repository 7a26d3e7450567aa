//! An orderly end of a server with all its nodes: agents are ended, jobs go back to the queue, what they shared is removed.
//! Entered by `Server::stop_with_nodes`, and at the start for what a crash left.

use std::path::Path;
use std::time::{Duration, Instant};

use corro_model::batchai::BatchAiError;
use corro_model::state::JobEvent;
use corro_model::{NodeId, Timestamp};
use corro_store::{NodeRecord, State, Txn};

use crate::Provider;

/// How long nodes may take to end by themselves, and then by force.
const POLITE: Duration = Duration::from_secs(8);
const FORCED: Duration = Duration::from_secs(5);

/// Ends the nodes' agents; gives those that could not be ended.
pub fn end_nodes(provider: &dyn Provider, mut left: Vec<NodeId>) -> Vec<NodeId> {
    let began = Instant::now();
    left.iter().for_each(|node| provider.ask_to_stop(node));
    while !left.is_empty() && began.elapsed() < POLITE + FORCED {
        let polite = began.elapsed() < POLITE;
        left.retain(|node| !provider.ensure_gone(node, polite));
        std::thread::park_timeout(Duration::from_millis(20));
    }
    left
}

/// With all nodes gone: their jobs wait again, and one that was being terminated has reached its end.
pub fn put_back(txn: &mut Txn, now: Timestamp) -> usize {
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
pub fn clear_shared_temp(dir: &Path, state: &State) {
    let running = |name: &str| state.active_jobs().any(|(_, job)| job.attempt().to_string() == name);
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        if entry.file_name().to_str().is_some_and(|name| !running(name))
            && let Err(error) = std::fs::remove_dir_all(entry.path())
        {
            tracing::warn!(%error, "a directory that a job shared cannot be removed");
        }
    }
}
