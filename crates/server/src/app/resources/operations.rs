//! Long-running operations. Each has a goal and ends when the goal is true. The goal is evaluated against the current
//! state and not stored, so a restart loses nothing.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use corro_model::arm::{AsyncOperation, AsyncProperties, AsyncStatus};
use corro_model::batchai::{Provisioning, ProvisioningState};
use corro_model::{ApiError, Timestamp};
use corro_store::{OperationGoal, OperationRecord, State, Txn};

use crate::app::{App, guid};
use crate::digest::hex;

/// Begins an operation and returns its id. If the goal is true already, no record is written: the id itself encodes the
/// result. Submitting a job thus writes only the job.
pub fn begin_operation(app: &App, txn: &mut Txn, goal: OperationGoal, resource_id: String, now: Timestamp) -> String {
    if is_goal_reached(txn.state(), &goal) {
        return CompletedOperation { at: now, resource_id }.id(|text| app.operation_mac(text));
    }
    let id = guid();
    let by = txn.actor().to_owned();
    txn.put(id.clone(), OperationRecord { resource_id, goal, started: now, ended: None, undone: false, by });
    id
}

/// How long ended operations can be queried.
pub const OPERATION_RETENTION: Duration = Duration::from_secs(24 * 3600);

/// Operation that was complete when it began. Its id carries a MAC, so that it cannot be forged.
#[derive(Debug, PartialEq, Eq)]
struct CompletedOperation {
    at: Timestamp,
    resource_id: String,
}

impl CompletedOperation {
    fn id(&self, seal: impl Fn(&str) -> String) -> String {
        let text = format!("{:x}-{}", self.at.millis(), URL_SAFE_NO_PAD.encode(&self.resource_id));
        let seal = seal(&text);
        format!("{text}.{seal}")
    }

    fn parse(id: &str, seal: impl Fn(&str) -> String) -> Option<Self> {
        let (text, mark) = id.rsplit_once('.')?;
        if seal(text) != mark {
            return None;
        }
        let (at, resource_id) = text.split_once('-')?;
        let at = Timestamp::from_millis(i64::from_str_radix(at, 16).ok()?);
        let resource_id = String::from_utf8(URL_SAFE_NO_PAD.decode(resource_id).ok()?).ok()?;
        Some(Self { at, resource_id })
    }
}

/// Whether the operation's goal is true.
pub fn is_goal_reached(state: &State, goal: &OperationGoal) -> bool {
    match goal {
        OperationGoal::ClusterCreated(key) => {
            state.clusters.get(key).is_none_or(|c| c.provisioning.provisioning_state != ProvisioningState::Creating)
        }
        OperationGoal::ClusterGone(key) => !state.clusters.contains_key(key),
        OperationGoal::FileServerCreated(key) => {
            let made = |state| !matches!(state, ProvisioningState::Creating | ProvisioningState::Updating);
            state.file_servers.get(key).is_none_or(|f| made(f.provisioning.provisioning_state))
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

/// Whether the goal can never become true: the resource was deleted before it was created completely.
pub fn is_goal_unreachable(state: &State, goal: &OperationGoal) -> bool {
    let leaves = |made: &Provisioning| made.provisioning_state == ProvisioningState::Deleting;
    match goal {
        OperationGoal::ClusterCreated(key) => state.clusters.get(key).is_none_or(|c| leaves(&c.provisioning)),
        OperationGoal::FileServerCreated(key) => state.file_servers.get(key).is_none_or(|f| leaves(&f.provisioning)),
        _ => false,
    }
}

impl App {
    /// Waits until the operation has ended or is unknown, at most for `patience`.
    pub async fn wait_for_operation(&self, id: &str, patience: Duration) {
        let mut changes = self.store.changes();
        let goes_on = || {
            let snapshot = self.snapshot();
            let operation = snapshot.operations.get(id);
            operation.is_some_and(|operation| operation.ended.is_none() && !is_goal_reached(&snapshot, &operation.goal))
        };
        let ended = async { while goes_on() && changes.changed().await.is_ok() {} };
        let _ = tokio::time::timeout(patience, ended).await;
    }

    fn operation_mac(&self, text: &str) -> String {
        hex(&self.keyed_digest("operation", text.as_bytes())[..8])
    }

    /// Status of an operation; `url` is the operation's URL without its query.
    pub fn operation(&self, id: &str, url: String) -> Result<AsyncOperation, ApiError> {
        let snapshot = self.snapshot();
        if let Some(CompletedOperation { at, resource_id }) =
            CompletedOperation::parse(id, |text| self.operation_mac(text))
            && self.timeline().age(at) < OPERATION_RETENTION
        {
            return Ok(AsyncOperation {
                id: url,
                name: id.to_owned(),
                status: AsyncStatus::Succeeded,
                start_time: at,
                end_time: Some(at),
                properties: Some(AsyncProperties { resource_id }),
                error: None,
            });
        }
        let missing = || ApiError::new(404, "OperationNotFound", format!("The operation {id} is not found"));
        let record = snapshot.operations.get(id).ok_or_else(missing)?;
        let ended = record.ended.or_else(|| is_goal_reached(&snapshot, &record.goal).then(|| self.now()));
        let undone = if record.ended.is_some() { record.undone } else { is_goal_unreachable(&snapshot, &record.goal) };
        let status = match ended {
            _ if undone => AsyncStatus::Failed,
            Some(_) => AsyncStatus::Succeeded,
            None => AsyncStatus::InProgress,
        };
        let preempted = || {
            let message = "The resource was deleted before its creation was complete";
            ApiError::conflict("OperationPreempted", message).envelope().error
        };
        let done = status == AsyncStatus::Succeeded;
        Ok(AsyncOperation {
            id: url,
            name: id.to_owned(),
            status,
            start_time: record.started,
            end_time: ended,
            properties: done.then(|| AsyncProperties { resource_id: record.resource_id.clone() }),
            error: undone.then(preempted),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_id_of_a_completed_operation_round_trips_and_cannot_be_forged() {
        let seal = |text: &str| format!("{}", text.len() * 7);
        let reached = CompletedOperation {
            at: Timestamp::from_millis(1_532_000_000_123),
            resource_id: "s$g$w$Exp$j.1".to_owned(),
        };
        let id = reached.id(seal);
        assert_eq!(CompletedOperation::parse(&id, seal), Some(reached));
        let (text, _) = id.rsplit_once('.').expect("a seal");
        let unsealed = format!("{text}.1");
        for id in ["", "x", "-", "10546a8d-e7c5-4824-b726-3b6a600a7305", "zz-czE", "zz-czE.42", text, &unsealed] {
            assert_eq!(CompletedOperation::parse(id, seal), None, "{id}");
        }
    }
}
