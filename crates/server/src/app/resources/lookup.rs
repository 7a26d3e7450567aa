//! Lookups of resources by name, shared by all rules: each returns the key and record, or the API's not-found error.

use corro_model::batchai::Provisioning;
use corro_model::{ApiError, ClusterKey, ExperimentKey, FileServerKey, GroupKey, JobKey, WorkspaceKey};
use corro_store::{
    ClusterRecord, ExperimentRecord, FileServerRecord, GroupRecord, JobRecord, State, Txn, WorkspaceRecord,
};

/// Group that exists and is not being deleted.
pub fn find_active_group(txn: &Txn, name: &str) -> Result<(GroupKey, GroupRecord), ApiError> {
    let key = GroupKey::new(name);
    let record = txn.get::<GroupRecord>(&key).ok_or_else(|| ApiError::group_not_found(name))?;
    if record.deleting {
        return Err(group_being_deleted(name));
    }
    Ok((key, (*record).clone()))
}

pub fn group_name(state: &State, key: &GroupKey) -> String {
    state.groups.get(key).map_or_else(|| key.to_string(), |group| group.name.clone())
}

pub fn find_workspace(state: &State, group: &str, name: &str) -> Result<(WorkspaceKey, WorkspaceRecord), ApiError> {
    let group_key = GroupKey::new(group);
    if !state.groups.contains_key(&group_key) {
        return Err(ApiError::group_not_found(group));
    }
    let key = group_key.workspace(name);
    let record = state.workspaces.get(&key).ok_or_else(|| ApiError::workspace_not_found(name))?;
    Ok((key, (**record).clone()))
}

/// Workspace that exists and is not being deleted.
pub fn find_active_workspace(
    state: &State,
    group: &str,
    name: &str,
) -> Result<(WorkspaceKey, WorkspaceRecord), ApiError> {
    let (key, record) = find_workspace(state, group, name)?;
    ensure_not_deleting(&record.provisioning, "workspace", name)?;
    Ok((key, record))
}

pub fn find_experiment(
    state: &State,
    group: &str,
    workspace: &str,
    name: &str,
) -> Result<(ExperimentKey, ExperimentRecord), ApiError> {
    let (workspace_key, _) = find_workspace(state, group, workspace)?;
    let key = workspace_key.experiment(name);
    let record = state.experiments.get(&key).ok_or_else(|| ApiError::experiment_not_found(name))?;
    Ok((key, (**record).clone()))
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

/// Names that identify a job.
#[derive(Clone, Debug)]
pub struct JobPath {
    pub group: String,
    pub workspace: String,
    pub experiment: String,
    pub job: String,
}

impl JobPath {
    pub fn key(&self) -> JobKey {
        GroupKey::new(&self.group).workspace(&self.workspace).experiment(&self.experiment).job(&self.job)
    }
}

pub fn find_job(state: &State, path: &JobPath) -> Result<(JobKey, JobRecord), ApiError> {
    find_experiment(state, &path.group, &path.workspace, &path.experiment)?;
    let key = path.key();
    let record = state.jobs.get(&key).ok_or_else(|| ApiError::job_not_found(&path.job))?;
    Ok((key, (**record).clone()))
}

/// CLI arguments that identify the cluster, for commands in messages.
pub fn cluster_cli_args(state: &State, key: &ClusterKey, name: &str) -> String {
    let workspace = key.workspace();
    let group = group_name(state, &workspace.group());
    let last = || workspace.to_string().rsplit('/').next().unwrap_or_default().to_owned();
    let workspace = state.workspaces.get(&workspace).map_or_else(last, |workspace| workspace.name.clone());
    format!("-g {group} -w {workspace} -n {name}")
}

/// Error if the resource is being deleted.
pub fn ensure_not_deleting(provisioning: &Provisioning, what: &str, name: &str) -> Result<(), ApiError> {
    if provisioning.is_deleting() {
        let message = format!("The {what} {name} is being deleted: wait until it is gone, then try again");
        return Err(ApiError::conflict("ResourceBeingDeleted", message));
    }
    Ok(())
}

/// Error for a resource that exists in another location: resources do not move.
pub fn location_conflict(group: &str, name: &str, here: &str, there: &str) -> ApiError {
    let message = format!(
        "The resource '{name}' already exists in location '{here}' in resource group '{group}'. A resource with the same name cannot be created in location '{there}'. Please select a new resource name."
    );
    ApiError::conflict("InvalidResourceLocation", message).about("location")
}

pub fn group_being_deleted(name: &str) -> ApiError {
    let message = format!("The resource group '{name}' is being deleted: wait until it is gone, then try again");
    ApiError::conflict("ResourceGroupBeingDeleted", message)
}
