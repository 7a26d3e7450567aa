//! Between the state and the planner: makes the planner's view, turns its plan into steps, and keeps the allocation
//! state of clusters true.

use std::collections::HashSet;

use std::time::Duration;

use corro_model::batchai::{AllocationState, BatchAiError, Priority, ProvisioningState, VmPriority};
use corro_model::state::{JobState, NodeEvent, NodeState, Preemption, PreemptionCause};
use corro_model::{ClusterKey, JobKey, NodeId, Timestamp, vm_size};
use corro_sched::{
    ClusterView, Eviction, Jobs, NodeStanding, NodeView, Plan, Policy, Room, Running, RunningView, Snapshot, Target,
    Waiting, WaitingView,
};
use corro_store::{ClusterRecord, Evicted, JobRecord, NodeRecord, State, Timeline};

use super::steps::Step;

/// What the operator chose about giving nodes to clusters and taking them back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    pub policy: Policy,
    /// Cores that the nodes of one region may have together.
    pub cores: u64,
    /// How long the processes of a job have when a node of it is taken back.
    pub preemption_grace: Duration,
    /// Processes and threads that a job may have on a node; nodes choose by their VM size without.
    pub processes: Option<u64>,
}

impl Rules {
    pub const USUAL: Self =
        Self { policy: Policy::STANDARD, cores: u64::MAX, preemption_grace: Duration::from_secs(30), processes: None };

    pub fn preemption(&self, cause: PreemptionCause, at: Timestamp) -> Preemption {
        Preemption { at, cause, grace_ms: self.preemption_grace.as_millis() as u64 }
    }
}

/// How long the processes of a job have when its cluster is made smaller.
const RESIZE_GRACE_MS: u64 = 5_000;

/// The code of attempts that ended because a node was taken back.
pub const NODE_PREEMPTED: &str = "NodePreempted";

/// Every cluster with its nodes and unfinished jobs. The planner subtracts stamps from now, so stamps from before a jump of the
/// clock are rebased.
pub fn view<'a>(state: &'a State, clock: &'a Timeline, room: Room) -> Snapshot<'a> {
    let clusters = state.clusters.iter().map(|(key, cluster)| cluster_view(state, key, cluster, clock));
    Snapshot { now: clock.now(), clusters: clusters.collect(), room }
}

/// Takes idle nodes out of the planner's hand. They count: each comes back or is given up soon.
pub fn withhold(view: &mut Snapshot, is_fit: impl Fn(&NodeId) -> bool) {
    let now = view.now;
    for node in view.clusters.iter_mut().flat_map(|cluster| &mut cluster.nodes) {
        if node.standing == NodeStanding::Idle && !is_fit(node.id) {
            (node.standing, node.since) = (NodeStanding::Preparing, now);
        }
    }
}

/// One cluster. Its jobs are not copied, however many wait.
pub fn cluster_view<'a>(
    state: &'a State,
    key: &'a ClusterKey,
    cluster: &ClusterRecord,
    clock: &'a Timeline,
) -> ClusterView<'a> {
    let workspace = state.workspaces.get(&key.workspace());
    let node = |(id, node): (&'a _, &'a NodeRecord)| NodeView {
        id,
        index: node.index,
        standing: standing(node),
        since: clock.rebase(node.since()),
        host: node.host.as_deref(),
        preempted: node.preempted().is_some(),
    };
    ClusterView {
        key,
        target: target(cluster),
        initial: initial_nodes(cluster),
        region: workspace.map_or("", |workspace| workspace.location.as_str()),
        low_priority: cluster.spec.vm_priority == VmPriority::LowPriority,
        cores: vm_size::find(&cluster.spec.vm_size).map_or(0, |size| u64::from(size.cores)),
        nodes: state.nodes_of(key).map(node).collect(),
        jobs: Box::new(JobsOf { state, cluster: key, clock }),
    }
}

