//! File servers: create, get, list, delete. `exports` holds their directories and `nfs` serves them.

use corro_model::batchai::*;
use corro_model::names::{NameKind, check_name};
use corro_model::rbac::{Right, Scope};
use corro_model::validate::check_file_server;
use corro_model::{ApiError, FileServerKey, Secret, ids::arm};
use corro_store::{FileServerRecord, OperationGoal, State};

use crate::app::resources::idempotent_put::{Put, is_same_spec, put_conflict};
use crate::app::resources::lookup::{ensure_not_deleting, find_active_workspace, find_file_server, find_workspace};
use crate::app::resources::operations;
use crate::app::storage::exports::MOUNT_POINT;
use crate::app::{App, guid};
use crate::digest::hex;

/// Address of a file server while NFS is off: this machine.
const DEFAULT_ADDRESS: &str = "127.0.0.1";

impl App {
    pub async fn create_file_server(
        &self,
        group: String,
        workspace: String,
        name: String,
        body: FileServerCreateParameters,
    ) -> Result<Put<FileServer>, ApiError> {
        check_name(NameKind::FileServer, &name)?;
        check_file_server(&body.properties)?;
        let fingerprint = self.fingerprint(&body);
        let password = body.properties.ssh_configuration.user_account_settings.password();
        let mark = password.map_or_else(String::new, |password| self.password_mark(password));
        let mut spec = without_password(body.properties);
        fill_defaults(&mut spec);
        let (app, now) = (self.clone(), self.now());
        let commit = self.store.commit(move |txn| {
            let (workspace_key, workspace_record) = find_active_workspace(txn.state(), &group, &workspace)?;
            let key = workspace_key.file_server(&name);
            if let Some(old) = txn.get::<FileServerRecord>(&key) {
                ensure_not_deleting(&old.provisioning, "file server", &name)?;
                // The subnet generated at creation is not a difference.
                spec.subnet = spec.subnet.or_else(|| old.spec.subnet.clone());
                let mut known = old.spec.clone();
                fill_defaults(&mut known);
                let same_password = old.password_mark.as_ref().is_none_or(|old| *old == mark);
                if old.fingerprint != fingerprint && !(is_same_spec(&spec, &known) && same_password) {
                    return Err(put_conflict("file server", &name, &spec, &known, "delete it first"));
                }
                return Ok(Put::Unchanged(Box::new(app.file_server_response(txn.state(), &key, &old))));
            }
            spec.subnet.get_or_insert_with(|| new_subnet_id(&app.installation.subscription));
            let record = FileServerRecord {
                name: name.clone(),
                spec,
                fingerprint,
                password_mark: Some(mark),
                provisioning: Provisioning::new(ProvisioningState::Creating, now),
            };
            txn.put(key.clone(), record);
            let id = format!("{}${group}${workspace}${name}", app.installation.subscription);
            let operation = operations::begin_operation(&app, txn, OperationGoal::FileServerCreated(key), id, now);
            Ok(Put::Begun { operation, location: workspace_record.location })
        });
        commit.await
    }

    pub fn file_server(&self, group: &str, workspace: &str, name: &str) -> Result<FileServer, ApiError> {
        let snapshot = self.snapshot();
        let (key, record) = find_file_server(&snapshot, group, workspace, name)?;
        Ok(self.file_server_response(&snapshot, &key, &record))
    }

    /// File server with its NFS mount settings, for callers with write access.
    pub async fn file_server_with_export(
        &self,
        group: &str,
        workspace: &str,
        name: &str,
    ) -> Result<FileServer, ApiError> {
        let snapshot = self.snapshot();
        let (key, record) = find_file_server(&snapshot, group, workspace, name)?;
        if !record.provisioning.is_deleting() {
            self.storage.exports.wait_until_listening().await;
        }
        let mut found = self.file_server_response(&snapshot, &key, &record);
        if let Some(settings) = &mut found.properties.mount_settings {
            settings.nfs = self.nfs_mount(&key, &record);
        }
        Ok(found)
    }

    pub fn file_servers(&self, group: &str, workspace: &str) -> Result<Vec<FileServer>, ApiError> {
        let snapshot = self.snapshot();
        let (key, _) = find_workspace(&snapshot, group, workspace)?;
        let own = snapshot.file_servers_of(&key);
        Ok(own.map(|(key, record)| self.file_server_response(&snapshot, key, record)).collect())
    }

    /// Returns the operation's id and location, or `None` if there is nothing to delete.
    pub async fn delete_file_server(
        &self,
        group: String,
        workspace: String,
        name: String,
    ) -> Result<Option<(String, String)>, ApiError> {
        let (app, now) = (self.clone(), self.now());
        let commit = self.store.commit_relief(move |txn| {
            let subscription = &app.installation.subscription;
            let Ok((key, _)) = find_file_server(txn.state(), &group, &workspace, &name) else { return Ok(None) };
            let (_, workspace_record) = find_workspace(txn.state(), &group, &workspace)?;
            app.warn_about_file_server(txn.state(), &key);
            txn.update::<FileServerRecord>(&key, |f| f.provisioning.set_state(ProvisioningState::Deleting, now));
            let id = format!("{subscription}${group}${workspace}${name}");
            let operation = operations::begin_operation(&app, txn, OperationGoal::FileServerGone(key), id, now);
            Ok(Some((operation, workspace_record.location)))
        });
        commit.await
    }

