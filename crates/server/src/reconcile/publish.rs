//! Publishes desired states to nodes, only when they may have changed: building one decrypts secrets and looks at disks, and there
//! are many nodes. Decides which nodes get one; a [`DesiredStateSink`] builds and sends it.
//!
//! A desired state follows from four inputs: the records of the node, its cluster and its job, and the job's goal. Records are
//! immutable behind `Arc`s, so comparing pointers is enough. Shares are looked at when the state is built.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use corro_model::node::Goal;
use corro_model::state::NodeState;
use corro_model::{AttemptId, JobKey, NodeId};
use corro_store::{ClusterRecord, JobRecord, NodeRecord, State};

use super::desired_state::DesiredStateBuilder;
use crate::gateway::{ChangedNodes, Gateway, NodeObservation};

/// Goals of ended attempts that may be kept.
const MAX_ENDED_GOALS: usize = 100;

/// Remembers what was published to each node.
#[derive(Default)]
pub struct DesiredStatePublisher {
    /// Goal of every attempt that was decided about. Keyed by attempt, so that a goal never applies to the next attempt.
    goals: HashMap<AttemptId, Goal>,
    published: HashMap<NodeId, PublishedInputs>,
    /// Nodes to examine whatever the state says.
    pending: BTreeSet<NodeId>,
}

/// The inputs of a node's last desired state.
struct PublishedInputs {
    node: Arc<NodeRecord>,
    cluster: Option<Arc<ClusterRecord>>,
    job: Option<(Arc<JobRecord>, Goal)>,
}

/// Receiver of desired states: the gateway, or the simulation.
pub trait DesiredStateSink<'a> {
    /// Disconnects a node of this epoch, which no longer belongs to the server.
    fn fence(&mut self, id: &NodeId, epoch: u64, reason: &str);

    /// Builds and sends a node's desired state. `false` when none can be built now.
    fn publish(&mut self, id: &NodeId, node: &'a NodeRecord, goal: Option<&Goal>) -> bool;
}

/// Sends desired states through the gateway.
pub(super) struct GatewaySink<'a> {
    pub builder: DesiredStateBuilder<'a>,
    pub gateway: &'a Gateway,
}

impl<'a> DesiredStateSink<'a> for GatewaySink<'a> {
    fn fence(&mut self, id: &NodeId, epoch: u64, reason: &str) {
        self.gateway.fence(id, epoch, reason);
    }

    fn publish(&mut self, id: &NodeId, node: &'a NodeRecord, goal: Option<&Goal>) -> bool {
        let desired = self.builder.build(id, node, goal);
        desired.map(|desired| self.gateway.publish(id, desired)).is_some()
    }
}

impl DesiredStatePublisher {
    /// Records the changed nodes and the goals of a pass.
    pub fn record_changes(&mut self, changed: &ChangedNodes, goals: Vec<(AttemptId, Goal)>) {
        for node in &changed.reconnected {
            self.published.remove(node);
        }
        self.pending.extend(changed.nodes.iter().cloned());
        self.goals.extend(goals);
    }

