//! Builds the complete desired state of a node from the state and its job's goal. Names every path, command and variable; the node
//! makes no choices.

mod commands;

use std::collections::HashMap;

use corro_model::batchai::{ClusterSpec, ContainerSettings, SecretVariable, SetupTask, UserAccountSettings};
use corro_model::explain::{self, NODE_LOST};
use corro_model::layout::slots;
use corro_model::node::*;
use corro_model::state::NodeState;
use corro_model::vm_size::{self, VmSize};
use corro_model::{AttemptId, ClusterKey, JobKey, NodeId, Secret};
use corro_store::{JobRecord, LostAttempt, NodeRecord, State};

use self::commands::layout;
use super::ReconcileConfig;
use crate::app::App;
use crate::app::jobs::lost_attempt;
use crate::app::resources::spec_secrets::SecretBundle;
use crate::app::storage::volumes::resolve_volumes;
use crate::digest::hex;
use crate::provider::Provider;

/// Builds the desired states of one pass. The parts that the nodes of a cluster or gang have in common are built once: they need
/// decrypted secrets and disk accesses.
pub struct DesiredStateBuilder<'a> {
    app: &'a App,
    config: &'a ReconcileConfig,
    state: &'a State,
    /// Server silence after which nodes stop their jobs, when the provider would not end them.
    lease_ms: Option<u64>,
    /// Desired state of an idle node of each cluster.
    clusters: HashMap<&'a ClusterKey, DesiredNode>,
    /// `None` for a job without a valid layout.
    gangs: HashMap<&'a JobKey, Option<GangTasks<'a>>>,
}

/// The task order common to the nodes of a gang, and each node's index.
struct GangTasks<'a> {
    order: TaskOrder,
    host_indexes: HashMap<&'a NodeId, usize>,
}

impl<'a> DesiredStateBuilder<'a> {
    pub fn new(app: &'a App, config: &'a ReconcileConfig, provider: &dyn Provider, state: &'a State) -> Self {
        let lease = (!provider.can_end_silent_nodes()).then_some(config.lease);
        let lease_ms = lease.map(|lease| lease.as_millis() as u64);
        Self { app, config, state, lease_ms, clusters: HashMap::new(), gangs: HashMap::new() }
    }

    /// `None` when no state can be built: a busy node then keeps its last one instead of stopping.
    pub fn build(&mut self, id: &NodeId, node: &'a NodeRecord, goal: Option<&Goal>) -> Option<DesiredNode> {
        let retire = *node.state() == NodeState::Leaving;
        let common = self.cluster_state(&node.cluster);
        let task = match node.state() {
            NodeState::Running { job, attempt } => {
                Some(DesiredTask { goal: goal?.clone(), order: self.task_order(job, attempt, id)? })
            }
            _ => None,
        };
        Some(DesiredNode { retire, task, ..common })
    }

    fn cluster_state(&mut self, key: &'a ClusterKey) -> DesiredNode {
        let common = self.clusters.entry(key).or_insert_with(|| {
            let Some(cluster) = self.state.clusters.get(key) else { return DesiredNode::default() };
            let bundle = self.app.open_secrets(cluster.secrets.as_ref()).unwrap_or_default();
            let node_setup = cluster.spec.node_setup.as_ref();
            let volumes = node_setup.and_then(|setup| setup.mount_volumes.as_ref());
            let task = node_setup.and_then(|setup| setup.setup_task.as_ref());
            DesiredNode {
                retire: false,
                volumes: resolve_volumes(self.app, self.state, volumes, &bundle),
                setup: task.and_then(|task| setup_order(task, &bundle, !self.config.masks_secrets)),
                login: login(&cluster.spec.user_account_settings, &bundle),
                task: None,
                lease_ms: self.lease_ms,
                strict_isolation: strict_isolation(self.config, self.state),
                shared_disk_probe: self.config.shared_disk_probe.clone(),
            }
        });
        common.clone()
    }

    fn task_order(&mut self, key: &'a JobKey, attempt: &AttemptId, node: &NodeId) -> Option<TaskOrder> {
        let gang = self.gangs.entry(key).or_insert_with(|| {
            let job = self.state.jobs.get(key)?;
            let host_indexes = job.state().nodes().iter().zip(0..).collect();
            Some(GangTasks {
                order: gang_task_order(self.app, self.config, self.state, (key, job), attempt)?,
                host_indexes,
            })
        });
        let GangTasks { order, host_indexes } = gang.as_ref()?;
        (order.attempt == *attempt).then_some(())?;
        Some(TaskOrder { host_idx: *host_indexes.get(node)?, ..order.clone() })
    }
}

fn setup_order(task: &SetupTask, bundle: &SecretBundle, shows_secrets: bool) -> Option<SetupOrder> {
    Some(SetupOrder {
        command: task.command_line.clone(),
        std_out_err_path_prefix: task.std_out_err_path_prefix.clone(),
        segment: task.std_out_err_path_suffix.clone()?,
        environment: task.environment_variables.clone(),
        secrets: secrets_of(&task.secrets, bundle),
        shows_secrets,
    })
}