    /// Subnet of the first file server among `volumes`, in which the nodes must be. All file servers must exist.
    pub fn subnet_of(
        &self,
        state: &State,
        field: &str,
        volumes: Option<&MountVolumes>,
    ) -> Result<Option<ResourceId>, ApiError> {
        let mut subnet = None;
        for (i, reference) in volumes.into_iter().flat_map(|volumes| &volumes.file_servers).enumerate() {
            let field = format!("{field}.fileServers[{i}].fileServer.id");
            let id = &reference.file_server.id;
            let wrong = || ApiError::invalid(&field, format!("'{id}' is not the id of a file server"));
            let named = arm::parse_file_server(id).ok_or_else(wrong)?;
            self.own_subscription(&field, named.subscription)?;
            self.authorize_linked_resource(&field, &named, "fileServers")?;
            let (_, record) = find_file_server(state, named.group, named.workspace, named.name)
                .map_err(|_| ApiError::file_server_not_found(named.name).about(&field))?;
            ensure_not_deleting(&record.provisioning, "file server", named.name)?;
            subnet = subnet.or(record.spec.subnet);
        }
        Ok(subnet)
    }

    /// Error if an id in the request is of another subscription.
    pub fn own_subscription(&self, field: &str, subscription: &str) -> Result<(), ApiError> {
        if subscription.eq_ignore_ascii_case(&self.installation.subscription) {
            return Ok(());
        }
        let message = format!("The subscription '{subscription}' could not be found.");
        Err(ApiError::new(404, "SubscriptionNotFound", message).about(field))
    }

    /// Keyed digest of a password, to compare requests. Keyed because passwords can be guessed.
    fn password_mark(&self, password: &Secret) -> String {
        hex(&self.keyed_digest("file server password", password.expose().as_bytes())[..16])
    }

    fn file_server_response(&self, state: &State, key: &FileServerKey, record: &FileServerRecord) -> FileServer {
        let made = record.provisioning.provisioning_state;
        let is_there = !matches!(made, ProvisioningState::Creating | ProvisioningState::Updating);
        FileServer {
            // Lower case, as in the Azure service.
            id: format!("{}/fileservers/{}", self.workspace_arm_id(state, &key.workspace()), record.name),
            name: record.name.clone(),
            kind: FILE_SERVER_TYPE.to_owned(),
            properties: FileServerProperties {
                provisioning: record.provisioning.clone(),
                spec: record.spec.clone(),
                mount_settings: is_there.then(|| {
                    let address = self
                        .storage
                        .exports
                        .address()
                        .map_or_else(|| DEFAULT_ADDRESS.to_owned(), |address| address.ip().to_string());
                    MountSettings {
                        mount_point: MOUNT_POINT.to_owned(),
                        file_server_public_ip: address.clone(),
                        file_server_internal_ip: address,
                        nfs: None,
                    }
                }),
            },
        }
    }

    /// NFS mount settings. Requires write access: the export path alone allows writing to the file server.
    fn nfs_mount(&self, key: &FileServerKey, record: &FileServerRecord) -> Option<NfsMount> {
        let address = self.storage.exports.address()?;
        let workspace = key.workspace();
        let (group, workspace) = workspace.as_str().split_once('/')?;
        let scope = Scope::Workspace(group.to_owned(), workspace.to_owned());
        self.request.caller.may(Right::Write, &scope).then(|| NfsMount {
            address: address.ip().to_string(),
            port: address.port(),
            path: self.storage.exports.export_path(key, record),
        })
    }
}

/// Default of the Azure service: every address may log in.
fn fill_defaults(spec: &mut FileServerSpec) {
    spec.ssh_configuration.public_ips_to_allow.get_or_insert_with(|| vec!["*".to_owned()]);
}

/// Drops the password for good: nothing here uses it.
fn without_password(mut spec: FileServerSpec) -> FileServerSpec {
    spec.vm_size = spec.vm_size.to_uppercase();
    spec.ssh_configuration.user_account_settings.admin_user_password = None;
    spec
}

/// New subnet id in the format of the Azure service.
fn new_subnet_id(subscription: &str) -> ResourceId {
    let (group, network) = (guid(), guid());
    let group = format!("/subscriptions/{subscription}/resourceGroups/fileserverrg-{group}");
    ResourceId { id: format!("{group}/providers/Microsoft.Network/virtualNetworks/{network}vnet/subnets/Subnet-1") }
}
