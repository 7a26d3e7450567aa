//! Clusters: asked for, shown, resized, deleted. Nodes themselves are the business of the reconcilers.

use corro_model::batchai::*;
use corro_model::names::{NameOf, check_name};
use corro_model::state::NodeState;
use corro_model::validate::{check_cluster, check_scale};
use corro_model::{ApiError, ClusterKey, GroupKey};
use corro_store::seal::random;
use corro_store::{ClusterRecord, OperationGoal, State};

use super::workspaces::{find_workspace, group_name, living_workspace};
use super::{App, guid, operations, refuse_deleting, secrets};

/// What a PUT led to.
pub enum Put<T> {
    /// Begun: the operation's id and the location it is asked for under.
    Begun { operation: String, location: String },
    /// It was there already, with the same content.
    Unchanged(Box<T>),
}

impl App {
    pub async fn create_cluster(
        &self,
        group: String,
        workspace: String,
        name: String,
        body: ClusterCreateParameters,
    ) -> Result<Put<Cluster>, ApiError> {
        check_name(NameOf::Cluster, &name)?;
        check_cluster(&body.properties)?;
        let fingerprint = self.fingerprint(&body);
        let admin = secrets::admin_verifier(&body.properties).await;
        let (app, now) = (self.clone(), self.now());
        let pool = u32::from_le_bytes(random::<4>()) % 900_000_000 + 100_000_000;
        let commit = self.store.commit(move |txn| {
            let (workspace_key, workspace_record) = living_workspace(txn.state(), &group, &workspace)?;
            let key = workspace_key.cluster(&name);
            if let Some(old) = txn.get::<ClusterRecord>(&key) {
                refuse_deleting(&old.provisioning, "cluster", &name)?;
                if old.fingerprint != fingerprint {
                    let message = format!("A cluster {name} with other properties already exists: change its size with 'cluster resize', or delete it first");
                    return Err(ApiError::conflict("ClusterAlreadyExists", message));
                }
                return Ok(Put::Unchanged(Box::new(app.cluster_answer(txn.state(), &key, &old))));
            }
            let mut spec = with_defaults(body.properties);
            let secrets = app.seal_bag(secrets::Bag { admin, ..secrets::take_from_cluster(&mut spec) });
            let guid = guid();
            if let Some(task) = spec.node_setup.as_mut().and_then(|setup| setup.setup_task.as_mut()) {
                let group = group_name(txn.state(), &GroupKey::new(&group));
                let (subscription, workspace) = (&app.subscription, &workspace_record.name);
                let suffix = format!("{subscription}/{group}/workspaces/{workspace}/clusters/{name}/{guid}");
                task.std_out_err_path_suffix = Some(suffix);
            }
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
            txn.put(key.clone(), record);
            let id = format!("{}${group}${workspace}${name}", app.subscription);
            let operation = operations::begin(txn, OperationGoal::ClusterCreated(key), id, now);
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
        let commit = self.store.commit(move |txn| {
            let (key, mut record) = find_cluster(txn.state(), &group, &workspace, &name)?;
            refuse_deleting(&record.provisioning, "cluster", &name)?;
            if let Some(scale) = scale {
                record.spec.scale_settings = scale;
                txn.put(key.clone(), record.clone());
            }
            Ok(app.cluster_answer(txn.state(), &key, &record))
        });
        commit.await
    }

    pub fn cluster(&self, group: &str, workspace: &str, name: &str) -> Result<Cluster, ApiError> {
        let snapshot = self.snapshot();
        let (key, record) = find_cluster(&snapshot, group, workspace, name)?;
        Ok(self.cluster_answer(&snapshot, &key, &record))
    }

    pub fn clusters(&self, group: &str, workspace: &str) -> Result<Vec<Cluster>, ApiError> {
        let snapshot = self.snapshot();
        let (key, _) = find_workspace(&snapshot, group, workspace)?;
        Ok(snapshot.clusters_of(&key).map(|(key, record)| self.cluster_answer(&snapshot, key, record)).collect())
    }

    /// The operation's id and location, or `None` when there is nothing to delete.
    pub async fn delete_cluster(
        &self,
        group: String,
        workspace: String,
        name: String,
    ) -> Result<Option<(String, String)>, ApiError> {
        let (now, subscription) = (self.now(), self.subscription.clone());
        let commit = self.store.commit(move |txn| {
            let Ok((key, _)) = find_cluster(txn.state(), &group, &workspace, &name) else { return Ok(None) };
            let (_, workspace_record) = find_workspace(txn.state(), &group, &workspace)?;
            txn.update::<ClusterRecord>(&key, |c| c.provisioning.turn(ProvisioningState::Deleting, now));
            let id = format!("{subscription}${group}${workspace}${name}");
            let operation = operations::begin(txn, OperationGoal::ClusterGone(key), id, now);
            Ok(Some((operation, workspace_record.location)))
        });
        commit.await
    }

    pub fn cluster_answer(&self, state: &State, key: &ClusterKey, record: &ClusterRecord) -> Cluster {
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
                    errors: errors.collect(),
                },
                spec: record.spec.clone(),
            },
        }
    }

    pub fn cluster_id(&self, state: &State, key: &ClusterKey, name: &str) -> String {
        format!("{}/clusters/{name}", self.parent_id(state, &key.workspace()))
    }
}

pub fn find_cluster(
    state: &State,
    group: &str,
    workspace: &str,
    name: &str,
) -> Result<(ClusterKey, ClusterRecord), ApiError> {
    let (workspace_key, _) = find_workspace(state, group, workspace)?;
    let key = workspace_key.cluster(name);
    let record = state.clusters.get(&key).ok_or_else(|| ApiError::cluster_not_found(name))?;
    Ok((key, (**record).clone()))
}

/// What the service fills in and reports.
fn with_defaults(mut spec: ClusterSpec) -> ClusterSpec {
    spec.vm_size = spec.vm_size.to_uppercase();
    let configuration = spec
        .virtual_machine_configuration
        .get_or_insert_with(|| VirtualMachineConfiguration { image_reference: ImageReference::ubuntu_16_04() });
    configuration.image_reference.version.get_or_insert_with(|| "latest".to_owned());
    if let Some(volumes) = spec.node_setup.as_mut().and_then(|setup| setup.mount_volumes.as_mut()) {
        for share in &mut volumes.azure_file_shares {
            share.account_name = share.account().map(str::to_owned);
        }
    }
    spec
}
