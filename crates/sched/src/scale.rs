//! Node count of one cluster: how many nodes to add, which to release, and which jobs to evict first. An autoScale
//! cluster grows with demand at once, shrinks only after nodes have been idle for a while, and never takes a node from
//! a job.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashSet};

use corro_model::batchai::{DeallocationOption, Priority};
use corro_model::{JobKey, NodeId, Timestamp};

use crate::Policy;
use crate::elastic::ElasticPool;
use crate::plan::{Eviction, Plan, Resize, ResizeCause};
use crate::view::{ClusterView, NodeAvailability, NodeView, Target};

/// Scaling decision for the nodes of one cluster.
#[derive(Default)]
pub struct Scaling<'a> {
    /// Number of new nodes to request.
    pub allocate: usize,
    /// Further nodes that the cluster should have but for which the region has no cores.
    pub shortfall: usize,
    /// Nodes that accept no further job, busy ones included.
    pub leaving: HashSet<&'a NodeId>,
    /// Leaving nodes to release now.
    pub retire: Vec<&'a NodeId>,
    /// Busy leaving nodes whose jobs must be evicted first.
    pub evict: Vec<(&'a NodeView<'a>, Eviction)>,
    /// Busy leaving nodes that stay until their jobs end. Elastic jobs give them up at once.
    pub shrink: Vec<&'a NodeView<'a>>,
}

pub fn plan_scale<'a>(cluster: &'a ClusterView<'a>, now: Timestamp, policy: &Policy) -> Scaling<'a> {
    let mut scaling = Scaling::default();
    let mut live: Vec<&NodeView> = Vec::with_capacity(cluster.nodes.len());
    for node in &cluster.nodes {
        match node.availability {
            NodeAvailability::Leaving => {}
            // A lost node is replaced: it leaves and does not count.
            NodeAvailability::Lost => {
                scaling.leaving.insert(node.id);
                scaling.retire.push(node.id);
            }
            // A preempted node is replaced as well, after its job was evicted.
            availability if node.preempted => {
                scaling.leaving.insert(node.id);
                match availability {
                    NodeAvailability::Busy(_) => scaling.evict.push((node, Eviction::Preempt)),
                    _ => scaling.retire.push(node.id),
                }
            }
            _ => live.push(node),
        }
    }
    let wanted = wanted_nodes(cluster, &live);
    scaling.allocate = wanted.saturating_sub(live.len());
    let mut excess = live.len().saturating_sub(wanted);
    if excess == 0 {
        return scaling;
    }
    // Nodes beyond the maximum go at once. Nodes that are merely not needed go only after the idle timeout.
    let surplus = ElasticPool::new(cluster, &scaling.leaving).surplus_nodes();
    let mut at_once = live.len().saturating_sub(max_nodes(cluster.target));
    // Cheapest to preempt first; then what elastic jobs give back already, and their surplus; among equals the youngest.
    live.sort_by_key(|node| {
        let is_kept = !surplus.contains(node.id);
        (preemption_cost(node.availability), node.releasing.is_none(), is_kept, Reverse(node.index))
    });
    for node in live {
        if excess == 0 {
            break;
        }
        if at_once == 0 && !is_unused(node, now, policy) {
            continue;
        }
        excess -= 1;
        at_once = at_once.saturating_sub(1);
        scaling.leaving.insert(node.id);
        match (node.availability, eviction(cluster.target)) {
            (NodeAvailability::Busy(_), Some(how)) => scaling.evict.push((node, how)),
            (NodeAvailability::Busy(_), None) => scaling.shrink.push(node),
            _ => scaling.retire.push(node.id),
        }
    }
    scaling
}

