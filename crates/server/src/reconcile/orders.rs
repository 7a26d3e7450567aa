//! What a node is told: its whole desired state, made from the state and the goal of its job. Names every path, command
//! and variable outright; the node makes no choices.

use std::collections::HashMap;

use corro_model::batchai::{
    AzureBlobFileSystemReference, AzureFileShareReference, BatchAiError, JobSpec, MountVolumes, SecretVariable,
    SetupTask, ToolType, UserAccountSettings,
};
use corro_model::node::*;
use corro_model::state::NodeState;
use corro_model::{AttemptId, JobKey, Secret, vm_size};
use corro_store::{JobRecord, NodeRecord, State};

use super::ReconcileConfig;
use crate::app::App;
use crate::app::instance::hex;
use crate::app::secrets::Bag;

/// `None` when nothing new can be said: a node that is busy keeps its last orders rather than being told to stop.
pub fn desired(
    app: &App,
    config: &ReconcileConfig,
    state: &State,
    node: &NodeRecord,
    goals: &HashMap<JobKey, Goal>,
) -> Option<DesiredNode> {
    let retire = *node.state() == NodeState::Leaving;
    let cluster = state.clusters.get(&node.cluster);
    let bag = cluster.and_then(|cluster| app.open_bag(cluster.secrets.as_ref()).ok()).unwrap_or_default();
    let volumes = cluster.and_then(|cluster| {
        let volumes = cluster.spec.node_setup.as_ref()?.mount_volumes.as_ref()?;
        Some(volumes_of(app, Some(volumes), &bag))
    });
    let login = cluster.and_then(|cluster| login(&cluster.spec.user_account_settings, &bag));
    let task = match node.state() {
        NodeState::Running { job, attempt } => {
            let order =
                state.jobs.get(job).and_then(|record| order(app, config, state, node, (job, record), attempt))?;
            Some(DesiredTask { goal: goals.get(job)?.clone(), order })
        }
        _ => None,
    };
    let setup = cluster.and_then(|cluster| setup(cluster.spec.node_setup.as_ref()?.setup_task.as_ref()?, &bag));
    Some(DesiredNode { retire, volumes: volumes.unwrap_or_default(), setup, login, task, ..DesiredNode::default() })
}

fn setup(task: &SetupTask, bag: &Bag) -> Option<SetupOrder> {
    Some(SetupOrder {
        command: task.command_line.clone(),
        std_out_err_path_prefix: task.std_out_err_path_prefix.clone(),
        segment: task.std_out_err_path_suffix.clone()?,
        environment: task.environment_variables.clone(),
        secrets: secrets_of(&task.secrets, bag),
    })
}

fn secrets_of(secrets: &[SecretVariable], bag: &Bag) -> Vec<TaskSecret> {
    let secret = |variable: &SecretVariable| {
        let value = bag.variables.get(&variable.name)?.clone();
        Some(TaskSecret { name: variable.name.clone(), value })
    };
    secrets.iter().filter_map(secret).collect()
}

/// `None` where nobody could prove to be the administrator.
fn login(account: &UserAccountSettings, bag: &Bag) -> Option<Login> {
    let public_key = account.admin_user_ssh_public_key.clone().filter(|key| !key.trim().is_empty());
    let login = Login { user: account.admin_user_name.clone(), public_key, password: bag.admin.clone() };
    (login.public_key.is_some() || login.password.is_some()).then_some(login)
}

