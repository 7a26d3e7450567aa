//! The decisions of a pass: from the state and the observations to the steps to commit and the goals of running jobs. Pure: reads
//! no clock and does no I/O of its own, so that the simulation in `tests/simulation` runs the server's code.
//!
//! A pass is full or incremental ([`PassScope`]). Both must decide the same: what an incremental pass skips was examined before
//! and can have changed by time alone, which periodic full passes catch. `dirty_tracking` records what follows from a pass's own
//! steps.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use corro_model::node::Goal;
use corro_model::state::NodeState;
use corro_model::{AttemptId, JobKey, NodeId, Timestamp};
use corro_sched::RegionCapacity;
use corro_store::{State, Timeline};

use super::pass_input::{GangMemory, PassInput, PassScope};
use super::steps::{Step, apply};
use super::{dependencies, garbage_collection, jobs, nodes, scaling};
use crate::app::hosts::capacity::is_schedulable;
use crate::gateway::NodeObservation;
use crate::scheduler_view;

/// The steps to commit in a full pass. Nodes that a job frees are given to the next job in the same commit.
pub fn decide(input: &PassInput, memory: &mut GangMemory) -> Vec<Step> {
    decide_scoped(input, PassScope::Full, memory).0
}

/// The goals of the attempts of all running jobs, by the durable state.
pub fn goals(
    state: &State,
    observations: &BTreeMap<NodeId, NodeObservation>,
    clock: &Timeline,
    memory: &mut GangMemory,
) -> HashMap<AttemptId, Goal> {
    goals_scoped(state, PassScope::Full, observations, clock, memory).into_iter().collect()
}

/// Like [`decide`] for a scope; also returns the goals of the jobs in scope that continue.
pub fn decide_scoped(
    input: &PassInput,
    scope: PassScope,
    memory: &mut GangMemory,
) -> (Vec<Step>, Vec<(AttemptId, Goal)>) {
    let PassInput { state, observations, clock, gone, emptied, .. } = *input;
    let now = clock.now();
    let mut steps = match scope {
        PassScope::Full => nodes::decide(state.nodes.iter(), input),
        PassScope::Changed { nodes, .. } => {
            let known = nodes.iter().chain(gone).filter_map(|id| state.nodes.get_key_value(id));
            nodes::decide(known, input)
        }
    };
    let (endings, goals) = decide_jobs(state, scope, observations, clock, memory);
    // Jobs are placed only on connected nodes that report no problem and whose host is not cordoned.
    let is_fit = |id: &NodeId| {
        // A node that an elastic job has given back may get the same attempt again, once nothing of the first time is left.
        let is_left = |observation: &NodeObservation| {
            observation.observed.task.as_ref().is_some_and(|task| task.elastic.is_some())
        };
        let is_usable = |observation: &NodeObservation| {
            observation.is_available() && observation.observed.problem.is_none() && !is_left(observation)
        };
        observations.get(id).is_some_and(is_usable) && is_schedulable(state, id)
    };
    let nothing = steps.is_empty() && endings.is_empty() && emptied.is_empty();
    if let PassScope::Changed { state: false, nodes, .. } = scope
        && nothing
    {
        let is_idle = |id: &NodeId| state.nodes.get(id).is_some_and(|node| *node.state() == NodeState::Idle);
        if !nodes.iter().any(|id| is_idle(id) && is_fit(id)) {
            return (steps, goals);
        }
    }
    // Jobs that waited for a job that ends now are decided, and planned, in the same commit.
    let ended = (!endings.is_empty()).then(|| simulate(state, &endings, now));
    let after_endings = ended.as_ref().unwrap_or(state);
    let met = dependencies::decide(after_endings, now);
    let resolved = (!met.is_empty()).then(|| simulate(after_endings, &met, now));
    // The plan assumes that the decided endings have happened, so that one commit does both. Other node events are planned for
    // after they are committed: a node's loss must be recorded before the node is replaced.
    let plan_steps = |state: &State| {
        let rules = &input.config.scheduling;
        let capacity = RegionCapacity { cores: rules.cores, machines_join: !input.provider.creates_nodes() };
        let mut view = scheduler_view::view(state, clock, capacity);
        scheduler_view::mark_unavailable(&mut view, is_fit);
        scaling::decide(state, &corro_sched::plan(&view, &rules.policy), rules, now)
    };
    let placements = plan_steps(resolved.as_ref().unwrap_or(after_endings));
    steps.extend(endings);
    steps.extend(met);
    steps.extend(garbage_collection::decide(state, emptied, clock));
    steps.extend(placements);
    (steps, goals)
}

/// Like [`goals`] for the jobs in scope.
pub fn goals_scoped(
    state: &State,
    scope: PassScope,
    observations: &BTreeMap<NodeId, NodeObservation>,
    clock: &Timeline,
    memory: &mut GangMemory,
) -> Vec<(AttemptId, Goal)> {
    decide_jobs(state, scope, observations, clock, memory).1
}

fn decide_jobs(
    state: &State,
    scope: PassScope,
    observations: &BTreeMap<NodeId, NodeObservation>,
    clock: &Timeline,
    memory: &mut GangMemory,
) -> (Vec<Step>, Vec<(AttemptId, Goal)>) {
    let PassScope::Changed { nodes, jobs, .. } = scope else {
        let decided = jobs::decide(state.active_jobs(), state, observations, clock, memory);
        let running: BTreeSet<AttemptId> = state.active_jobs().map(|(_, job)| job.attempt()).collect();
        memory.retain(|attempt| running.contains(attempt));
        return decided;
    };
    let busy_with = |id: &NodeId| match state.nodes.get(id)?.state() {
        NodeState::Running { job, .. } => Some(job.clone()),
        _ => None,
    };
    let mut keys: BTreeSet<JobKey> = nodes.iter().filter_map(busy_with).collect();
    keys.extend(jobs.iter().cloned());
    let known = keys.iter().filter_map(|key| state.jobs.get_key_value(key));
    jobs::decide(known.filter(|(_, job)| !job.state().nodes().is_empty()), state, observations, clock, memory)
}

/// The state that results from the steps. Without log lines, since the steps are not committed yet.
fn simulate(state: &State, steps: &[Step], now: Timestamp) -> State {
    let silent = tracing::subscriber::NoSubscriber::default();
    tracing::subscriber::with_default(silent, || state.simulate(|txn| apply(txn, steps.to_vec(), now)).0)
}

#[cfg(test)]
mod tests;
