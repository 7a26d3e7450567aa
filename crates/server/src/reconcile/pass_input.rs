//! Inputs of a reconcile pass: the snapshot that it decides from, and the part of it that changed.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use corro_model::node::GangAddress;
use corro_model::{AttemptId, JobKey, NodeId};
use corro_store::{State, Timeline};

use super::ReconcileConfig;
use super::elastic::world::ElasticGang;
use crate::gateway::NodeObservation;
use crate::provider::Provider;

/// What the reconciler remembers of running attempts. A restarted server makes it again from reports.
#[derive(Clone, Debug, Default)]
pub struct GangMemory {
    /// Rendezvous addresses. The master reports its address once it is prepared; needed until all nodes run.
    pub addresses: HashMap<AttemptId, GangAddress>,
    /// Processes and generations of elastic attempts.
    pub elastic: HashMap<AttemptId, ElasticGang>,
}

impl GangMemory {
    pub fn retain(&mut self, is_running: impl Fn(&AttemptId) -> bool) {
        self.addresses.retain(|attempt, _| is_running(attempt));
        self.elastic.retain(|attempt, _| is_running(attempt));
    }
}

/// Everything that one pass decides from.
pub struct PassInput<'a> {
    pub state: &'a State,
    pub observations: &'a BTreeMap<NodeId, NodeObservation>,
    /// The time, and the ages of timestamps over clock jumps.
    pub clock: &'a Timeline,
    /// Uptime of the gateway: the time that a node not heard yet has had to connect.
    pub uptime: Duration,
    /// Retired nodes without any remains.
    pub gone: &'a BTreeSet<NodeId>,
    /// Deleted accounts whose files are removed.
    pub emptied: &'a BTreeSet<String>,
    pub config: &'a ReconcileConfig,
    /// Tells whether agents are alive; may look at processes and files.
    pub provider: &'a dyn Provider,
}

/// The part of the state that a pass examines.
#[derive(Clone, Copy)]
pub enum PassScope<'a> {
    Full,
    Changed {
        /// Nodes whose observation changed.
        nodes: &'a BTreeSet<NodeId>,
        /// Jobs whose record changed.
        jobs: &'a BTreeSet<JobKey>,
        /// Whether anything was committed since the last pass.
        state: bool,
    },
}
