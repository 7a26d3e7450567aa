//! Tells nodes what they should be, when that may have changed and not otherwise: making a node's orders opens secrets and
//! looks at disks, and there are many nodes. Entered by a pass once its steps are durable.
//!
//! What a node is told follows from four things: its record, its cluster's, its job's, and its job's goal. Records are never
//! changed in place, so comparing where they lie is enough. The state of shares is looked at when orders are made.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use corro_model::node::Goal;
use corro_model::state::NodeState;
use corro_model::{AttemptId, JobKey, NodeId};
use corro_store::{ClusterRecord, JobRecord, NodeRecord, State};

use super::ReconcileConfig;
use super::orders::Orders;
use crate::app::App;
use crate::gateway::{Gateway, News, Sighting};
use crate::provider::Provider;

const SPARE_GOALS: usize = 100;

#[derive(Default)]
pub struct Tellings {
    /// Of every attempt that runs and was decided about. What was meant for one is never said of the next.
    goals: HashMap<AttemptId, Goal>,
    told: HashMap<NodeId, Told>,
    /// Nodes that may have to be told something, whatever the state says.
    pending: BTreeSet<NodeId>,
}

/// What a node's last orders were made from.
struct Told {
    node: Arc<NodeRecord>,
    cluster: Option<Arc<ClusterRecord>>,
    job: Option<(Arc<JobRecord>, Goal)>,
}

pub struct Context<'a> {
    pub app: &'a App,
    pub config: &'a ReconcileConfig,
    pub provider: &'a dyn Provider,
    pub gateway: &'a Gateway,
}

impl Tellings {
    /// Takes in what a pass found out.
    pub fn note(&mut self, news: &News, goals: Vec<(AttemptId, Goal)>) {
        for node in &news.attached {
            self.told.remove(node);
        }
        self.pending.extend(news.nodes.iter().cloned());
        self.goals.extend(goals);
    }

    /// Tells those nodes whose orders may have changed; looks at all of them with `all`, else where there was news.
    pub fn tell(&mut self, context: &Context, state: &State, sightings: &BTreeMap<NodeId, Sighting>, all: bool) {
        let pending = std::mem::take(&mut self.pending);
        let mut orders = Orders::new(context.app, context.config, context.provider, state);
        if all {
            self.forget_goals(state);
            self.told.retain(|node, _| sightings.contains_key(node));
            for (id, sighting) in sightings {
                self.tell_one(context.gateway, &mut orders, state, id, sighting);
            }
            return;
        }
        // The goal of a job is news to all its nodes.
        let gangs: BTreeSet<&JobKey> = pending.iter().filter_map(|id| Some(job_of(state.nodes.get(id)?)?.0)).collect();
        let peers = gangs.into_iter().filter_map(|key| state.jobs.get(key)).flat_map(|job| job.state().nodes());
        let concerned: BTreeSet<&NodeId> = pending.iter().chain(peers).collect();
        for id in concerned {
            if let Some(sighting) = sightings.get(id) {
                self.tell_one(context.gateway, &mut orders, state, id, sighting);
            }
        }
    }

    /// Those of attempts that are over, once they are many: a goal is found by its attempt, so an old one does no harm.
    fn forget_goals(&mut self, state: &State) {
        if self.goals.len() > 2 * state.active_jobs().count() + SPARE_GOALS {
            let running: HashSet<AttemptId> = state.active_jobs().map(|(_, job)| job.attempt()).collect();
            self.goals.retain(|attempt, _| running.contains(attempt));
        }
    }

    fn tell_one<'a>(
        &mut self,
        gateway: &Gateway,
        orders: &mut Orders<'a>,
        state: &'a State,
        id: &NodeId,
        sighting: &Sighting,
    ) {
        let Some(node) = state.nodes.get(id) else {
            return gateway.fence(id, sighting.epoch, "the node was removed from its cluster");
        };
        if node.epoch != sighting.epoch {
            return gateway.fence(id, sighting.epoch, "the node was silent for too long and was declared lost");
        }
        let cluster = state.clusters.get(&node.cluster);
        let job = job_of(node).and_then(|(key, attempt)| Some((state.jobs.get(key)?, self.goals.get(attempt)?)));
        if self.told.get(id).is_some_and(|told| told.is_from(node, cluster, job)) {
            return;
        }
        if let Some(desired) = orders.desired(id, node, job.map(|(_, goal)| goal)) {
            gateway.publish(id, desired);
            let job = job.map(|(job, goal)| (job.clone(), goal.clone()));
            self.told.insert(id.clone(), Told { node: node.clone(), cluster: cluster.cloned(), job });
        }
    }
}

impl Told {
    fn is_from(
        &self,
        node: &Arc<NodeRecord>,
        cluster: Option<&Arc<ClusterRecord>>,
        job: Option<(&Arc<JobRecord>, &Goal)>,
    ) -> bool {
        let same_cluster = match (&self.cluster, cluster) {
            (Some(old), Some(new)) => Arc::ptr_eq(old, new),
            (old, new) => old.is_none() && new.is_none(),
        };
        let same_job = match (&self.job, job) {
            (Some((old, old_goal)), Some((new, goal))) => Arc::ptr_eq(old, new) && old_goal == goal,
            (old, new) => old.is_none() && new.is_none(),
        };
        Arc::ptr_eq(&self.node, node) && same_cluster && same_job
    }
}

fn job_of(node: &NodeRecord) -> Option<(&JobKey, &AttemptId)> {
    match node.state() {
        NodeState::Running { job, attempt } => Some((job, attempt)),
        _ => None,
    }
}
