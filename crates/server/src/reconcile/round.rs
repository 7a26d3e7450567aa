//! The pure half of a pass: from what is known and what is seen, the steps to commit and the goals of running jobs. Reads
//! no clock and talks to nobody, so that a simulation of a whole cluster drives the very code that a server runs.
//!
//! A pass looks either at everything, or only where something is new ([`Focus`]). Both decide the same: what is left out
//! was looked at before and cannot have changed but by time, for which everything is looked at every so often. What
//! follows from a pass's own steps is remembered by `attention`.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use corro_model::node::{GangAddress, Goal};
use corro_model::state::NodeState;
use corro_model::{AttemptId, JobKey, NodeId, Timestamp};
use corro_sched::Room;
use corro_store::{State, Timeline};

pub use super::nodes::leaving;
pub use super::steps::{Step, apply};
use super::{ReconcileConfig, deletion, hosts, jobs, nodes, scaling};
use crate::gateway::Sighting;
use crate::provider::Provider;

/// Where running gangs meet: told by the master before it runs, needed until the last node runs.
pub type Addresses = HashMap<AttemptId, GangAddress>;

/// All that one pass looks at.
pub struct Scene<'a> {
    pub state: &'a State,
    pub sightings: &'a BTreeMap<NodeId, Sighting>,
    /// The time, and the ages of stamps.
    pub clock: &'a Timeline,
    /// How long a node that was never heard has had the chance to speak.
    pub uptime: Duration,
    /// Leaving nodes of which nothing is left.
    pub gone: &'a BTreeSet<NodeId>,
    /// Accounts whose files are gone.
    pub emptied: &'a BTreeSet<String>,
    pub config: &'a ReconcileConfig,
    /// Asked whether agents live; it may look at processes and files.
    pub provider: &'a dyn Provider,
}

/// Where a pass looks.
#[derive(Clone, Copy)]
pub enum Focus<'a> {
    Everything,
    New {
        /// Nodes with news.
        nodes: &'a BTreeSet<NodeId>,
        /// Jobs that were changed, running or not.
        jobs: &'a BTreeSet<JobKey>,
        /// Was anything committed since the last pass?
        state: bool,
    },
}

/// What is to be committed. What becomes free by the end of a job is given to the next in the same breath.
pub fn decide(scene: &Scene, addresses: &mut Addresses) -> Vec<Step> {
    decide_in(scene, Focus::Everything, addresses).0
}

/// What the attempts of running jobs are to do next, by what is durable.
pub fn goals(
    state: &State,
    sightings: &BTreeMap<NodeId, Sighting>,
    clock: &Timeline,
    addresses: &mut Addresses,
) -> HashMap<AttemptId, Goal> {
    goals_in(state, Focus::Everything, sightings, clock, addresses).into_iter().collect()
}

/// Like [`decide`]; also gives the goals of the jobs that were looked at and go on.
pub fn decide_in(scene: &Scene, focus: Focus, addresses: &mut Addresses) -> (Vec<Step>, Vec<(AttemptId, Goal)>) {
    let Scene { state, sightings, clock, gone, emptied, .. } = *scene;
    let now = clock.now();
    let mut steps = match focus {
        Focus::Everything => nodes::decide(state.nodes.iter(), scene),
        Focus::New { nodes, .. } => {
            let known = nodes.iter().chain(gone).filter_map(|id| state.nodes.get_key_value(id));
            nodes::decide(known, scene)
        }
    };
    let (endings, goals) = jobs_in(state, focus, sightings, clock, addresses);
    // Nobody is given a job who is not there to take it, or who says that it can take none.
    let is_fit = |id: &NodeId| {
        let there = |sighting: &Sighting| sighting.is_there() && sighting.observed.problem.is_none();
        sightings.get(id).is_some_and(there) && hosts::may_work(state, id)
    };
    let nothing = steps.is_empty() && endings.is_empty() && emptied.is_empty();
    if let Focus::New { state: false, nodes, .. } = focus
        && nothing
    {
        let is_idle = |id: &NodeId| state.nodes.get(id).is_some_and(|node| *node.state() == NodeState::Idle);
        if !nodes.iter().any(|id| is_idle(id) && is_fit(id)) {
            return (steps, goals);
        }
    }
    // The plan is made for nodes that are free once the endings are true, so that one commit does for both. What else
    // happens to nodes is planned for when it has happened: that a node was lost must have been seen before it goes.
    let planned = |state: &State| {
        let rules = &scene.config.rules;
        let room = Room { cores: rules.cores, machines_join: !scene.provider.makes_nodes() };
        let mut view = scaling::view(state, clock, room);
        scaling::withhold(&mut view, is_fit);
        scaling::decide(state, &corro_sched::plan(&view, &rules.policy), rules, now)
    };
    let placements = if endings.is_empty() { planned(state) } else { planned(&rehearse(state, &endings, now)) };
    steps.extend(endings);
    steps.extend(deletion::decide(state, emptied, clock));
    steps.extend(placements);
    (steps, goals)
}

/// Like [`goals`], for the jobs in focus.
pub fn goals_in(
    state: &State,
    focus: Focus,
    sightings: &BTreeMap<NodeId, Sighting>,
    clock: &Timeline,
    addresses: &mut Addresses,
) -> Vec<(AttemptId, Goal)> {
    jobs_in(state, focus, sightings, clock, addresses).1
}

fn jobs_in(
    state: &State,
    focus: Focus,
    sightings: &BTreeMap<NodeId, Sighting>,
    clock: &Timeline,
    addresses: &mut Addresses,
) -> (Vec<Step>, Vec<(AttemptId, Goal)>) {
    let Focus::New { nodes, jobs, .. } = focus else {
        let decided = jobs::decide(state.active_jobs(), state, sightings, clock, addresses);
        let running: BTreeSet<AttemptId> = state.active_jobs().map(|(_, job)| job.attempt()).collect();
        addresses.retain(|attempt, _| running.contains(attempt));
        return decided;
    };
    let busy_with = |id: &NodeId| match state.nodes.get(id)?.state() {
        NodeState::Running { job, .. } => Some(job.clone()),
        _ => None,
    };
    let mut keys: BTreeSet<JobKey> = nodes.iter().filter_map(busy_with).collect();
    keys.extend(jobs.iter().cloned());
    let known = keys.iter().filter_map(|key| state.jobs.get_key_value(key));
    jobs::decide(known.filter(|(_, job)| !job.state().nodes().is_empty()), state, sightings, clock, addresses)
}

/// The state as the steps will make it. Nothing is said about it: it may still come otherwise.
fn rehearse(state: &State, steps: &[Step], now: Timestamp) -> State {
    let silent = tracing::subscriber::NoSubscriber::default();
    tracing::subscriber::with_default(silent, || state.after(|txn| apply(txn, steps.to_vec(), now)).0)
}

#[cfg(test)]
mod tests;
