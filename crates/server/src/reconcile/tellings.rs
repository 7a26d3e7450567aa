//! Tells nodes what they should be, when that may have changed and not otherwise: making a node's orders opens secrets and
//! looks at disks, and there are many nodes. Entered by a pass once its steps are durable, and by the simulation. Decides
//! who is told; a [`Voice`] makes the orders and carries them.
//!
//! What a node is told follows from four things: its record, its cluster's, its job's, and its job's goal. Records are never
//! changed in place, so comparing where they lie is enough. The state of shares is looked at when orders are made.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use corro_model::node::Goal;
use corro_model::state::NodeState;
use corro_model::{AttemptId, JobKey, NodeId};
use corro_store::{ClusterRecord, JobRecord, NodeRecord, State};

use super::orders::Orders;
use crate::gateway::{Gateway, News, Sighting};

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

/// Who speaks to nodes.
pub trait Voice<'a> {
    /// Cuts off a node of this epoch, which is no longer ours.
    fn fence(&mut self, id: &NodeId, epoch: u64, reason: &str);

    /// Tells a node what it should be. `false` when nothing new can be said.
    fn tell(&mut self, id: &NodeId, node: &'a NodeRecord, goal: Option<&Goal>) -> bool;
}

/// The voice of a server.
pub(super) struct Messenger<'a> {
    pub orders: Orders<'a>,
    pub gateway: &'a Gateway,
}

impl<'a> Voice<'a> for Messenger<'a> {
    fn fence(&mut self, id: &NodeId, epoch: u64, reason: &str) {
        self.gateway.fence(id, epoch, reason);
    }

    fn tell(&mut self, id: &NodeId, node: &'a NodeRecord, goal: Option<&Goal>) -> bool {
        let desired = self.orders.desired(id, node, goal);
        desired.map(|desired| self.gateway.publish(id, desired)).is_some()
    }
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
    pub fn tell<'a>(
        &mut self,
        voice: &mut impl Voice<'a>,
        state: &'a State,
        sightings: &BTreeMap<NodeId, Sighting>,
        all: bool,
    ) {
        let pending = std::mem::take(&mut self.pending);
        if all {
            self.forget_goals(state);
            self.told.retain(|node, _| sightings.contains_key(node));
            for (id, sighting) in sightings {
                self.tell_one(voice, state, id, sighting);
            }
            return;
        }
        // The goal of a job is news to all its nodes.
        let gangs: BTreeSet<&JobKey> = pending.iter().filter_map(|id| Some(job_of(state.nodes.get(id)?)?.0)).collect();
        let peers = gangs.into_iter().filter_map(|key| state.jobs.get(key)).flat_map(|job| job.state().nodes());
        let concerned: BTreeSet<&NodeId> = pending.iter().chain(peers).collect();
        for id in concerned {
            if let Some(sighting) = sightings.get(id) {
                self.tell_one(voice, state, id, sighting);
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

    fn tell_one<'a>(&mut self, voice: &mut impl Voice<'a>, state: &'a State, id: &NodeId, sighting: &Sighting) {
        let Some(node) = state.nodes.get(id) else {
            return voice.fence(id, sighting.epoch, "the node was removed from its cluster");
        };
        if node.epoch != sighting.epoch {
            return voice.fence(id, sighting.epoch, "the node was silent for too long and was declared lost");
        }
        let cluster = state.clusters.get(&node.cluster);
        let job = job_of(node).and_then(|(key, attempt)| Some((state.jobs.get(key)?, self.goals.get(attempt)?)));
        if self.told.get(id).is_some_and(|told| told.is_from(node, cluster, job)) {
            return;
        }
        if voice.tell(id, node, job.map(|(_, goal)| goal)) {
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use corro_model::batchai::BatchAiError;
    use corro_model::node::ObservedNode;

    use super::*;
    use crate::testing::*;

    /// What was said to whom, in order.
    #[derive(Default)]
    struct Ear(Vec<(NodeId, Option<Goal>)>);

    impl<'a> Voice<'a> for Ear {
        fn fence(&mut self, id: &NodeId, _: u64, _: &str) {
            panic!("{id} is one of ours");
        }

        fn tell(&mut self, id: &NodeId, node: &'a NodeRecord, goal: Option<&Goal>) -> bool {
            // As with orders: a busy node whose job has no goal keeps its last ones.
            let silent = matches!(node.state(), NodeState::Running { .. }) && goal.is_none();
            if !silent {
                self.0.push((id.clone(), goal.cloned()));
            }
            !silent
        }
    }

    #[test]
    fn nodes_are_told_once_and_never_what_was_meant_for_an_earlier_attempt() {
        let mut state = state(manual(2), 2);
        submit(&mut state, "a", 2, "PT1H");
        let seen = Sighting {
            epoch: 1,
            connected: true,
            silent_for: Duration::ZERO,
            observed: ObservedNode::default(),
            run_time: None,
        };
        let sightings: BTreeMap<_, _> = [1, 2].map(|index| (node_id(index), seen.clone())).into();
        let mut tellings = Tellings::default();
        let mut told = |state: &State, news: &[u32], goals: Vec<(AttemptId, Goal)>, all: bool| {
            let nodes = news.iter().map(|index| node_id(*index)).collect();
            tellings.note(&News { nodes, ..News::default() }, goals);
            let mut ear = Ear::default();
            tellings.tell(&mut ear, state, &sightings, all);
            ear.0
        };
        let attempt = |state: &State| state.jobs.get(&key("a")).expect("submitted").attempt();
        let both = |goal: Option<Goal>| [1, 2].map(|index| (node_id(index), goal.clone()));
        assert_eq!(told(&state, &[], vec![], true), both(None));
        start(&mut state, "a", &[1, 2]);
        let goals = vec![(attempt(&state), Goal::Prepare)];
        assert_eq!(told(&state, &[], goals.clone(), true), both(Some(Goal::Prepare)));
        assert_eq!(told(&state, &[1, 2], goals, true), []);
        // News of one node is an order to all of its gang.
        let stop = Goal::Stop { grace_ms: 1_000 };
        let goals = vec![(attempt(&state), stop.clone())];
        assert_eq!(told(&state, &[1], goals, false), both(Some(stop)));
        change(&mut state, |txn| {
            txn.requeue(&key("a"), BatchAiError::new("NodeLost", "gone"), NOW).expect("it runs");
        });
        start(&mut state, "a", &[1, 2]);
        assert_eq!(told(&state, &[], vec![], true), [], "nothing was decided about the second attempt yet");
    }
}
