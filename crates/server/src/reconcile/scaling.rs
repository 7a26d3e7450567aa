//! Between the state and the planner: makes the planner's view, turns its plan into steps, and keeps the allocation
//! state of clusters true.

use corro_model::batchai::{AllocationState, ProvisioningState};
use corro_model::state::{NodeEvent, NodeState};
use corro_model::{ClusterKey, JobKey};
use corro_sched::{ClusterView, Eviction, JobView, NodeStanding, NodeView, Plan, Snapshot, Target};
use corro_store::{ClusterRecord, JobRecord, NodeRecord, State};

use super::steps::Step;

/// Every cluster with its nodes and unfinished jobs.
pub fn view(state: &State) -> Snapshot {
    let mut clusters: Vec<ClusterView> =
        state.clusters.iter().map(|(key, cluster)| empty_view(state, key, cluster)).collect();
    for (key, job) in state.jobs.iter().filter(|(_, job)| !job.state().is_terminal()) {
        // Clusters are in key order, as they came from an ordered map.
        if let Ok(i) = clusters.binary_search_by(|cluster| cluster.key.cmp(&job.cluster)) {
            clusters[i].jobs.push(job_view(key, job));
        }
    }
    Snapshot { clusters }
}

/// One cluster, as if there were no others.
pub fn view_of(state: &State, key: &ClusterKey) -> Snapshot {
    let Some(cluster) = state.clusters.get(key) else { return Snapshot { clusters: Vec::new() } };
    let mut view = empty_view(state, key, cluster);
    let own = state.jobs.iter().filter(|(_, job)| job.cluster == *key && !job.state().is_terminal());
    view.jobs = own.map(|(key, job)| job_view(key, job)).collect();
    Snapshot { clusters: vec![view] }
}

fn empty_view(state: &State, key: &ClusterKey, cluster: &ClusterRecord) -> ClusterView {
    let nodes =
        state.nodes_of(key).map(|(id, node)| NodeView { id: id.clone(), index: node.index, standing: standing(node) });
    ClusterView { key: key.clone(), target: target(cluster), nodes: nodes.collect(), jobs: Vec::new() }
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