fn order(
    app: &App,
    config: &ReconcileConfig,
    state: &State,
    node: &NodeRecord,
    (key, job): (&JobKey, &JobRecord),
    attempt: &AttemptId,
) -> Option<TaskOrder> {
    let tool = job.spec.toolkit()?;
    let nodes = job.state().nodes();
    let slots = slots(job.spec.rank_count(), nodes.len());
    let host = |(id, slots): (&corro_model::NodeId, usize)| {
        let address = state.nodes.get(id).map_or_else(|| "127.0.0.1".to_owned(), |n| n.address.clone());
        GangHost { node: id.clone(), address, slots }
    };
    let hosts: Vec<GangHost> = nodes.iter().zip(slots).map(host).collect();
    let host_idx = nodes.iter().position(|id| state.nodes.get(id).is_some_and(|n| std::ptr::eq(&**n, node)))?;
    let bag = app.open_bag(job.secrets.as_ref()).unwrap_or_default();
    let experiment = key.experiment();
    let experiment_name = state.experiments.get(&experiment).map(|e| e.name.clone())?;
    let workspace_name = state.workspaces.get(&experiment.workspace()).map(|w| w.name.clone())?;
    let vm = state.clusters.get(&job.cluster).and_then(|cluster| vm_size::find(&cluster.spec.vm_size));
    Some(TaskOrder {
        attempt: attempt.clone(),
        workspace: workspace_name,
        experiment: experiment_name,
        job: job.name.clone(),
        segment: job.segment.clone(),
        hosts,
        host_idx,
        command: command(&job.spec)?,
        ranked: tool != ToolType::Custom,
        preparation: job.spec.job_preparation.as_ref().map(|p| p.command_line.clone()),
        volumes: volumes_of(app, job.spec.mount_volumes.as_ref(), &bag),
        std_out_err_path_prefix: job.spec.std_out_err_path_prefix.clone(),
        input_directories: job.spec.input_directories.clone(),
        output_directories: job.spec.output_directories.clone(),
        environment: job.spec.environment_variables.clone(),
        secrets: secrets_of(&job.spec.secrets, &bag),
        shared_temp: config.shared_temp.join(attempt.to_string()),
        container: job.spec.container_settings.clone(),
        containers_on_host: config.containers_on_host,
        gpus: vm.map_or(0, |vm| vm.gpus),
        gang_secret: gang_secret(app, attempt),
    })
}

/// How many processes each node runs: ceil(P/N) in order; a custom job has one, on the master.
fn slots(processes: usize, n_nodes: usize) -> Vec<usize> {
    let per_node = processes.div_ceil(n_nodes.max(1));
    (0..n_nodes).map(|i| processes.saturating_sub(i * per_node).min(per_node)).collect()
}

/// The shell line of one process. A path may hold variables, so it is quoted in a way that lets them through.
fn command(spec: &JobSpec) -> Option<String> {
    if let Some(settings) = &spec.horovod_settings {
        // `python` is what the service ran; machines of today often have only `python3`.
        let found = "\"$(command -v python || command -v python3 || echo python)\"".to_owned();
        let interpreter = settings.python_interpreter_path.clone().unwrap_or(found);
        let script = settings.python_script_file_path.replace('\\', "\\\\").replace('"', "\\\"");
        let arguments = settings.command_line_args.as_deref().unwrap_or_default();
        return Some(format!("{interpreter} \"{script}\" {arguments}").trim_end().to_owned());
    }
    let custom = spec.custom_toolkit_settings.as_ref().and_then(|settings| settings.command_line.clone());
    custom.or_else(|| spec.custom_mpi_settings.as_ref().map(|settings| settings.command_line.clone()))
}

fn volumes_of(app: &App, volumes: Option<&MountVolumes>, bag: &Bag) -> Vec<Volume> {
    let Some(volumes) = volumes else { return Vec::new() };
    let shares = volumes.azure_file_shares.iter().map(|share| share_volume(app, share, bag));
    let containers = volumes.azure_blob_file_systems.iter().map(|blob| container_volume(app, blob, bag));
    shares.chain(containers).chain(unsupported_volumes(volumes)).collect()
}

/// Kinds that are accepted and that nodes cannot mount yet: whoever needs one is told so.
fn unsupported_volumes(volumes: &MountVolumes) -> impl Iterator<Item = Volume> {
    let volume = |relative: &str, label: String, code: &str, message: &str, what: &str| {
        let info = format!(
            "Could not mount {label} at {relative}: {what} cannot be mounted yet, use azureFileShares or azureBlobFileSystems"
        );
        let error = BatchAiError::new(code, message).with("Info", info);
        let (kind, source) = (VolumeKind::default(), VolumeSource::Unsupported { error });
        Volume { kind, relative: relative.to_owned(), label, source }
    };
    let servers = volumes.file_servers.iter().map(move |server| {
        let message = "Unable to mount file server";
        let label = server.file_server.id.clone();
        volume(&server.relative_mount_path, label, "FileServerMountError", message, "file servers")
    });
    let unmanaged = volumes.unmanaged_file_systems.iter().map(move |system| {
        let message = "Unable to mount unmanaged file system";
        let label = "an unmanaged file system".to_owned();
        volume(&system.relative_mount_path, label, "UnmanagedMountError", message, "unmanaged file systems")
    });
    servers.chain(unmanaged)
}

