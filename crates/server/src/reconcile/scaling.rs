//! Between the state and the planner: makes the planner's view, turns its plan into steps, and keeps the allocation
//! state of clusters true.

use corro_model::batchai::{AllocationState, ProvisioningState};
use corro_model::state::{NodeEvent, NodeState};
use corro_sched::{ClusterView, Eviction, JobView, NodeStanding, NodeView, Plan, Snapshot, Target};
use corro_store::{ClusterRecord, NodeRecord, State};

use super::steps::Step;

pub fn view(state: &State) -> Snapshot {
    let mut clusters: Vec<ClusterView> = Vec::with_capacity(state.clusters.len());
    for (key, cluster) in &state.clusters {
        let nodes = state.nodes_of(key).map(|(id, node)| NodeView {
            id: id.clone(),
            index: node.index,
            standing: standing(node),
        });
        let nodes = nodes.collect();
        clusters.push(ClusterView { key: key.clone(), target: target(cluster), nodes, jobs: Vec::new() });
    }
    for (key, job) in state.jobs.iter().filter(|(_, job)| !job.state().is_terminal()) {
        // Clusters are in key order, as they came from an ordered map.
        if let Ok(i) = clusters.binary_search_by(|cluster| cluster.key.cmp(&job.cluster)) {
            clusters[i].jobs.push(JobView {
                key: key.clone(),
                priority: job.spec.scheduling_priority,
                sequence: job.sequence,
                node_count: job.spec.node_count as usize,
                queued: job.state().nodes().is_empty(),
            });
        }
    }
    Snapshot { revision: state.revision, clusters }
}

pub fn decide(state: &State, plan: &Plan) -> Vec<Step> {
    let mut steps = Vec::new();
    steps.extend(plan.allocate.iter().map(|(cluster, count)| Step::Allocate(cluster.clone(), *count)));
    steps.extend(plan.retire.iter().map(|node| Step::Node(node.clone(), NodeEvent::Retired)));
    steps.extend(plan.placements.iter().map(|p| Step::Place(p.job.clone(), p.nodes.clone())));
    let terminated = plan.evict.iter().filter(|(key, eviction)| {
        let asked = state.jobs.get(*key).is_some_and(|job| job.state().name() == "terminating");
        **eviction == Eviction::Terminate && !asked
    });
    steps.extend(terminated.map(|(job, _)| Step::Terminate(job.clone())));
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

fn target(cluster: &ClusterRecord) -> Target {
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
