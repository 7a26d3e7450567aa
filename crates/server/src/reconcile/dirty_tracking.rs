//! Remembers what the last pass left to look at, so that a pass which looks only where something is new decides what one
//! that looks at everything would. Entered by the loop and by the simulation; pure, and never reads a clock: what changes
//! by time alone is found by looking at everything every so often.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use corro_model::state::NodeEvent;
use corro_model::{JobKey, NodeId};
use corro_store::{JobRecord, State};

use super::steps::Step;
use crate::gateway::NodeObservation;

pub struct DirtyTracker {
    /// The last state of which all consequences were drawn.
    processed: Arc<State>,
    needs_full: bool,
}

/// What is left to decide when some steps are durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FollowUp {
    /// The steps were decided together with what follows from them.
    None,
    /// The state is another, and so may be the plan.
    Replan,
    /// Nodes are not what they were, which is not seen from the jobs they ran.
    FullPass,
}

impl DirtyTracker {
    pub fn new(processed: Arc<State>) -> Self {
        Self { processed, needs_full: true }
    }

    /// Must the next pass look at everything, whatever the time?
    pub fn needs_full_pass(&self) -> bool {
        self.needs_full
    }

    pub fn has_changed(&self, state: &State) -> bool {
        self.processed.revision != state.revision
    }

    /// Jobs that keep nodes busy and are not what they were.
    pub fn changed_jobs(&self, state: &State) -> BTreeSet<JobKey> {
        changed_jobs(&self.processed, state)
    }

    /// A pass over `before` has left `after`. `follow_up` is what its own steps leave; `sole_writer` says that nobody else has
    /// changed anything meanwhile.
    pub fn finish_pass(&mut self, before: Arc<State>, after: Arc<State>, follow_up: FollowUp, sole_writer: bool) {
        self.needs_full = follow_up == FollowUp::FullPass && before.revision != after.revision;
        self.processed = if follow_up == FollowUp::None && sole_writer { after } else { before };
    }

    /// A pass failed, and what it should have done is not remembered.
    pub fn require_full_pass(&mut self) {
        self.needs_full = true;
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
pub fn follow_up_of(steps: &[Step], state: &State, observations: &BTreeMap<NodeId, NodeObservation>) -> FollowUp {
    steps.iter().map(|step| follow_up_of_step(step, state, observations)).max().unwrap_or(FollowUp::None)
}

fn follow_up_of_step(step: &Step, state: &State, observations: &BTreeMap<NodeId, NodeObservation>) -> FollowUp {
    match step {
        Step::RemoveNode(_) | Step::Node(_, NodeEvent::Broken { .. }) => FollowUp::FullPass,
        Step::EndAttempt(key, _) | Step::Requeue(key, _) => {
            let Some(job) = state.jobs.get(key) else { return FollowUp::Replan };
            // A busy node tells its problem by its task; once it is free it is given up.
            let has_problem = |node: &NodeId| {
                observations.get(node).is_some_and(|observation| observation.observed.problem.is_some())
            };
            let deleting = || {
                let cluster = state.clusters.get(&job.cluster);
                job.provisioning.is_deleting() || cluster.is_none_or(|cluster| cluster.provisioning.is_deleting())
            };
            match job.state().nodes().iter().any(has_problem) {
                true => FollowUp::FullPass,
                // What takes its place was planned for; that it may be forgotten was not.
                false if deleting() => FollowUp::Replan,
                false => FollowUp::None,
            }
        }
        Step::Place(..) => FollowUp::None,
        _ => FollowUp::Replan,
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
    fn follow_ups_of_steps() {
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
        let no_observations = BTreeMap::new();
        for (steps, follow_up) in [
            (vec![], FollowUp::None),
            (vec![end("a"), place()], FollowUp::None),
            (vec![Step::Requeue(key("a"), error()), place()], FollowUp::None),
            (vec![end("a"), end("b")], FollowUp::Replan),
            (vec![Step::Node(node_id(1), NodeEvent::Ready), place()], FollowUp::Replan),
            (vec![Step::Terminate(key("a"))], FollowUp::Replan),
            (vec![broken(true), place()], FollowUp::FullPass),
            (vec![broken(false)], FollowUp::FullPass),
            (vec![Step::RemoveNode(node_id(1)), Step::Terminate(key("a"))], FollowUp::FullPass),
        ] {
            assert_eq!(follow_up_of(&steps, &state, &no_observations), follow_up, "{steps:?}");
        }
        let observed = ObservedNode { problem: Some(error()), ..ObservedNode::default() };
        let observation =
            NodeObservation { epoch: 1, connected: true, silent_for: Duration::ZERO, observed, run_time: None };
        assert_eq!(follow_up_of(&[end("a")], &state, &BTreeMap::from([(node_id(1), observation)])), FollowUp::FullPass);
    }

    #[test]
    fn concurrent_commits_are_new_to_the_next_pass() {
        let mut now = state(manual(1), 1);
        let before = Arc::new(now.clone());
        let mut dirty = DirtyTracker::new(before.clone());
        assert!(dirty.needs_full_pass());
        submit(&mut now, "a", 1, "PT1H");
        let after = Arc::new(now);
        dirty.finish_pass(before.clone(), after.clone(), FollowUp::None, true);
        assert!(!dirty.needs_full_pass() && !dirty.has_changed(&after));
        dirty.finish_pass(before.clone(), after.clone(), FollowUp::None, false);
        assert!(dirty.has_changed(&after));
        dirty.finish_pass(before.clone(), after.clone(), FollowUp::Replan, true);
        assert!(dirty.has_changed(&after) && !dirty.needs_full_pass());
        dirty.finish_pass(before.clone(), after, FollowUp::FullPass, true);
        assert!(dirty.needs_full_pass());
        // Steps that were refused would be refused again.
        dirty.finish_pass(before.clone(), before, FollowUp::FullPass, true);
        assert!(!dirty.needs_full_pass());
    }
}
