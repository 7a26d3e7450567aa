//! Divides the cores of a region among its clusters, and preempts low-priority nodes. Dedicated clusters come first.
//! Low-priority clusters get the rest and lose it again when a dedicated cluster needs it. If machines join on their
//! own, a dedicated node that gets no machine takes the machine of a low-priority node.
//!
//! Never preempts more than is missing after departing nodes are counted, and never a dedicated node.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashSet};

use corro_model::NodeId;

use crate::Policy;
use crate::elastic::ElasticPool;
use crate::scale::{Scaling, preemption_cost};
use crate::view::{ClusterView, NodeAvailability, NodeView, Snapshot};

/// Reduces the requested nodes to the capacity of each region; returns the low-priority nodes to preempt.
pub fn allocate_and_preempt<'a>(
    snapshot: &'a Snapshot<'a>,
    scalings: &mut [Scaling<'a>],
    policy: &Policy,
) -> Vec<NodeId> {
    let mut victims = BTreeSet::new();
    if scalings.iter().any(|scaling| scaling.allocate > 0) {
        let regions: BTreeSet<&str> = snapshot.clusters.iter().map(|cluster| cluster.region).collect();
        for region in regions {
            allocate_cores(snapshot, region, scalings, &mut victims);
        }
    }
    if snapshot.capacity.machines_join {
        preempt_for_machines(snapshot, scalings, policy, &mut victims);
    }
    victims.into_iter().cloned().collect()
}

fn allocate_cores<'a>(
    snapshot: &'a Snapshot<'a>,
    region: &str,
    scalings: &mut [Scaling<'a>],
    victims: &mut BTreeSet<&'a NodeId>,
) {
    let in_region = |cluster: &ClusterView| cluster.region == region;
    let used: u64 = snapshot
        .clusters
        .iter()
        .filter(|c| in_region(c))
        .map(|cluster| cluster.cores * cluster.nodes.len() as u64)
        .sum();
    let mut free = snapshot.capacity.cores.saturating_sub(used);
    let mut missing = 0;
    for (cluster, scaling) in
        snapshot.clusters.iter().zip(&mut *scalings).filter(|(c, _)| in_region(c) && !c.low_priority)
    {
        grant_nodes(cluster, scaling, &mut free);
        missing += scaling.shortfall as u64 * cluster.cores;
    }
    if missing > 0 {
        let back: u64 =
            pairs(snapshot, scalings).filter(|(c, _)| in_region(c)).map(|(c, s)| c.cores * count_departing(c, s)).sum();
        let mut still = missing.saturating_sub(back + free);
        for (cluster, node) in preemption_candidates(snapshot, scalings, in_region) {
            if still == 0 {
                break;
            }
            still = still.saturating_sub(cluster.cores);
            victims.insert(node.id);
        }
        // Free and departing cores are reserved for the dedicated clusters.
        free = 0;
    }
    for (cluster, scaling) in snapshot.clusters.iter().zip(scalings).filter(|(c, _)| in_region(c) && c.low_priority) {
        grant_nodes(cluster, scaling, &mut free);
    }
}

/// Grants as many requested nodes as fit into `free` cores.
fn grant_nodes(cluster: &ClusterView, scaling: &mut Scaling, free: &mut u64) {
    let fit = match cluster.cores {
        0 => scaling.allocate,
        cores => scaling.allocate.min(usize::try_from(*free / cores).unwrap_or(usize::MAX)),
    };
    scaling.shortfall = scaling.allocate - fit;
    scaling.allocate = fit;
    *free -= fit as u64 * cluster.cores;
}

/// Selects one machine for each dedicated node that has waited for one longer than `reclaim_after`.
fn preempt_for_machines<'a>(
    snapshot: &'a Snapshot<'a>,
    scalings: &[Scaling<'a>],
    policy: &Policy,
    victims: &mut BTreeSet<&'a NodeId>,
) {
    let waits = |node: &&NodeView| {
        node.availability == NodeAvailability::Allocating && snapshot.now.since(node.since) >= policy.reclaim_after
    };
    let dedicated = snapshot.clusters.iter().filter(|cluster| !cluster.low_priority);
    let waiting: usize = dedicated.map(|cluster| cluster.nodes.iter().filter(waits).count()).sum();
    if waiting == 0 {
        return;
    }
    let back: u64 = pairs(snapshot, scalings).map(|(cluster, scaling)| count_departing(cluster, scaling)).sum();
    let missing = waiting.saturating_sub(back as usize + victims.len());
    // A node that is still allocating has no machine to release.
    let holders = preemption_candidates(snapshot, scalings, |_| true);
    let holders = holders.into_iter().filter(|(_, node)| node.availability != NodeAvailability::Allocating);
    let more: Vec<_> = holders.map(|(_, node)| node.id).filter(|id| !victims.contains(*id)).take(missing).collect();
    victims.extend(more);
}

fn pairs<'s, 'a>(
    snapshot: &'a Snapshot<'a>,
    scalings: &'s [Scaling<'a>],
) -> impl Iterator<Item = (&'a ClusterView<'a>, &'s Scaling<'a>)> {
    snapshot.clusters.iter().zip(scalings)
}

/// Nodes that are leaving and will soon release their cores.
fn count_departing(cluster: &ClusterView, scaling: &Scaling) -> u64 {
    let evicted: BTreeSet<&NodeId> = scaling.evict.iter().map(|(node, _)| node.id).collect();
    let retired: BTreeSet<&NodeId> = scaling.retire.iter().copied().collect();
    let goes = |node: &&NodeView| {
        node.availability == NodeAvailability::Leaving || retired.contains(node.id) || evicted.contains(node.id)
    };
    cluster.nodes.iter().filter(goes).count() as u64
}

/// Low-priority nodes that may be preempted, cheapest first. Among busy nodes those with the shortest run come first,
/// and a gang's nodes are adjacent. Nodes above the minimum of an elastic job come before those of other jobs.
fn preemption_candidates<'a>(
    snapshot: &'a Snapshot<'a>,
    scalings: &[Scaling<'a>],
    in_region: impl Fn(&ClusterView) -> bool,
) -> Vec<(&'a ClusterView<'a>, &'a NodeView<'a>)> {
    let (mut found, mut surplus) = (Vec::new(), HashSet::new());
    for (cluster, scaling) in
        pairs(snapshot, scalings).filter(|(cluster, _)| cluster.low_priority && in_region(cluster))
    {
        let goes: BTreeSet<&NodeId> = scaling.evict.iter().map(|(node, _)| node.id).collect();
        let stays = |node: &&NodeView| match node.availability {
            NodeAvailability::Leaving | NodeAvailability::Lost => false,
            // A node that would leave after its job may be preempted before.
            NodeAvailability::Busy(_) => !goes.contains(node.id) && !node.preempted,
            _ => !scaling.leaving.contains(node.id),
        };
        found.extend(cluster.nodes.iter().filter(stays).map(|node| (cluster, node)));
        surplus.extend(ElasticPool::new(cluster, &scaling.leaving).surplus_nodes());
    }
    found.sort_by_key(|(cluster, node)| {
        let job = match node.availability {
            NodeAvailability::Busy(job) => Some(job),
            _ => None,
        };
        let is_kept = !surplus.contains(node.id);
        let cost = (preemption_cost(node.availability), node.releasing.is_none(), is_kept);
        (cost, Reverse(node.since), job, cluster.key, Reverse(node.index))
    });
    found
}