fn container_volume(app: &App, blob: &AzureBlobFileSystemReference, bag: &Bag) -> Volume {
    let (account, name) = (blob.account_name.as_deref().unwrap_or_default(), &blob.container_name);
    let source = match check_key(app, account, bag.mounts.get(&blob.relative_mount_path)) {
        Err(why) => VolumeSource::Unavailable { why },
        Ok(()) => match app.shares.container_host_path(account, name).ok().filter(|path| path.is_dir()) {
            Some(path) => VolumeSource::LocalDirectory(path),
            None => VolumeSource::Unavailable { why: format!("Azure Blob Container '{name}' doesn't exist") },
        },
    };
    let label = format!("{name} container from {account} account");
    Volume { kind: VolumeKind::Container, relative: blob.relative_mount_path.clone(), label, source }
}

fn share_volume(app: &App, share: &AzureFileShareReference, bag: &Bag) -> Volume {
    let account = share.account().unwrap_or_default();
    let name = share.share_name().unwrap_or_default();
    let host =
        share.azure_file_url.split_once("://").map_or("", |(_, rest)| rest).split('/').next().unwrap_or_default();
    let source = match local_source(app, account, name, bag.mounts.get(&share.relative_mount_path)) {
        Ok(path) => VolumeSource::LocalDirectory(path),
        Err(why) => VolumeSource::Unavailable { why },
    };
    let label = format!("//{host}/{name}");
    Volume { kind: VolumeKind::FileShare, relative: share.relative_mount_path.clone(), label, source }
}

/// Where the share lies on this machine, if whoever asked for it has a key of its account.
fn local_source(app: &App, account: &str, share: &str, key: Option<&Secret>) -> Result<std::path::PathBuf, String> {
    check_key(app, account, key)?;
    let missing =
        || format!("there is no share '{share}' in the account '{account}': create it with 'storage share create'");
    app.shares.host_path(account, share).ok().filter(|path| path.is_dir()).ok_or_else(missing)
}

fn check_key(app: &App, account: &str, key: Option<&Secret>) -> Result<(), String> {
    if app.raw_account_keys(account).is_none() {
        return Err(format!("there is no storage account '{account}': create it with 'storage account create'"));
    }
    match key {
        None => Err(format!("no account key was given for '{account}': give it in the mount's credentials")),
        Some(key) if !app.is_account_key(account, key) => {
            Err(format!("the account key given for '{account}' is not one of its keys"))
        }
        Some(_) => Ok(()),
    }
}

/// Different for every attempt, the same after a restart of the server.
fn gang_secret(app: &App, attempt: &AttemptId) -> Secret {
    Secret::new(hex(&app.keyed_digest("gang", attempt.to_string().as_bytes())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn spec(value: serde_json::Value) -> JobSpec {
        serde_json::from_value(value).expect("a literal")
    }

    #[test]
    fn processes_are_spread_in_host_order() {
        let check = |nodes, processes, expected: &[usize]| assert_eq!(slots(processes, nodes), expected);
        check(4, 4, &[1, 1, 1, 1]);
        check(2, 8, &[4, 4]);
        check(2, 3, &[2, 1]);
        check(4, 5, &[2, 2, 1, 0]);
    }

    #[test]
    fn a_horovod_command_keeps_variables_and_spaces() {
        let spec = spec(json!({"nodeCount": 1, "stdOutErrPathPrefix": "x", "horovodSettings": {
            "pythonScriptFilePath": "$AZ_BATCHAI_JOB_MOUNT_ROOT/my share/t.py",
            "pythonInterpreterPath": "/opt/py/bin/python", "commandLineArgs": "--dir=$X"}}));
        assert_eq!(
            command(&spec).as_deref(),
            Some("/opt/py/bin/python \"$AZ_BATCHAI_JOB_MOUNT_ROOT/my share/t.py\" --dir=$X")
        );
    }
}
