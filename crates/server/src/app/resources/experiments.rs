//! Experiments: create, get, list, delete, notifications of their jobs. An experiment groups jobs.

use corro_model::batchai::{EXPERIMENT_TYPE, Experiment, ExperimentProperties, Notifications};
use corro_model::names::{NameKind, check_name};
use corro_model::validate::check_notifications;
use corro_model::{ApiError, ExperimentKey};
use corro_store::{ExperimentRecord, OperationGoal, State};
use serde_json::json;

use crate::app::resources::deletion::mark_experiment_deleting;
use crate::app::resources::lookup::{ensure_not_deleting, find_active_workspace, find_experiment, find_workspace};
use crate::app::resources::operations;
use crate::app::webhook::WebhookTarget;
use crate::app::{App, provisioning_succeeded};

impl App {
    pub async fn create_experiment(
        &self,
        group: String,
        workspace: String,
        name: String,
    ) -> Result<Experiment, ApiError> {
        check_name(NameKind::Experiment, &name)?;
        let (app, now) = (self.clone(), self.now());
        let commit = self.store.commit(move |txn| {
            let (workspace_key, _) = find_active_workspace(txn.state(), &group, &workspace)?;
            let key = workspace_key.experiment(&name);
            if let Some(old) = txn.get::<ExperimentRecord>(&key) {
                ensure_not_deleting(&old.provisioning, "experiment", &name)?;
                return Ok(app.experiment_response(txn.state(), &key, &old));
            }
            let provisioning = provisioning_succeeded(now);
            let record = ExperimentRecord { name, provisioning, notifications: None, webhook: None };
            let response = app.experiment_response(txn.state(), &key, &record);
            txn.put(key, record);
            Ok(response)
        });
        commit.await
    }

    /// Replaces the notifications of the experiment's jobs, also of those that run; none removes them.
    pub async fn set_experiment_notifications(
        &self,
        (group, workspace, name): (String, String, String),
        notifications: Notifications,
    ) -> Result<Experiment, ApiError> {
        let mut notifications = notifications.webhook.is_some().then_some(notifications);
        if let Some(notifications) = &notifications {
            check_notifications("notifications", notifications)?;
        }
        self.check_webhook("notifications", notifications.as_ref())?;
        let target = WebhookTarget::extract(&mut notifications);
        let app = self.clone();
        let commit = self.store.commit(move |txn| {
            let (key, record) = find_experiment(txn.state(), &group, &workspace, &name)?;
            ensure_not_deleting(&record.provisioning, "experiment", &name)?;
            let old = record.webhook.as_ref().map(|sealed| app.open_webhook(sealed)).transpose()?;
            if old == target && record.notifications == notifications {
                return Ok(app.experiment_response(txn.state(), &key, &record));
            }
            let is_set = notifications.is_some();
            let record = ExperimentRecord {
                notifications,
                webhook: target.as_ref().map(|target| app.seal_webhook(target)),
                ..record.clone()
            };
            let response = app.experiment_response(txn.state(), &key, &record);
            txn.add_history("experiment.notifications", key.as_str(), json!({ "webhook": is_set }));
            txn.put(key, record);
            Ok(response)
        });
        commit.await
    }

    pub fn experiment(&self, group: &str, workspace: &str, name: &str) -> Result<Experiment, ApiError> {
        let snapshot = self.snapshot();
        let (key, record) = find_experiment(&snapshot, group, workspace, name)?;
        Ok(self.experiment_response(&snapshot, &key, &record))
    }

    pub fn experiments(&self, group: &str, workspace: &str) -> Result<Vec<Experiment>, ApiError> {
        let snapshot = self.snapshot();
        let (key, _) = find_workspace(&snapshot, group, workspace)?;
        let own = snapshot.experiments_of(&key);
        Ok(own.map(|(key, record)| self.experiment_response(&snapshot, key, record)).collect())
    }

    /// Returns the operation's id and location, or `None` if there is nothing to delete.
    pub async fn delete_experiment(
        &self,
        group: String,
        workspace: String,
        name: String,
    ) -> Result<Option<(String, String)>, ApiError> {
        let (app, now) = (self.clone(), self.now());
        let commit = self.store.commit_relief(move |txn| {
            let subscription = &app.installation.subscription;
            let Ok((workspace_key, workspace_record)) = find_workspace(txn.state(), &group, &workspace) else {
                return Ok(None);
            };
            let key = workspace_key.experiment(&name);
            if txn.get::<ExperimentRecord>(&key).is_none() {
                return Ok(None);
            }
            mark_experiment_deleting(txn, &key, now)?;
            let id = format!("{subscription}${group}${workspace}${name}");
            let operation = operations::begin_operation(&app, txn, OperationGoal::ExperimentGone(key), id, now);
            Ok(Some((operation, workspace_record.location)))
        });
        commit.await
    }

    fn experiment_response(&self, state: &State, key: &ExperimentKey, record: &ExperimentRecord) -> Experiment {
        Experiment {
            id: self.experiment_id(state, key, &record.name),
            name: record.name.clone(),
            kind: EXPERIMENT_TYPE.to_owned(),
            properties: ExperimentProperties {
                provisioning: record.provisioning.clone(),
                notifications: record.notifications.clone(),
            },
        }
    }

    pub fn experiment_id(&self, state: &State, key: &ExperimentKey, name: &str) -> String {
        format!("{}/experiments/{name}", self.workspace_arm_id(state, &key.workspace()))
    }
}
