//! Remembers what the last pass left to look at, so that a pass which looks only where something is new decides what one
//! that looks at everything would. Entered by the loop and by the simulation; pure, and never reads a clock: what changes
//! by time alone is found by looking at everything every so often.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use corro_model::state::NodeEvent;
use corro_model::{JobKey, NodeId};
use corro_store::{JobRecord, State};

use super::steps::Step;
use crate::gateway::Sighting;

pub struct Attention {
    /// The last state of which all consequences were drawn.
    known: Arc<State>,
    everything: bool,
}

/// What is left to decide when some steps are durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Left {
    /// The steps were decided together with what follows from them.
    Nothing,
    /// The state is another, and so may be the plan.
    State,
    /// Nodes are not what they were, which is not seen from the jobs they ran.
    Everything,
}

impl Attention {
    pub fn new(known: Arc<State>) -> Self {
        Self { known, everything: true }
    }

    /// Must the next pass look at everything, whatever the time?
    pub fn wants_everything(&self) -> bool {
        self.everything
    }

    pub fn has_changed(&self, state: &State) -> bool {
        self.known.revision != state.revision
    }

    /// Jobs that keep nodes busy and are not what they were.
    pub fn changed_jobs(&self, state: &State) -> BTreeSet<JobKey> {
        changed_jobs(&self.known, state)
    }

    /// A pass over `before` has left `after`. `left` is what its own steps leave; `alone` says that nobody else has
    /// changed anything meanwhile.
    pub fn turn(&mut self, before: Arc<State>, after: Arc<State>, left: Left, alone: bool) {
        self.everything = left == Left::Everything && before.revision != after.revision;
        self.known = if left == Left::Nothing && alone { after } else { before };
    }

    /// A pass failed, and what it should have done is not remembered.
    pub fn start_over(&mut self) {
        self.everything = true;
    }
}

/// Jobs that keep nodes busy and are not what they were.
pub fn changed_jobs(before: &State, after: &State) -> BTreeSet<JobKey> {
    if before.revision == after.revision {
        return BTreeSet::new();
    }
    let same = |key: &JobKey, job: &Arc<JobRecord>| before.jobs.get(key).is_some_and(|old| Arc::ptr_eq(old, job));
    after.active_jobs().filter(|(key, job)| !same(key, job)).map(|(key, _)| key.clone()).collect()
}

/// For steps that were decided from this state.
pub fn left_by(steps: &[Step], state: &State, sightings: &BTreeMap<NodeId, Sighting>) -> Left {
    steps.iter().map(|step| left_by_one(step, state, sightings)).max().unwrap_or(Left::Nothing)
}

fn left_by_one(step: &Step, state: &State, sightings: &BTreeMap<NodeId, Sighting>) -> Left {
    match step {
        Step::RemoveNode(_) | Step::Node(_, NodeEvent::Broken { .. }) => Left::Everything,
        Step::EndAttempt(key, _) | Step::Requeue(key, _) => {
            let Some(job) = state.jobs.get(key) else { return Left::State };
            // A busy node tells its problem by its task; once it is free it is given up.
            let troubled = |node: &NodeId| sightings.get(node).is_some_and(|seen| seen.observed.problem.is_some());
            let deleting = || {
                let cluster = state.clusters.get(&job.cluster);
                job.provisioning.is_deleting() || cluster.is_none_or(|cluster| cluster.provisioning.is_deleting())
            };
            match job.state().nodes().iter().any(troubled) {
                true => Left::Everything,
                // What takes its place was planned for; that it may be forgotten was not.
                false if deleting() => Left::State,
                false => Left::Nothing,
            }
        }
        Step::Place(..) => Left::Nothing,
        _ => Left::State,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use corro_model::batchai::{BatchAiError, ProvisioningState};
    use corro_model::node::ObservedNode;
    use corro_model::state::JobEvent;
    use corro_sched::Target;

    use super::*;
    use crate::testing::*;

    fn error() -> BatchAiError {
        BatchAiError::new("NodeLost", "gone")
    }

    #[test]
    fn what_follows_from_a_step_is_looked_at_again() {
        let mut state = state(manual(2), 2);
        submit(&mut state, "a", 1, "PT1H");
        submit(&mut state, "b", 1, "PT1H");
        submit(&mut state, "c", 1, "PT1H");
        start(&mut state, "a", &[1]);
        start(&mut state, "b", &[2]);
        change(&mut state, |txn| {
            txn.update::<JobRecord>(&key("b"), |job| job.provisioning.turn(ProvisioningState::Deleting, NOW));
        });
        let end = |name: &str| Step::EndAttempt(key(name), JobEvent::Succeeded { at: NOW });
        let target = Target::Manual { count: 2, option: Default::default() };
        let place = || Step::Place(key("c"), vec![node_id(1)], target);
        let broken = |lost| Step::Node(node_id(1), NodeEvent::Broken { error: error(), lost });
        let calm = BTreeMap::new();
        for (steps, left) in [
            (vec![], Left::Nothing),
            (vec![end("a"), place()], Left::Nothing),
            (vec![Step::Requeue(key("a"), error()), place()], Left::Nothing),
            (vec![end("a"), end("b")], Left::State),
            (vec![Step::Node(node_id(1), NodeEvent::Ready), place()], Left::State),
            (vec![Step::Terminate(key("a"))], Left::State),
            (vec![broken(true), place()], Left::Everything),
            (vec![broken(false)], Left::Everything),
            (vec![Step::RemoveNode(node_id(1)), Step::Terminate(key("a"))], Left::Everything),
        ] {
            assert_eq!(left_by(&steps, &state, &calm), left, "{steps:?}");
        }
        let observed = ObservedNode { problem: Some(error()), ..ObservedNode::default() };
        let seen = Sighting { epoch: 1, connected: true, silent_for: Duration::ZERO, observed, run_time: None };
        assert_eq!(left_by(&[end("a")], &state, &BTreeMap::from([(node_id(1), seen)])), Left::Everything);
    }

    #[test]
    fn what_others_changed_meanwhile_is_new_to_the_next_pass() {
        let mut now = state(manual(1), 1);
        let before = Arc::new(now.clone());
        let mut attention = Attention::new(before.clone());
        assert!(attention.wants_everything());
        submit(&mut now, "a", 1, "PT1H");
        let after = Arc::new(now);
        attention.turn(before.clone(), after.clone(), Left::Nothing, true);
        assert!(!attention.wants_everything() && !attention.has_changed(&after));
        attention.turn(before.clone(), after.clone(), Left::Nothing, false);
        assert!(attention.has_changed(&after));
        attention.turn(before.clone(), after.clone(), Left::State, true);
        assert!(attention.has_changed(&after) && !attention.wants_everything());
        attention.turn(before.clone(), after, Left::Everything, true);
        assert!(attention.wants_everything());
        // Steps that were refused would be refused again.
        attention.turn(before.clone(), before, Left::Everything, true);
        assert!(!attention.wants_everything());
    }
}