    /// Publishes to the nodes whose desired state may have changed. Examines all nodes with `all`, else those with changes.
    pub fn publish<'a>(
        &mut self,
        sink: &mut impl DesiredStateSink<'a>,
        state: &'a State,
        observations: &BTreeMap<NodeId, NodeObservation>,
        all: bool,
    ) {
        let pending = std::mem::take(&mut self.pending);
        if all {
            self.drop_old_goals(state);
            self.published.retain(|node, _| observations.contains_key(node));
            for (id, observation) in observations {
                self.publish_node(sink, state, id, observation);
            }
            return;
        }
        // A changed node may change its job's goal, which concerns all nodes of the gang.
        let gangs: BTreeSet<&JobKey> =
            pending.iter().filter_map(|id| Some(attempt_of(state.nodes.get(id)?)?.0)).collect();
        let peers = gangs.into_iter().filter_map(|key| state.jobs.get(key)).flat_map(|job| job.state().nodes());
        let affected: BTreeSet<&NodeId> = pending.iter().chain(peers).collect();
        for id in affected {
            if let Some(observation) = observations.get(id) {
                self.publish_node(sink, state, id, observation);
            }
        }
    }

    /// Drops the goals of ended attempts once there are many. An old goal does no harm.
    fn drop_old_goals(&mut self, state: &State) {
        if self.goals.len() > 2 * state.active_jobs().count() + MAX_ENDED_GOALS {
            let running: HashSet<AttemptId> = state.active_jobs().map(|(_, job)| job.attempt()).collect();
            self.goals.retain(|attempt, _| running.contains(attempt));
        }
    }

    fn publish_node<'a>(
        &mut self,
        sink: &mut impl DesiredStateSink<'a>,
        state: &'a State,
        id: &NodeId,
        observation: &NodeObservation,
    ) {
        let Some(node) = state.nodes.get(id) else {
            return sink.fence(id, observation.epoch, "the node was removed from its cluster");
        };
        if node.epoch != observation.epoch {
            return sink.fence(id, observation.epoch, "the node was silent for too long and was declared lost");
        }
        let cluster = state.clusters.get(&node.cluster);
        let job = attempt_of(node).and_then(|(key, attempt)| Some((state.jobs.get(key)?, self.goals.get(attempt)?)));
        if self.published.get(id).is_some_and(|published| published.is_unchanged(node, cluster, job)) {
            return;
        }
        if sink.publish(id, node, job.map(|(_, goal)| goal)) {
            let job = job.map(|(job, goal)| (job.clone(), goal.clone()));
            self.published.insert(id.clone(), PublishedInputs { node: node.clone(), cluster: cluster.cloned(), job });
        }
    }
}

impl PublishedInputs {
    fn is_unchanged(
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

fn attempt_of(node: &NodeRecord) -> Option<(&JobKey, &AttemptId)> {
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

    /// Records what was published to which node, in order.
    #[derive(Default)]
    struct RecordingSink(Vec<(NodeId, Option<Goal>)>);

    impl<'a> DesiredStateSink<'a> for RecordingSink {
        fn fence(&mut self, id: &NodeId, _: u64, _: &str) {
            panic!("{id} must not be fenced");
        }

        fn publish(&mut self, id: &NodeId, node: &'a NodeRecord, goal: Option<&Goal>) -> bool {
            // Like `DesiredStateBuilder`: a busy node whose job has no goal keeps its last desired state.
            let unchanged = matches!(node.state(), NodeState::Running { .. }) && goal.is_none();
            if !unchanged {
                self.0.push((id.clone(), goal.cloned()));
            }
            !unchanged
        }
    }

    #[test]
    fn desired_states_are_published_once_and_never_for_an_earlier_attempt() {
        let mut state = state(manual(2), 2);
        submit(&mut state, "a", 2, "PT1H");
        let observation = NodeObservation {
            epoch: 1,
            connected: true,
            silent_for: Duration::ZERO,
            observed: ObservedNode::default(),
            run_time: None,
        };
        let observations: BTreeMap<_, _> = [1, 2].map(|index| (node_id(index), observation.clone())).into();
        let mut publisher = DesiredStatePublisher::default();
        let mut published = |state: &State, changed: &[u32], goals: Vec<(AttemptId, Goal)>, all: bool| {
            let nodes = changed.iter().map(|index| node_id(*index)).collect();
            publisher.record_changes(&ChangedNodes { nodes, ..ChangedNodes::default() }, goals);
            let mut sink = RecordingSink::default();
            publisher.publish(&mut sink, state, &observations, all);
            sink.0
        };
        let attempt = |state: &State| state.jobs.get(&key("a")).expect("submitted").attempt();
        let both = |goal: Option<Goal>| [1, 2].map(|index| (node_id(index), goal.clone()));
        assert_eq!(published(&state, &[], vec![], true), both(None));
        start(&mut state, "a", &[1, 2]);
        let goals = vec![(attempt(&state), Goal::Prepare)];
        assert_eq!(published(&state, &[], goals.clone(), true), both(Some(Goal::Prepare)));
        assert_eq!(published(&state, &[1, 2], goals, true), []);
        // A change of one node concerns its whole gang.
        let stop = Goal::Stop { grace_ms: 1_000 };
        let goals = vec![(attempt(&state), stop.clone())];
        assert_eq!(published(&state, &[1], goals, false), both(Some(stop)));
        change(&mut state, |txn| {
            txn.requeue(&key("a"), BatchAiError::new("NodeLost", "gone"), NOW).expect("it runs");
        });
        start(&mut state, "a", &[1, 2]);
        assert_eq!(published(&state, &[], vec![], true), [], "nothing was decided about the second attempt yet");
    }
}
