//! How many nodes a cluster needs: which to add, which to let go, and which jobs must give way first.

use std::collections::BTreeSet;

use corro_model::NodeId;
use corro_model::batchai::DeallocationOption;

use crate::plan::{Eviction, Plan};
use crate::view::{ClusterView, NodeStanding, NodeView, Target};

/// Adds the cluster's scaling to `plan`; returns the nodes that no job may be placed on any more.
pub fn plan_scale(cluster: &ClusterView, plan: &mut Plan) -> BTreeSet<NodeId> {
    let mut leaving = BTreeSet::new();
    // A lost node is replaced: it leaves, and does not count.
    for node in cluster.nodes.iter().filter(|node| node.standing == NodeStanding::Lost) {
        plan.retire.push(node.id.clone());
        leaving.insert(node.id.clone());
    }
    let mut live: Vec<&NodeView> = cluster
        .nodes
        .iter()
        .filter(|node| !matches!(node.standing, NodeStanding::Leaving | NodeStanding::Lost))
        .collect();
    let wanted = wanted_nodes(cluster);
    if live.len() < wanted {
        plan.allocate.push((cluster.key.clone(), wanted - live.len()));
    }
    // The cheapest to lose first; among equals the youngest.
    live.sort_by_key(|node| (loss(&node.standing), std::cmp::Reverse(node.index)));
    for node in live.iter().take(live.len().saturating_sub(wanted)) {
        leaving.insert(node.id.clone());
        match (&node.standing, eviction(cluster.target)) {
            (NodeStanding::Busy(job), Some(how)) => {
                plan.evict.insert(job.clone(), how);
            }
            (NodeStanding::Busy(_), None) => {}
            _ => plan.retire.push(node.id.clone()),
        }
    }
    if cluster.target == Target::Deleting {
        plan.evict.extend(cluster.jobs.iter().map(|job| (job.key.clone(), Eviction::Terminate)));
    }
    leaving
}

/// The most nodes the cluster can come to have.
pub fn most_nodes(target: Target) -> usize {
    match target {
        Target::Manual { count, .. } => count,
        Target::Auto { max, .. } => max,
        Target::Deleting => 0,
    }
}

fn wanted_nodes(cluster: &ClusterView) -> usize {
    match cluster.target {
        Target::Manual { count, .. } => count,
        Target::Auto { min, max } => {
            let demand: usize = cluster.jobs.iter().map(|job| job.node_count).filter(|n| *n <= max).sum();
            demand.clamp(min, max)
        }
        Target::Deleting => 0,
    }
}

fn eviction(target: Target) -> Option<Eviction> {
    match target {
        Target::Manual { option: DeallocationOption::Requeue, .. } => Some(Eviction::Requeue),
        Target::Manual { option: DeallocationOption::Terminate, .. } | Target::Deleting => Some(Eviction::Terminate),
        Target::Manual { option: DeallocationOption::WaitForJobCompletion, .. } | Target::Auto { .. } => None,
    }
}

fn loss(standing: &NodeStanding) -> u8 {
    match standing {
        NodeStanding::Unusable => 0,
        NodeStanding::Allocating => 1,
        NodeStanding::Preparing => 2,
        NodeStanding::Idle => 3,
        NodeStanding::Busy(_) => 4,
        NodeStanding::Leaving | NodeStanding::Lost => 5,
    }
}
