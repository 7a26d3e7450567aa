//! Long-running operations: begun with a goal, ended when the goal is true. Whether it is true is looked up in the state,
//! never remembered, so a restart changes nothing.

use std::time::Duration;

use corro_model::arm::{AsyncOperation, AsyncProperties, AsyncStatus};
use corro_model::batchai::ProvisioningState;
use corro_model::{ApiError, Timestamp};
use corro_store::{OperationGoal, OperationRecord, State, Txn};

use super::{App, guid};

/// Records an operation and returns its id. One whose goal is true already is born ended.
pub fn begin(txn: &mut Txn, goal: OperationGoal, resource_id: String, now: Timestamp) -> String {
    let id = guid();
    let ended = is_reached(txn.state(), &goal).then_some(now);
    txn.put(id.clone(), OperationRecord { resource_id, goal, started: now, ended });
    id
}

/// Is what the operation was for true now?
pub fn is_reached(state: &State, goal: &OperationGoal) -> bool {
    match goal {
        OperationGoal::ClusterCreated(key) => {
            state.clusters.get(key).is_none_or(|c| c.provisioning.provisioning_state != ProvisioningState::Creating)
        }
        OperationGoal::ClusterGone(key) => !state.clusters.contains_key(key),
        OperationGoal::FileServerCreated(key) => {
            state.file_servers.get(key).is_none_or(|f| f.provisioning.provisioning_state != ProvisioningState::Creating)
        }
        OperationGoal::FileServerGone(key) => !state.file_servers.contains_key(key),
        OperationGoal::JobCreated(_) => true,
        OperationGoal::JobEnded(key) => state.jobs.get(key).is_none_or(|job| job.state().is_terminal()),
        OperationGoal::JobGone(key) => !state.jobs.contains_key(key),
        OperationGoal::ExperimentGone(key) => !state.experiments.contains_key(key),
        OperationGoal::WorkspaceGone(key) => !state.workspaces.contains_key(key),
        OperationGoal::AccountGone(name) => !state.accounts.contains_key(name),
        OperationGoal::GroupGone(key) => !state.groups.contains_key(key),
    }
}

impl App {
    /// Waits until the operation has ended or is not known, for `patience` at most.
    pub async fn operation_ends(&self, id: &str, patience: Duration) {
        let mut changes = self.store.changes();
        let goes_on = || {
            let snapshot = self.snapshot();
            let operation = snapshot.operations.get(id);
            operation.is_some_and(|operation| operation.ended.is_none() && !is_reached(&snapshot, &operation.goal))
        };
        let ended = async { while goes_on() && changes.changed().await.is_ok() {} };
        let _ = tokio::time::timeout(patience, ended).await;
    }

    /// The answer behind the operation's URL, which is `url` without its query.
    pub fn operation(&self, id: &str, url: String) -> Result<AsyncOperation, ApiError> {
        let snapshot = self.snapshot();
        let missing = || ApiError::new(404, "OperationNotFound", format!("The operation {id} is not found"));
        let record = snapshot.operations.get(id).ok_or_else(missing)?;
        let ended = record.ended.or_else(|| is_reached(&snapshot, &record.goal).then(|| self.now()));
        Ok(AsyncOperation {
            id: url,
            name: id.to_owned(),
            status: if ended.is_some() { AsyncStatus::Succeeded } else { AsyncStatus::InProgress },
            start_time: record.started,
            end_time: ended,
            properties: ended.map(|_| AsyncProperties { resource_id: record.resource_id.clone() }),
            error: None,
        })
    }
}
