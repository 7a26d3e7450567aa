//! The scheduler's input: turns the stored state into the snapshot that `corro_sched` plans from. Pure.

use std::time::Duration;

use corro_model::batchai::{Elastic, Priority, ProvisioningState, VmPriority};
use corro_model::state::{JobState, NodeState, Preemption, PreemptionCause};
use corro_model::{ClusterKey, JobKey, NodeId, Timestamp, vm_size};
use corro_sched::{
    ClusterView, ElasticRange, Jobs, NodeAvailability, NodeView, Policy, RegionCapacity, RunningElastic, RunningIter,
    RunningView, Snapshot, Target, WaitingIter, WaitingView,
};
use corro_store::{ClusterRecord, JobRecord, NodeRecord, State, Timeline};

/// The operator's scheduling policy and limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SchedulingConfig {
    pub policy: Policy,
    /// Maximum number of cores of all nodes of a region.
    pub cores: u64,
    /// Time between SIGTERM and SIGKILL for the processes of a job when a node is preempted.
    pub preemption_grace: Duration,
    /// Maximum number of processes and threads of a job per node. `None`: derived from the VM size.
    pub processes: Option<u64>,
}

impl SchedulingConfig {
    pub const DEFAULT: Self =
        Self { policy: Policy::STANDARD, cores: u64::MAX, preemption_grace: Duration::from_secs(30), processes: None };

    pub fn preemption(&self, cause: PreemptionCause, at: Timestamp) -> Preemption {
        Preemption { at, cause, grace_ms: self.preemption_grace.as_millis() as u64 }
    }
}

/// Scheduler snapshot of all clusters with their nodes and unfinished jobs. Timestamps from before a clock change are
/// rebased, because the scheduler computes their age.
pub fn view<'a>(state: &'a State, clock: &'a Timeline, capacity: RegionCapacity) -> Snapshot<'a> {
    let clusters = state.clusters.iter().map(|(key, cluster)| cluster_view(state, key, cluster, clock));
    Snapshot { now: clock.now(), clusters: clusters.collect(), capacity }
}

/// Presents idle nodes that are not fit as preparing, so that they get no jobs. They still count: each recovers or is
/// given up soon.
pub fn mark_unavailable(view: &mut Snapshot, is_fit: impl Fn(&NodeId) -> bool) {
    let now = view.now;
    for node in view.clusters.iter_mut().flat_map(|cluster| &mut cluster.nodes) {
        if node.availability == NodeAvailability::Idle && !is_fit(node.id) {
            (node.availability, node.since) = (NodeAvailability::Preparing, now);
        }
    }
}

/// View of one cluster. Its jobs are not copied, however many are queued.
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
        availability: availability(node),
        since: clock.rebase(node.since()),
        host: node.host.as_deref(),
        preempted: node.preempted().is_some(),
        releasing: releasing(state, id, node).map(|by| clock.rebase(by)),
    };
    ClusterView {
        key,
        target: target(cluster),
        initial: initial_nodes(cluster),
        region: workspace.map_or("", |workspace| workspace.location.as_str()),
        low_priority: cluster.spec.vm_priority == VmPriority::LowPriority,
        cores: vm_size::find(&cluster.spec.vm_size).map_or(0, |size| u64::from(size.cores)),
        nodes: state.nodes_of(key).map(node).collect(),
        jobs: Box::new(ClusterJobs { state, cluster: key, clock }),
    }
}

fn running_view<'a>(key: &'a JobKey, job: &'a JobRecord, clock: &Timeline) -> RunningView<'a> {
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
    RunningView { key, started, ends_by, elastic: running_elastic(job, started, clock) }
}

/// Size of an elastic job that may change. `None` while it is being stopped.
fn running_elastic<'a>(job: &'a JobRecord, started: Timestamp, clock: &Timeline) -> Option<RunningElastic<'a>> {
    let range = elastic_range(job.spec.node_count, job.spec.elastic?);
    let JobState::Running { nodes, .. } = job.state() else { return None };
    let resized = job.elastic().and_then(|elastic| elastic.resized()).map_or(started, |resized| clock.rebase(resized));
    let (priority, sequence) = (job.spec.scheduling_priority, job.sequence);
    let refused = job.elastic().map_or(&[][..], |elastic| &elastic.refused);
    (!job.is_evicted()).then_some(RunningElastic { range, priority, sequence, nodes, resized, refused })
}

fn elastic_range(node_count: i32, elastic: Elastic) -> ElasticRange {
    let count = |count: i32| count.max(1) as usize;
    ElasticRange { min: count(elastic.min_node_count), max: count(elastic.max_node_count), asked: count(node_count) }
}

/// Time by which an elastic job frees the node, if it was asked to.
fn releasing(state: &State, id: &NodeId, node: &NodeRecord) -> Option<Timestamp> {
    let NodeState::Running { job, .. } = node.state() else { return None };
    Some(state.jobs.get(job)?.elastic()?.release_of(id)?.by)
}

/// Number of recent jobs of an experiment that determine its usual run time.
pub const RECENT_RUNS: usize = 25;

struct ClusterJobs<'a> {
    state: &'a State,
    cluster: &'a ClusterKey,
    clock: &'a Timeline,
}

impl Jobs for ClusterJobs<'_> {
    fn waiting(&self, priority: Priority) -> WaitingIter<'_> {
        Box::new(self.state.queued_jobs_at(self.cluster, priority).map(move |job| WaitingView {
            key: job.key,
            priority,
            sequence: job.sequence,
            submitted: self.clock.rebase(job.submitted),
            node_count: job.elastic.map_or(job.node_count, |elastic| elastic.min_node_count).max(1) as usize,
            elastic: job.elastic.map(|elastic| elastic_range(job.node_count, elastic)),
            limit: job.limit,
        }))
    }

    fn longest_run(&self, job: &JobKey) -> Option<Duration> {
        self.state.run_times(&job.experiment()).take(RECENT_RUNS).max()
    }

    fn elastic(&self) -> RunningIter<'_> {
        let elastic = self.state.active_jobs_of(self.cluster).filter(|(_, job)| job.spec.elastic.is_some());
        let views = elastic.map(|(key, job)| running_view(key, job, self.clock));
        Box::new(views.filter(|job| job.elastic.is_some()))
    }

    fn running(&self) -> RunningIter<'_> {
        Box::new(self.state.active_jobs_of(self.cluster).map(|(key, job)| running_view(key, job, self.clock)))
    }
}

/// Initial node count of a cluster with auto-scale; 0 after its creation.
fn initial_nodes(cluster: &ClusterRecord) -> usize {
    let new = cluster.provisioning.provisioning_state == ProvisioningState::Creating;
    let auto = cluster.spec.scale_settings.auto_scale.as_ref().filter(|_| new);
    auto.map_or(0, |auto| auto.initial_node_count.max(0) as usize)
}

/// Target size of the cluster.
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

fn availability(node: &NodeRecord) -> NodeAvailability<'_> {
    match node.state() {
        NodeState::Allocating => NodeAvailability::Allocating,
        NodeState::Preparing => NodeAvailability::Preparing,
        NodeState::Idle => NodeAvailability::Idle,
        NodeState::Running { job, .. } => NodeAvailability::Busy(job),
        NodeState::Leaving => NodeAvailability::Leaving,
        NodeState::Unusable { lost: true, .. } => NodeAvailability::Lost,
        NodeState::Unusable { lost: false, .. } => NodeAvailability::Unusable,
    }
}