impl Scaling<'_> {
    pub fn add_to(&self, cluster: &ClusterView, plan: &mut Plan) {
        let elastic = ElasticPool::new(cluster, &self.leaving);
        if self.allocate > 0 {
            plan.allocate.push((cluster.key.clone(), self.allocate));
        }
        plan.retire.extend(self.retire.iter().map(|id| (*id).clone()));
        let mut smaller: BTreeMap<&JobKey, (Vec<NodeId>, ResizeCause)> = BTreeMap::new();
        let evict = self.evict.iter().map(|(node, how)| (*node, Some(*how)));
        for (node, how) in evict.chain(self.shrink.iter().map(|node| (*node, None))) {
            let NodeAvailability::Busy(job) = node.availability else { continue };
            if cluster.target != Target::Deleting && elastic.survives(job) {
                let cause = match how {
                    Some(Eviction::Preempt) => ResizeCause::Preempted,
                    _ => ResizeCause::ClusterResized,
                };
                // A preemption has its own grace period, whatever the node was to be given back for before.
                if node.releasing.is_none() || cause == ResizeCause::Preempted {
                    let (nodes, of_all) = smaller.entry(job).or_insert_with(|| (Vec::new(), cause.clone()));
                    nodes.push(node.id.clone());
                    if cause == ResizeCause::Preempted {
                        *of_all = cause;
                    }
                }
            } else if let Some(how) = how {
                let wanted = plan.evict.entry(job.clone()).or_insert(how);
                *wanted = (*wanted).max(how);
            }
        }
        plan.resize.extend(smaller.into_iter().map(|(job, (remove, cause))| Resize {
            job: job.clone(),
            add: Vec::new(),
            remove,
            cause,
        }));
        if cluster.target == Target::Deleting {
            let all = [Priority::High, Priority::Normal, Priority::Low];
            let queued = all.into_iter().flat_map(|priority| cluster.jobs.waiting(priority)).map(|job| job.key);
            let jobs = cluster.jobs.running().map(|job| job.key).chain(queued);
            plan.evict.extend(jobs.map(|job| (job.clone(), Eviction::Terminate)));
        }
    }
}

/// Largest node count that the cluster's scale settings allow.
pub fn max_nodes(target: Target) -> usize {
    match target {
        Target::Manual { count, .. } => count,
        Target::Auto { max, .. } => max,
        Target::Deleting => 0,
    }
}

fn wanted_nodes(cluster: &ClusterView, live: &[&NodeView]) -> usize {
    match cluster.target {
        Target::Manual { count, .. } => count,
        // Validation refuses contradictory bounds. `clamp` would panic on them, so `max` and `min` are chained.
        Target::Auto { min, max } => demand(cluster, live, max).max(cluster.initial).max(min).min(max),
        Target::Deleting => 0,
    }
}

/// Nodes that running and queued jobs need, counted up to `max`.
fn demand(cluster: &ClusterView, live: &[&NodeView], max: usize) -> usize {
    let mut demand = live.iter().filter(|node| matches!(node.availability, NodeAvailability::Busy(_))).count();
    let all = [Priority::High, Priority::Normal, Priority::Low];
    for job in all.into_iter().flat_map(|priority| cluster.jobs.waiting(priority)) {
        if demand >= max {
            break;
        }
        if job.node_count <= max {
            demand += job.demand(max);
        }
    }
    demand + missing_in_elastic_jobs(cluster)
}

/// Nodes that running elastic jobs have fewer than they asked for.
fn missing_in_elastic_jobs(cluster: &ClusterView) -> usize {
    let elastic = cluster.jobs.elastic().filter_map(|job| job.elastic);
    elastic.map(|elastic| elastic.range.asked.saturating_sub(elastic.nodes.len())).sum()
}

/// Whether an autoScale cluster may release a node that it does not need now. A preparing node must become idle first,
/// since preparation may take long.
fn is_unused(node: &NodeView, now: Timestamp, policy: &Policy) -> bool {
    let stood = now.since(node.since);
    match node.availability {
        NodeAvailability::Idle | NodeAvailability::Unusable => stood >= policy.idle_timeout,
        NodeAvailability::Allocating => stood >= policy.node_start_timeout,
        NodeAvailability::Preparing | NodeAvailability::Busy(_) => false,
        NodeAvailability::Leaving | NodeAvailability::Lost => true,
    }
}

fn eviction(target: Target) -> Option<Eviction> {
    match target {
        Target::Manual { option: DeallocationOption::Requeue, .. } => Some(Eviction::Requeue),
        Target::Manual { option: DeallocationOption::Terminate, .. } | Target::Deleting => Some(Eviction::Terminate),
        Target::Manual { option: DeallocationOption::WaitForJobCompletion, .. } | Target::Auto { .. } => None,
    }
}

pub(crate) fn preemption_cost(availability: NodeAvailability) -> u8 {
    match availability {
        NodeAvailability::Unusable => 0,
        NodeAvailability::Allocating => 1,
        NodeAvailability::Preparing => 2,
        NodeAvailability::Idle => 3,
        NodeAvailability::Busy(_) => 4,
        NodeAvailability::Leaving | NodeAvailability::Lost => 5,
    }
}
