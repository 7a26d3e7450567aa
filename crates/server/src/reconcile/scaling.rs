//! Between the state and the planner: makes the planner's view, turns its plan into steps, and keeps the allocation
//! state of clusters true.

use corro_model::batchai::{AllocationState, Provisioning, ProvisioningState};
use corro_model::state::{NodeEvent, NodeState};
use corro_model::{ClusterKey, JobKey};
use corro_sched::{ClusterView, Eviction, JobView, NodeStanding, NodeView, Plan, Snapshot, Target};
use corro_store::{ClusterRecord, JobRecord, NodeRecord, State};

use super::steps::Step;

/// Every cluster with its nodes and unfinished jobs.
pub fn view(state: &State) -> Snapshot {
    Snapshot { clusters: state.clusters.iter().map(|(key, cluster)| cluster_view(state, key, cluster)).collect() }
}

/// One cluster, as if there were no others.
pub fn view_of(state: &State, key: &ClusterKey) -> Snapshot {
    let Some(cluster) = state.clusters.get(key) else { return Snapshot { clusters: Vec::new() } };
    Snapshot { clusters: vec![cluster_view(state, key, cluster)] }
}

fn cluster_view(state: &State, key: &ClusterKey, cluster: &ClusterRecord) -> ClusterView {
    let nodes =
        state.nodes_of(key).map(|(id, node)| NodeView { id: id.clone(), index: node.index, standing: standing(node) });
    let jobs = state.active_jobs_of(key).chain(state.queued_jobs(key)).map(|(key, job)| job_view(key, job));
    ClusterView { key: key.clone(), target: target(cluster), nodes: nodes.collect(), jobs: jobs.collect() }
}

fn job_view(key: &JobKey, job: &JobRecord) -> JobView {
    JobView {
        key: key.clone(),
        priority: job.spec.scheduling_priority,
        sequence: job.sequence,
        node_count: job.spec.node_count as usize,
        queued: job.state().nodes().is_empty(),
    }
}

pub fn decide(state: &State, plan: &Plan) -> Vec<Step> {
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
    steps.extend(plan.evict.iter().filter_map(|(key, eviction)| {
        let job = state.jobs.get(key)?;
        match eviction {
            Eviction::Requeue => (!job.is_evicted()).then(|| Step::Evict(key.clone())),
            Eviction::Terminate => (job.state().name() != "terminating").then(|| Step::Terminate(key.clone())),
        }
    }));
    for (key, cluster) in &state.clusters {
        if cluster.provisioning.provisioning_state == ProvisioningState::Creating {
            steps.push(Step::Provisioned(key.clone()));
        }
        let moving =
            state.nodes_of(key).any(|(_, node)| matches!(node.state(), NodeState::Allocating | NodeState::Leaving))
                || plan.allocate.iter().any(|(cluster, _)| cluster == key)
                || plan.retire.iter().any(|id| state.nodes.get(id).is_some_and(|node| node.cluster == *key))
                || plan.evict.keys().any(|job| state.jobs.get(job).is_some_and(|job| job.cluster == *key));
        let allocation = if moving { AllocationState::Resizing } else { AllocationState::Steady };
        if allocation != cluster.allocation {
            steps.push(Step::Allocation(key.clone(), allocation));
        }
    }
    // A file server is a record without a machine behind it, so there is nothing to wait for.
    let creating = |provisioning: &Provisioning| provisioning.provisioning_state == ProvisioningState::Creating;
    let new = state.file_servers.iter().filter(|(_, file_server)| creating(&file_server.provisioning));
    steps.extend(new.map(|(key, _)| Step::FileServerProvisioned(key.clone())));
    steps
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

fn standing(node: &NodeRecord) -> NodeStanding {
    match node.state() {
        NodeState::Allocating => NodeStanding::Allocating,
        NodeState::Preparing => NodeStanding::Preparing,
        NodeState::Idle => NodeStanding::Idle,
        NodeState::Running { job, .. } => NodeStanding::Busy(job.clone()),
        NodeState::Leaving => NodeStanding::Leaving,
        NodeState::Unusable { lost: true, .. } => NodeStanding::Lost,
        NodeState::Unusable { lost: false, .. } => NodeStanding::Unusable,
    }
}
