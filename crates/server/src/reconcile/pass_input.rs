//! Inputs of a reconcile pass: the snapshot that it decides from, and the part of it that changed.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use corro_model::node::GangAddress;
use corro_model::{AttemptId, JobKey, NodeId};
use corro_store::{State, Timeline};

use super::ReconcileConfig;
use crate::gateway::NodeObservation;
use crate::provider::Provider;

/// Where running gangs meet: told by the master before it runs, needed until the last node runs.
pub type GangAddresses = HashMap<AttemptId, GangAddress>;

/// All that one pass looks at.
pub struct PassInput<'a> {
    pub state: &'a State,
    pub observations: &'a BTreeMap<NodeId, NodeObservation>,
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
pub enum PassScope<'a> {
    Full,
    Changed {
        /// Nodes with news.
        nodes: &'a BTreeSet<NodeId>,
        /// Jobs that were changed, running or not.
        jobs: &'a BTreeSet<JobKey>,
        /// Was anything committed since the last pass?
        state: bool,
    },
}
