//! Clusters: create, resize, get, list, delete. The reconciler allocates and removes their nodes.

mod allocation_history;
pub mod nodes;
pub mod provisioning_issues;
pub mod quotas;
pub mod resource_history;
pub mod ssh_endpoints;

use corro_model::batchai::*;
use corro_model::defaults::fill_cluster;
use corro_model::names::{NameKind, check_name};
use corro_model::rbac::{Right, Scope};
use corro_model::state::NodeState;
use corro_model::validate::{check_cluster, check_scale};
use corro_model::{ApiError, ClusterKey, Secret};
use corro_store::encryption::random;
use corro_store::{ClusterRecord, OperationGoal, Space, State};

use crate::app::resources::idempotent_put::{Put, is_same_spec, put_conflict};
use crate::app::resources::lookup::{
    cluster_cli_args, ensure_not_deleting, find_active_workspace, find_cluster, find_workspace, group_name,
};
use crate::app::resources::{operations, spec_secrets};
use crate::app::{App, guid};

impl App {
    pub async fn create_cluster(
        &self,
        group: String,
        workspace: String,
        name: String,
        body: ClusterCreateParameters,
    ) -> Result<Put<Cluster>, ApiError> {
        check_name(NameKind::Cluster, &name)?;
        check_cluster(&body.properties)?;
        self.may_run_mount_commands(&body.properties)?;
        let fingerprint = self.fingerprint(&body);
        let admin = spec_secrets::admin_verifier(&body.properties).await;
        let password = body.properties.user_account_settings.password().cloned();
        let mut spec = body.properties;
        fill_cluster(&mut spec);
        let bundle = spec_secrets::extract_cluster_secrets(&mut spec);
        let same_password = self.is_same_password(&group, &workspace, &name, password).await;
        let (app, now) = (self.clone(), self.now());
        let pool = u32::from_le_bytes(random::<4>()) % 900_000_000 + 100_000_000;
        let commit = self.store.commit(move |txn| {
            let (workspace_key, workspace_record) = find_active_workspace(txn.state(), &group, &workspace)?;
            let key = workspace_key.cluster(&name);
            let volumes = spec.node_setup.as_ref().and_then(|setup| setup.mount_volumes.as_ref());
            let subnet = app.subnet_of(txn.state(), "properties.nodeSetup.mountVolumes", volumes)?;
            spec.subnet = spec.subnet.or(subnet);
            if let Some(old) = txn.get::<ClusterRecord>(&key) {
                ensure_not_deleting(&old.provisioning, "cluster", &name)?;
                let guid = old.guid.clone();
                app.name_setup_logs(txn.state(), &mut spec, &key, &name, &guid);
                let old_bundle = spec_secrets::SecretBundle { admin: None, ..app.open_secrets(old.secrets.as_ref())? };
                let same = is_same_spec(&spec, &old.spec) && old_bundle == bundle && same_password;
                // After a resize, the request that created the cluster no longer matches it.
                let resized = spec.scale_settings != old.spec.scale_settings;
                if resized || (old.fingerprint != fingerprint && !same) {
                    let args = cluster_cli_args(txn.state(), &key, &old.name);
                    let way_out =
                        format!("change its size with 'corro batchai cluster resize {args} -t N', or delete it first");
                    return Err(put_conflict("cluster", &name, &spec, &old.spec, &way_out));
                }
                return Ok(Put::Unchanged(Box::new(app.cluster_response(txn.state(), &key, &old))));
            }
            app.config.quotas.check_cluster(txn.state(), &workspace_record.location, &key, &spec)?;
            let guid = guid();
            app.name_setup_logs(txn.state(), &mut spec, &key, &name, &guid);
            let secrets = app.seal_secrets(spec_secrets::SecretBundle { admin, ..bundle });
            let record = ClusterRecord {
                name: name.clone(),
                guid,
                pool,
                next_index: 1,
                spec,
                secrets,
                fingerprint,
                provisioning: Provisioning::new(ProvisioningState::Creating, now),
                allocation: AllocationState::Resizing,
                allocation_since: now,
            };
            app.warn_about_node_size(&record);
            txn.put(key.clone(), record);
            let id = format!("{}${group}${workspace}${name}", app.installation.subscription);
            let operation = operations::begin_operation(&app, txn, OperationGoal::ClusterCreated(key), id, now);
            Ok(Put::Begun { operation, location: workspace_record.location })
        });
        commit.await
    }

    pub async fn update_cluster(
        &self,
        group: String,
        workspace: String,
        name: String,
        body: ClusterUpdateParameters,
    ) -> Result<Cluster, ApiError> {
        let scale = body.properties.scale_settings;
        if let Some(scale) = &scale {
            check_scale(scale)?;
        }
        let app = self.clone();
        let commit = self.store.commit_relief(move |txn| {
            let (key, mut record) = find_cluster(txn.state(), &group, &workspace, &name)?;
            ensure_not_deleting(&record.provisioning, "cluster", &name)?;
            if let Some(scale) = &scale {
                if txn.space() == Space::Reserve && max_nodes(scale) > max_nodes(&record.spec.scale_settings) {
                    return Err(ApiError::insufficient_storage());
                }
                let wanted = ClusterSpec { scale_settings: scale.clone(), ..record.spec.clone() };
                let (_, workspace) = find_workspace(txn.state(), &group, &workspace)?;
                app.config.quotas.check_cores(txn.state(), &workspace.location, &key, &wanted)?;
                record.spec.scale_settings = scale.clone();
                txn.put(key.clone(), record.clone());
                app.warn_about_resize(txn.state(), &key, &record);
            }
            Ok(app.cluster_response(txn.state(), &key, &record))
        });
        commit.await
    }