fn secrets_of(secrets: &[SecretVariable], bundle: &SecretBundle) -> Vec<TaskSecret> {
    let secret = |variable: &SecretVariable| {
        let value = bundle.variables.get(&variable.name)?.clone();
        Some(TaskSecret { name: variable.name.clone(), value })
    };
    secrets.iter().filter_map(secret).collect()
}

/// SSH login of the administrator. `None` without a public key and a password.
fn login(account: &UserAccountSettings, bundle: &SecretBundle) -> Option<Login> {
    let public_key = account.admin_user_ssh_public_key.clone().filter(|key| !key.trim().is_empty());
    let login = Login { user: account.admin_user_name.clone(), public_key, password: bundle.admin.clone() };
    (login.public_key.is_some() || login.password.is_some()).then_some(login)
}

/// Strict isolation by the operator's choice, else as soon as there are several principals.
fn strict_isolation(config: &ReconcileConfig, state: &State) -> bool {
    config.strict_isolation.unwrap_or_else(|| state.has_several_principals())
}

/// The task order of the first node; the others differ in `host_idx`.
fn gang_task_order(
    app: &App,
    config: &ReconcileConfig,
    state: &State,
    (key, job): (&JobKey, &JobRecord),
    attempt: &AttemptId,
) -> Option<TaskOrder> {
    let nodes = job.state().nodes();
    let slots = match job.spec.elastic {
        Some(_) => vec![job.spec.ranks_per_node(); nodes.len()],
        None => slots(job.spec.rank_count(), nodes.len()),
    };
    let host = |(id, slots): (&NodeId, usize)| {
        let address = state.nodes.get(id).map_or_else(|| "127.0.0.1".to_owned(), |n| n.address.clone());
        GangHost { node: id.clone(), address, slots }
    };
    let hosts = nodes.iter().zip(slots).map(host).collect();
    let bundle = app.open_secrets(job.secrets.as_ref()).unwrap_or_default();
    let experiment = key.experiment();
    let experiment_name = state.experiments.get(&experiment).map(|e| e.name.clone())?;
    let workspace_name = state.workspaces.get(&experiment.workspace()).map(|w| w.name.clone())?;
    let cluster = state.clusters.get(&job.cluster).map(|cluster| &cluster.spec);
    let vm = cluster.and_then(|cluster| vm_size::find(&cluster.vm_size));
    Some(TaskOrder {
        attempt: attempt.clone(),
        workspace: workspace_name,
        experiment: experiment_name,
        job: job.name.clone(),
        segment: job.segment.clone(),
        hosts,
        host_idx: 0,
        layout: layout(&job.spec)?,
        preparation: job.spec.job_preparation.as_ref().map(|p| p.command_line.clone()),
        volumes: resolve_volumes(app, state, job.spec.mount_volumes.as_ref(), &bundle),
        std_out_err_path_prefix: job.spec.std_out_err_path_prefix.clone(),
        input_directories: job.spec.input_directories.clone(),
        output_directories: job.spec.output_directories.clone(),
        environment: job.spec.environment_variables.clone(),
        secrets: secrets_of(&job.spec.secrets, &bundle),
        shared_temp: Some(config.shared_temp.join(attempt.to_string())),
        container: job.spec.container_settings.clone().map(|settings| with_password(settings, &bundle)),
        containers_on_host: config.containers_on_host,
        strict_isolation: strict_isolation(config, state),
        shows_secrets: !config.masks_secrets,
        limits: vm.map(|vm| limits(vm, config.scheduling.processes)),
        counters: cluster.is_some_and(has_performance_counters),
        gpus: vm.map_or(0, |vm| vm.gpus),
        gang_secret: gang_secret(app, attempt),
        lost_attempts: lost_attempts(job),
        working_directory: job.spec.working_directory.clone(),
        prefix_output_with_rank: job.spec.prefix_output_with_rank,
        elastic: job.spec.elastic.is_some(),
        python_environment: job.spec.python_environment.clone(),
    })
}

/// Descriptions of lost attempts, whose output may be incomplete, and of failed ones, for the execution log of the next
/// attempt.
fn lost_attempts(job: &JobRecord) -> Vec<String> {
    let is_told = |lost: &&LostAttempt| lost.reason.code == NODE_LOST || lost.exit_code.is_some();
    let lost = job.lost_attempts.iter().filter(is_told);
    lost.map(|lost| explain::lost_attempt(&lost_attempt(lost))).collect()
}

fn has_performance_counters(cluster: &ClusterSpec) -> bool {
    cluster.node_setup.as_ref().is_some_and(|setup| setup.performance_counters_settings.is_some())
}

/// Puts the registry password back, which is stored apart from the specification.
fn with_password(mut settings: ContainerSettings, bundle: &SecretBundle) -> ContainerSettings {
    if let Some(credentials) = &mut settings.image_source_registry.credentials {
        credentials.password = bundle.registry.clone();
    }
    settings
}

fn limits(vm: &VmSize, processes: Option<u64>) -> Limits {
    Limits { vm_size: vm.name.to_owned(), memory_bytes: u64::from(vm.memory_gib) << 30, cores: vm.cores, processes }
}

/// Secret shared by the ranks of an attempt; the same after a restart of the server.
fn gang_secret(app: &App, attempt: &AttemptId) -> Secret {
    Secret::new(hex(&app.keyed_digest("gang", attempt.to_string().as_bytes())))
}
