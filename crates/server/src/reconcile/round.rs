//! The pure half of a pass: from what is known and what is seen, the steps to commit and the goals of running jobs. Reads
//! no clock and talks to nobody, so that a simulation of a whole cluster drives the very code that a server runs.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use corro_model::node::{GangAddress, Goal};
use corro_model::{AttemptId, JobKey, NodeId, Timestamp};
use corro_store::State;

pub use super::nodes::leaving;
pub use super::steps::{Step, apply};
use super::{ReconcileConfig, deletion, jobs, nodes, scaling};
use crate::gateway::Sighting;
use crate::provider::Provider;

/// Where running gangs meet: told by the master before it runs, needed until the last node runs.
pub type Addresses = HashMap<AttemptId, GangAddress>;

/// All that one pass looks at.
pub struct Scene<'a> {
    pub state: &'a State,
    pub sightings: &'a BTreeMap<NodeId, Sighting>,
    pub now: Timestamp,
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

/// What is to be committed.
pub fn decide(scene: &Scene, addresses: &mut Addresses) -> Vec<Step> {
    let Scene { state, sightings, now, uptime, gone, emptied, config, provider } = *scene;
    let plan = corro_sched::plan(&scaling::view(state, now), &scaling::POLICY);
    let mut steps = nodes::decide(state, sightings, uptime, now, gone, config, provider);
    steps.extend(jobs::decide(state, sightings, now, addresses).0);
    steps.extend(scaling::decide(state, &plan));
    steps.extend(deletion::decide(state, emptied, now));
    steps
}

/// What running jobs are to do next, by what is durable.
pub fn goals(
    state: &State,
    sightings: &BTreeMap<NodeId, Sighting>,
    now: Timestamp,
    addresses: &mut Addresses,
) -> HashMap<JobKey, Goal> {
    jobs::decide(state, sightings, now, addresses).1
}