    pub fn cluster(&self, group: &str, workspace: &str, name: &str) -> Result<Cluster, ApiError> {
        let snapshot = self.snapshot();
        let (key, record) = find_cluster(&snapshot, group, workspace, name)?;
        Ok(self.cluster_response(&snapshot, &key, &record))
    }

    pub fn clusters(&self, group: &str, workspace: &str) -> Result<Vec<Cluster>, ApiError> {
        let snapshot = self.snapshot();
        let (key, _) = find_workspace(&snapshot, group, workspace)?;
        Ok(snapshot.clusters_of(&key).map(|(key, record)| self.cluster_response(&snapshot, key, record)).collect())
    }

    /// Returns the operation's id and location, or `None` if there is nothing to delete.
    pub async fn delete_cluster(
        &self,
        group: String,
        workspace: String,
        name: String,
    ) -> Result<Option<(String, String)>, ApiError> {
        let (app, now) = (self.clone(), self.now());
        let commit = self.store.commit_relief(move |txn| {
            let subscription = &app.installation.subscription;
            let Ok((key, _)) = find_cluster(txn.state(), &group, &workspace, &name) else { return Ok(None) };
            let (_, workspace_record) = find_workspace(txn.state(), &group, &workspace)?;
            txn.update::<ClusterRecord>(&key, |c| c.provisioning.set_state(ProvisioningState::Deleting, now));
            let id = format!("{subscription}${group}${workspace}${name}");
            let operation = operations::begin_operation(&app, txn, OperationGoal::ClusterGone(key), id, now);
            Ok(Some((operation, workspace_record.location)))
        });
        commit.await
    }

    pub fn cluster_response(&self, state: &State, key: &ClusterKey, record: &ClusterRecord) -> Cluster {
        let counts = state.node_counts(key);
        let errors = state.nodes_of(key).filter_map(|(_, node)| match node.state() {
            NodeState::Unusable { error, .. } => Some(error.clone()),
            _ => None,
        });
        Cluster {
            id: self.cluster_id(state, key, &record.name),
            name: record.name.clone(),
            kind: CLUSTER_TYPE.to_owned(),
            properties: ClusterProperties {
                provisioning: record.provisioning.clone(),
                status: ClusterStatus {
                    allocation_state: record.allocation,
                    allocation_state_transition_time: record.allocation_since,
                    current_node_count: counts.total(),
                    node_state_counts: counts,
                    errors: errors.chain(self.fleet.provisioning_issues.cluster_errors(state, key)).collect(),
                },
                spec: record.spec.clone(),
            },
        }
    }

    /// Whether an existing cluster of this name has this password; `true` if there is none. Deliberately slow, so run
    /// on a blocking thread.
    async fn is_same_password(&self, group: &str, workspace: &str, name: &str, password: Option<Secret>) -> bool {
        let snapshot = self.snapshot();
        let Ok((_, old)) = find_cluster(&snapshot, group, workspace, name) else { return true };
        let known = self.open_secrets(old.secrets.as_ref()).ok().and_then(|bundle| bundle.admin);
        match (known, password) {
            (Some(known), Some(password)) => {
                tokio::task::spawn_blocking(move || known.accepts(password.expose())).await.unwrap_or(false)
            }
            (None, None) => true,
            _ => false,
        }
    }

    /// Mount commands run on the nodes as the agent's user, outside all isolation. Only owners of the subscription, to
    /// which the machines belong, may specify them.
    fn may_run_mount_commands(&self, spec: &ClusterSpec) -> Result<(), ApiError> {
        let volumes = spec.node_setup.as_ref().and_then(|setup| setup.mount_volumes.as_ref());
        let has_commands = volumes.is_some_and(|volumes| !volumes.unmanaged_file_systems.is_empty());
        if !has_commands || self.request.caller.may(Right::Admin, &Scope::Subscription) {
            return Ok(());
        }
        let field = "properties.nodeSetup.mountVolumes.unmanagedFileSystems[0].mountCommand";
        let message = format!(
            "The client '{}' may not set {field}: mount commands run on the nodes as the agent's user, so only an \
             owner of the subscription may create a cluster with one. Ask an owner to create the cluster, or mount \
             a file share, a container or a file server.",
            self.request.caller.id
        );
        Err(ApiError::new(403, "AuthorizationFailed", message).about(field))
    }

    /// Path of the setup task's logs below the prefix of the request.
    fn name_setup_logs(&self, state: &State, spec: &mut ClusterSpec, key: &ClusterKey, name: &str, guid: &str) {
        let task = spec.node_setup.as_mut().and_then(|setup| setup.setup_task.as_mut());
        let Some(task) = task else { return };
        let workspace = key.workspace();
        let group = group_name(state, &workspace.group());
        let workspace = state.workspaces.get(&workspace).map_or_else(|| workspace.to_string(), |w| w.name.clone());
        let subscription = &self.installation.subscription;
        task.std_out_err_path_suffix =
            Some(format!("{subscription}/{group}/workspaces/{workspace}/clusters/{name}/{guid}"));
    }

    pub fn cluster_id(&self, state: &State, key: &ClusterKey, name: &str) -> String {
        format!("{}/clusters/{name}", self.workspace_arm_id(state, &key.workspace()))
    }
}

/// Maximum number of nodes that the scale settings allow.
fn max_nodes(scale: &ScaleSettings) -> i32 {
    let manual = scale.manual.as_ref().map(|manual| manual.target_node_count);
    manual.max(scale.auto_scale.as_ref().map(|auto| auto.maximum_node_count)).unwrap_or(0)
}