fn running_view<'a>(key: &'a JobKey, job: &JobRecord, clock: &Timeline) -> RunningView<'a> {
    let now = clock.now();
    let started = job.state().started().map_or(now, |started| clock.rebase(started));
    let limit = started.plus(job.spec.constraints.max_wall_clock_time.0);
    let ends_by = match (job.state(), job.eviction()) {
        (JobState::Terminating { .. }, _) => now,
        (_, Some(evicted)) => {
            limit.min(clock.rebase(evicted.at).plus(Duration::from_millis(evicted.grace_ms))).max(now)
        }
        _ => limit,
    };
    RunningView { key, started, ends_by }
}

/// So many of an experiment's last jobs tell how long its jobs take.
pub const RECENT_RUNS: usize = 25;

struct JobsOf<'a> {
    state: &'a State,
    cluster: &'a ClusterKey,
    clock: &'a Timeline,
}

impl Jobs for JobsOf<'_> {
    fn waiting(&self, priority: Priority) -> Waiting<'_> {
        Box::new(self.state.queued_jobs_at(self.cluster, priority).map(|job| WaitingView {
            key: job.key,
            sequence: job.sequence,
            submitted: self.clock.rebase(job.submitted),
            node_count: job.node_count.max(1) as usize,
            limit: job.limit,
        }))
    }

    fn longest_run(&self, job: &JobKey) -> Option<Duration> {
        self.state.run_times(&job.experiment()).take(RECENT_RUNS).max()
    }

    fn running(&self) -> Running<'_> {
        Box::new(self.state.active_jobs_of(self.cluster).map(|(key, job)| running_view(key, job, self.clock)))
    }
}

pub fn decide(state: &State, plan: &Plan, rules: &Rules, now: Timestamp) -> Vec<Step> {
    let mut steps = Vec::new();
    let target_of = |key: &ClusterKey| state.clusters.get(key).map(|cluster| target(cluster));
    let allocations = plan.allocate.iter().filter_map(|(key, count)| Some((key, *count, target_of(key)?)));
    steps.extend(allocations.map(|(key, count, target)| Step::Allocate(key.clone(), count, target)));
    steps.extend(plan.retire.iter().map(|node| Step::Node(node.clone(), NodeEvent::Retired)));
    let placements = plan.placements.iter().filter_map(|placement| {
        let target = target_of(&state.jobs.get(&placement.job)?.cluster)?;
        Some(Step::Place(placement.job.clone(), placement.nodes.clone(), target))
    });
    steps.extend(placements);
    let preemption = rules.preemption(PreemptionCause::Dedicated, now);
    steps.extend(plan.preempt.iter().map(|node| Step::Preempt(node.clone(), preemption)));
    steps.extend(plan.evict.iter().filter_map(|(key, eviction)| {
        let job = state.jobs.get(key)?;
        match eviction {
            Eviction::Requeue | Eviction::Preempt if job.is_evicted() => None,
            Eviction::Requeue => Some(Step::Evict(key.clone(), resized(job, now))),
            Eviction::Preempt => Some(Step::Evict(key.clone(), preempted(state, job, now))),
            Eviction::Terminate => (job.state().name() != "terminating").then(|| Step::Terminate(key.clone())),
        }
    }));
    let resizing = resizing_clusters(state, plan);
    for (key, cluster) in &state.clusters {
        if cluster.provisioning.provisioning_state == ProvisioningState::Creating {
            steps.push(Step::Provisioned(key.clone()));
        }
        let unsettled = |node: &NodeRecord| matches!(node.state(), NodeState::Allocating | NodeState::Leaving);
        let is_resizing = resizing.contains(key) || state.nodes_of(key).any(|(_, node)| unsettled(node));
        let allocation = if is_resizing { AllocationState::Resizing } else { AllocationState::Steady };
        if allocation != cluster.allocation {
            steps.push(Step::SetAllocationState(key.clone(), allocation));
        }
    }
    // A file server has no machine behind it, so there is nothing to wait for; its states follow one another.
    let creating = |state| matches!(state, ProvisioningState::Creating | ProvisioningState::Updating);
    let new = state.file_servers.iter().filter(|(_, server)| creating(server.provisioning.provisioning_state));
    steps.extend(new.map(|(key, _)| Step::FileServerProvisioned(key.clone())));
    steps
}

