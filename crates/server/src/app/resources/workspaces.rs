//! Workspaces: create, update, get, list, delete. A workspace contains clusters, file servers and experiments.

use corro_model::batchai::{WORKSPACE_TYPE, Workspace, WorkspaceCreateParameters, WorkspaceUpdateParameters};
use corro_model::names::{NameKind, check_location, check_name};
use corro_model::validate::check_tags;
use corro_model::{ApiError, GroupKey, WorkspaceKey, ids::arm};
use corro_store::{OperationGoal, State, WorkspaceRecord};

use crate::app::resources::deletion::mark_workspace_deleting;
use crate::app::resources::lookup::{
    ensure_not_deleting, find_active_group, find_active_workspace, find_workspace, group_name, location_conflict,
};
use crate::app::resources::operations;
use crate::app::{App, provisioning_succeeded};

impl App {
    pub async fn create_workspace(
        &self,
        group: String,
        name: String,
        body: WorkspaceCreateParameters,
    ) -> Result<Workspace, ApiError> {
        check_name(NameKind::Workspace, &name)?;
        let location = check_location(&body.location)?;
        check_tags(&body.tags)?;
        let (app, now) = (self.clone(), self.now());
        let commit = self.store.commit(move |txn| {
            let (group_key, _) = find_active_group(txn, &group)?;
            let key = group_key.workspace(&name);
            if let Some(old) = txn.get::<WorkspaceRecord>(&key) {
                ensure_not_deleting(&old.provisioning, "workspace", &name)?;
                if old.location != location {
                    return Err(location_conflict(&group, &name, &old.location, &location));
                }
                // A repeated PUT changes only the tags, if it gives any.
                let tags = if body.tags.is_empty() { old.tags.clone() } else { body.tags };
                let record = WorkspaceRecord { tags, ..(*old).clone() };
                let response = app.workspace_response(txn.state(), &key, &record);
                if record.tags != old.tags {
                    txn.put(key, record);
                }
                return Ok(response);
            }
            app.config.quotas.check_workspaces(txn.state(), &group_key)?;
            let record = WorkspaceRecord { name, location, tags: body.tags, provisioning: provisioning_succeeded(now) };
            let response = app.workspace_response(txn.state(), &key, &record);
            txn.put(key, record);
            Ok(response)
        });
        commit.await
    }

    pub async fn update_workspace(
        &self,
        group: String,
        name: String,
        body: WorkspaceUpdateParameters,
    ) -> Result<Workspace, ApiError> {
        body.tags.as_ref().map_or(Ok(()), check_tags)?;
        let app = self.clone();
        let commit = self.store.commit(move |txn| {
            let (key, old) = find_active_workspace(txn.state(), &group, &name)?;
            let tags = body.tags.unwrap_or_else(|| old.tags.clone());
            let record = WorkspaceRecord { tags, ..old };
            let response = app.workspace_response(txn.state(), &key, &record);
            txn.put(key, record);
            Ok(response)
        });
        commit.await
    }

    pub fn workspace(&self, group: &str, name: &str) -> Result<Workspace, ApiError> {
        let snapshot = self.snapshot();
        let (key, record) = find_workspace(&snapshot, group, name)?;
        Ok(self.workspace_response(&snapshot, &key, &record))
    }

    /// Lists all workspaces, or those of one group.
    pub fn workspaces(&self, group: Option<&str>) -> Result<Vec<Workspace>, ApiError> {
        let snapshot = self.snapshot();
        let Some(group) = group else {
            let all = snapshot.workspaces.iter();
            return Ok(all.map(|(key, record)| self.workspace_response(&snapshot, key, record)).collect());
        };
        let key = GroupKey::new(group);
        if !snapshot.groups.contains_key(&key) {
            return Err(ApiError::group_not_found(group));
        }
        let own = snapshot.workspaces_of(&key);
        Ok(own.map(|(key, record)| self.workspace_response(&snapshot, key, record)).collect())
    }

    /// Returns the operation's id and location, or `None` if there is nothing to delete.
    pub async fn delete_workspace(&self, group: String, name: String) -> Result<Option<(String, String)>, ApiError> {
        let (app, now) = (self.clone(), self.now());
        let commit = self.store.commit_relief(move |txn| {
            let subscription = &app.installation.subscription;
            let key = GroupKey::new(&group).workspace(&name);
            let Some(record) = txn.get::<WorkspaceRecord>(&key) else { return Ok(None) };
            mark_workspace_deleting(txn, &key, now)?;
            let id = format!("{subscription}${group}${name}");
            Ok(Some((
                operations::begin_operation(&app, txn, OperationGoal::WorkspaceGone(key), id, now),
                record.location.clone(),
            )))
        });
        commit.await
    }

    fn workspace_response(&self, state: &State, key: &WorkspaceKey, record: &WorkspaceRecord) -> Workspace {
        Workspace {
            id: self.workspace_id(state, key, &record.name),
            name: record.name.clone(),
            kind: WORKSPACE_TYPE.to_owned(),
            location: record.location.clone(),
            tags: record.tags.clone(),
            properties: record.provisioning.clone(),
        }
    }

    /// ARM id of an existing workspace.
    pub fn workspace_arm_id(&self, state: &State, key: &WorkspaceKey) -> String {
        let name = state.workspaces.get(key).map_or_else(|| key.to_string(), |workspace| workspace.name.clone());
        self.workspace_id(state, key, &name)
    }

    /// ARM id of a workspace, in the case in which its names were created.
    fn workspace_id(&self, state: &State, key: &WorkspaceKey, name: &str) -> String {
        let group = group_name(state, &key.group());
        arm::workspace(&self.installation.subscription, &group, name)
    }
}
