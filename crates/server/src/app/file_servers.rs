//! File servers: asked for, shown, deleted. Records with a life of their own; no machine and no export stand behind them
//! yet.

use corro_model::batchai::*;
use corro_model::names::{NameOf, check_name};
use corro_model::validate::check_file_server;
use corro_model::{ApiError, FileServerKey};
use corro_store::{FileServerRecord, OperationGoal, State};

use super::clusters::Put;
use super::workspaces::{find_workspace, living_workspace};
use super::{App, guid, operations, refuse_deleting};

/// Where the disks would be mounted on the server itself.
const MOUNT_POINT: &str = "/data";
/// The machine the server stands for is this one.
const ADDRESS: &str = "127.0.0.1";

impl App {
    pub async fn create_file_server(
        &self,
        group: String,
        workspace: String,
        name: String,
        body: FileServerCreateParameters,
    ) -> Result<Put<FileServer>, ApiError> {
        check_name(NameOf::FileServer, &name)?;
        check_file_server(&body.properties)?;
        let fingerprint = self.fingerprint(&body);
        let (app, now) = (self.clone(), self.now());
        let commit = self.store.commit(move |txn| {
            let (workspace_key, workspace_record) = living_workspace(txn.state(), &group, &workspace)?;
            let key = workspace_key.file_server(&name);
            if let Some(old) = txn.get::<FileServerRecord>(&key) {
                refuse_deleting(&old.provisioning, "file server", &name)?;
                if old.fingerprint != fingerprint {
                    let message = format!("A file server {name} with other properties already exists: delete it first");
                    return Err(ApiError::conflict("FileServerAlreadyExists", message));
                }
                return Ok(Put::Unchanged(Box::new(app.file_server_answer(txn.state(), &key, &old))));
            }
            let record = FileServerRecord {
                name: name.clone(),
                spec: with_defaults(&app.subscription, body.properties),
                fingerprint,
                provisioning: Provisioning::new(ProvisioningState::Creating, now),
            };
            txn.put(key.clone(), record);
            let id = format!("{}${group}${workspace}${name}", app.subscription);
            let operation = operations::begin(txn, OperationGoal::FileServerCreated(key), id, now);
            Ok(Put::Begun { operation, location: workspace_record.location })
        });
        commit.await
    }

    pub fn file_server(&self, group: &str, workspace: &str, name: &str) -> Result<FileServer, ApiError> {
        let snapshot = self.snapshot();
        let (key, record) = find_file_server(&snapshot, group, workspace, name)?;
        Ok(self.file_server_answer(&snapshot, &key, &record))
    }

    pub fn file_servers(&self, group: &str, workspace: &str) -> Result<Vec<FileServer>, ApiError> {
        let snapshot = self.snapshot();
        let (key, _) = find_workspace(&snapshot, group, workspace)?;
        let own = snapshot.file_servers_of(&key);
        Ok(own.map(|(key, record)| self.file_server_answer(&snapshot, key, record)).collect())
    }

    /// The operation's id and location, or `None` when there is nothing to delete.
    pub async fn delete_file_server(
        &self,
        group: String,
        workspace: String,
        name: String,
    ) -> Result<Option<(String, String)>, ApiError> {
        let (now, subscription) = (self.now(), self.subscription.clone());
        let commit = self.store.commit(move |txn| {
            let Ok((key, _)) = find_file_server(txn.state(), &group, &workspace, &name) else { return Ok(None) };
            let (_, workspace_record) = find_workspace(txn.state(), &group, &workspace)?;
            txn.update::<FileServerRecord>(&key, |f| f.provisioning.turn(ProvisioningState::Deleting, now));
            let id = format!("{subscription}${group}${workspace}${name}");
            let operation = operations::begin(txn, OperationGoal::FileServerGone(key), id, now);
            Ok(Some((operation, workspace_record.location)))
        });
        commit.await
    }

    fn file_server_answer(&self, state: &State, key: &FileServerKey, record: &FileServerRecord) -> FileServer {
        let is_there = record.provisioning.provisioning_state != ProvisioningState::Creating;
        FileServer {
            // Lower case, as the service wrote it.
            id: format!("{}/fileservers/{}", self.parent_id(state, &key.workspace()), record.name),
            name: record.name.clone(),
            kind: FILE_SERVER_TYPE.to_owned(),
            properties: FileServerProperties {
                provisioning: record.provisioning.clone(),
                spec: record.spec.clone(),
                mount_settings: is_there.then(|| MountSettings {
                    mount_point: MOUNT_POINT.to_owned(),
                    file_server_public_ip: ADDRESS.to_owned(),
                    file_server_internal_ip: ADDRESS.to_owned(),
                }),
            },
        }
    }
}

pub fn find_file_server(
    state: &State,
    group: &str,
    workspace: &str,
    name: &str,
) -> Result<(FileServerKey, FileServerRecord), ApiError> {
    let (workspace_key, _) = find_workspace(state, group, workspace)?;
    let key = workspace_key.file_server(name);
    let record = state.file_servers.get(&key).ok_or_else(|| ApiError::file_server_not_found(name))?;
    Ok((key, (**record).clone()))
}

/// What the service fills in and reports. The password is dropped for good: nothing here logs in with it.
fn with_defaults(subscription: &str, mut spec: FileServerSpec) -> FileServerSpec {
    spec.vm_size = spec.vm_size.to_uppercase();
    spec.ssh_configuration.user_account_settings.admin_user_password = None;
    spec.subnet.get_or_insert_with(|| {
        let network = format!("resourceGroups/fileserverrg-{}/providers/Microsoft.Network", guid());
        let id = format!("/subscriptions/{subscription}/{network}/virtualNetworks/{}vnet/subnets/Subnet-1", guid());
        ResourceId { id }
    });
    spec
}