fn resized(job: &JobRecord, now: Timestamp) -> Evicted {
    let message = "The job's cluster was made smaller with the option 'requeue': it waits again, and runs from its beginning with the same output directory";
    let reason = BatchAiError::new("ClusterResized", message);
    Evicted { attempt: job.attempts, at: now, grace_ms: RESIZE_GRACE_MS, reason }
}

fn preempted(state: &State, job: &JobRecord, now: Timestamp) -> Evicted {
    let taken = |id: &NodeId| Some((id.clone(), *state.nodes.get(id)?.preempted()?));
    let taken: Vec<(NodeId, Preemption)> = job.state().nodes().iter().filter_map(taken).collect();
    let names = taken.iter().map(|(id, _)| id.as_str()).collect::<Vec<_>>().join(", ");
    let why = taken.first().map_or("", |(_, preemption)| preemption.cause.words());
    let low_priority = taken.iter().all(|(_, preemption)| preemption.cause.is_of_low_priority());
    let what = if low_priority { "Low-priority node" } else { "Node" };
    let grace_ms = taken.iter().map(|(_, preemption)| preemption.grace_ms).min().unwrap_or_default();
    let message = format!(
        "{what} {names} was preempted while the job ran on it ({why}): the job waits again, and runs from its beginning with the same output directory"
    );
    let error = BatchAiError::new(NODE_PREEMPTED, message);
    let reason = taken.iter().fold(error, |error, (id, _)| error.with("Node", id.as_str()));
    Evicted { attempt: job.attempts, at: now, grace_ms, reason }
}

/// Clusters whose nodes the plan changes.
fn resizing_clusters<'a>(state: &'a State, plan: &'a Plan) -> HashSet<&'a ClusterKey> {
    let retired = plan.retire.iter().filter_map(|id| state.nodes.get(id)).map(|node| &node.cluster);
    let preempted = plan.preempt.iter().filter_map(|id| state.nodes.get(id)).map(|node| &node.cluster);
    let evicted = plan.evict.keys().filter_map(|job| state.jobs.get(job)).map(|job| &job.cluster);
    plan.allocate.iter().map(|(key, _)| key).chain(retired).chain(preempted).chain(evicted).collect()
}

/// How many nodes a cluster with autoScale begins with; 0 once it has had any.
fn initial_nodes(cluster: &ClusterRecord) -> usize {
    let new = cluster.provisioning.provisioning_state == ProvisioningState::Creating;
    let auto = cluster.spec.scale_settings.auto_scale.as_ref().filter(|_| new);
    auto.map_or(0, |auto| auto.initial_node_count.max(0) as usize)
}

/// How many nodes the cluster is to have now.
pub fn target(cluster: &ClusterRecord) -> Target {
    if cluster.provisioning.is_deleting() {
        return Target::Deleting;
    }
    let scale = &cluster.spec.scale_settings;
    match (&scale.manual, &scale.auto_scale) {
        (Some(manual), _) => {
            Target::Manual { count: manual.target_node_count.max(0) as usize, option: manual.node_deallocation_option }
        }
        (None, Some(auto)) => {
            Target::Auto { min: auto.minimum_node_count.max(0) as usize, max: auto.maximum_node_count.max(0) as usize }
        }
        (None, None) => Target::Manual { count: 0, option: Default::default() },
    }
}

fn standing(node: &NodeRecord) -> NodeStanding<'_> {
    match node.state() {
        NodeState::Allocating => NodeStanding::Allocating,
        NodeState::Preparing => NodeStanding::Preparing,
        NodeState::Idle => NodeStanding::Idle,
        NodeState::Running { job, .. } => NodeStanding::Busy(job),
        NodeState::Leaving => NodeStanding::Leaving,
        NodeState::Unusable { lost: true, .. } => NodeStanding::Lost,
        NodeState::Unusable { lost: false, .. } => NodeStanding::Unusable,
    }
}

#[cfg(test)]
mod tests;
