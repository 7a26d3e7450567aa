//! Turns the scheduler's plan into steps, and maintains the allocation state of clusters and the provisioning state of file servers.

use std::collections::HashSet;
use std::time::Duration;

use corro_model::batchai::{AllocationState, BatchAiError, ProvisioningState};
use corro_model::state::{NodeEvent, NodeState, Preemption, PreemptionCause};
use corro_model::{ClusterKey, NodeId, Timestamp};
use corro_sched::{Eviction, Plan, Resize, ResizeCause, Target};
use corro_store::{EvictionRecord, JobRecord, NodeRecord, State};

use super::steps::Step;
use crate::scheduler_view::{SchedulingConfig, target};

/// Grace period of a job when its cluster is scaled down.
const RESIZE_GRACE_MS: u64 = 5_000;

/// Error code of attempts that ended because a node was preempted.
pub const NODE_PREEMPTED: &str = "NodePreempted";

pub fn decide(state: &State, plan: &Plan, rules: &SchedulingConfig, now: Timestamp) -> Vec<Step> {
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
    steps.extend(plan.resize.iter().filter_map(|resize| {
        let target = target_of(&state.jobs.get(&resize.job)?.cluster)?;
        resize_step(state, resize, target, rules, now)
    }));
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

/// The step for a change of an elastic job. `None` if it was asked for these nodes before.
fn resize_step(
    state: &State,
    resize: &Resize,
    target: Target,
    rules: &SchedulingConfig,
    now: Timestamp,
) -> Option<Step> {
    let job = state.jobs.get(&resize.job)?;
    let n_nodes = |n: usize| format!("{n} node{}", if n == 1 { "" } else { "s" });
    let released = |node: &&NodeId| job.elastic().and_then(|elastic| elastic.release_of(node)).is_some();
    let timeout = rules.policy.release_timeout;
    let (by, reason) = match &resize.cause {
        ResizeCause::NodesIdle => {
            let were = if resize.add.len() == 1 { "was" } else { "were" };
            let message = format!("{} of the cluster {were} idle, and no job waited", n_nodes(resize.add.len()));
            let reason = BatchAiError::new("NodesIdle", message);
            return Some(Step::Grow(resize.job.clone(), resize.add.clone(), target, reason));
        }
        ResizeCause::GivesWay { to } => {
            let name = state.jobs.get(to).map_or_else(|| to.to_string(), |job| job.name.clone());
            let message = format!("The job gave {} back, on which {name} can start", n_nodes(resize.remove.len()));
            (now.plus(timeout), BatchAiError::new("GaveWay", message))
        }
        ResizeCause::ClusterResized => {
            (now.plus(timeout), BatchAiError::new("ClusterResized", "The job's cluster was made smaller"))
        }
        ResizeCause::Preempted => {
            let taken = |id: &NodeId| Some((id.clone(), *state.nodes.get(id)?.preempted()?));
            let taken: Vec<_> = resize.remove.iter().filter_map(taken).collect();
            let grace = taken.iter().map(|(_, preemption)| preemption.grace_ms).min().unwrap_or_default();
            let why = taken.first().map_or("", |(_, preemption)| preemption.cause.describe());
            let names = taken.iter().map(|(id, _)| id.as_str()).collect::<Vec<_>>().join(", ");
            let is_known = |node: &NodeId| {
                let release = job.elastic().and_then(|elastic| elastic.release_of(node));
                release.is_some_and(|release| release.reason.code == NODE_PREEMPTED)
            };
            if resize.remove.iter().all(is_known) {
                return None;
            }
            let by = now.plus(Duration::from_millis(grace));
            (by, BatchAiError::new(NODE_PREEMPTED, format!("Node {names} was preempted ({why})")))
        }
    };
    if resize.cause != ResizeCause::Preempted && resize.remove.iter().all(|node| released(&node)) {
        return None;
    }
    Some(Step::Release(resize.job.clone(), resize.remove.clone(), by, reason))
}

fn resized(job: &JobRecord, now: Timestamp) -> EvictionRecord {
    let message = "The job's cluster was made smaller with the option 'requeue': it waits again, and runs from its beginning with the same output directory";
    let reason = BatchAiError::new("ClusterResized", message);
    EvictionRecord { attempt: job.attempts, at: now, grace_ms: RESIZE_GRACE_MS, reason }
}

fn preempted(state: &State, job: &JobRecord, now: Timestamp) -> EvictionRecord {
    let taken = |id: &NodeId| Some((id.clone(), *state.nodes.get(id)?.preempted()?));
    let taken: Vec<(NodeId, Preemption)> = job.state().nodes().iter().filter_map(taken).collect();
    let names = taken.iter().map(|(id, _)| id.as_str()).collect::<Vec<_>>().join(", ");
    let why = taken.first().map_or("", |(_, preemption)| preemption.cause.describe());
    let low_priority = taken.iter().all(|(_, preemption)| preemption.cause.is_of_low_priority());
    let what = if low_priority { "Low-priority node" } else { "Node" };
    let grace_ms = taken.iter().map(|(_, preemption)| preemption.grace_ms).min().unwrap_or_default();
    let message = format!(
        "{what} {names} was preempted while the job ran on it ({why}): the job waits again, and runs from its beginning with the same output directory"
    );
    let error = BatchAiError::new(NODE_PREEMPTED, message);
    let reason = taken.iter().fold(error, |error, (id, _)| error.with("Node", id.as_str()));
    EvictionRecord { attempt: job.attempts, at: now, grace_ms, reason }
}

/// Clusters whose nodes the plan changes.
fn resizing_clusters<'a>(state: &'a State, plan: &'a Plan) -> HashSet<&'a ClusterKey> {
    let retired = plan.retire.iter().filter_map(|id| state.nodes.get(id)).map(|node| &node.cluster);
    let preempted = plan.preempt.iter().filter_map(|id| state.nodes.get(id)).map(|node| &node.cluster);
    let evicted = plan.evict.keys().filter_map(|job| state.jobs.get(job)).map(|job| &job.cluster);
    plan.allocate.iter().map(|(key, _)| key).chain(retired).chain(preempted).chain(evicted).collect()
}

#[cfg(test)]
mod tests;
