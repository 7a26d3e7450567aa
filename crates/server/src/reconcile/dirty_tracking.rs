//! Dirty tracking: an incremental pass must decide the same as a full pass. Records which state has been processed completely
//! and whether the next pass must be full. Pure; reads no clock: time-driven changes are caught by periodic full passes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use corro_model::state::NodeEvent;
use corro_model::{JobKey, NodeId};
use corro_store::{JobRecord, State};

use super::steps::Step;
use crate::gateway::NodeObservation;

pub struct DirtyTracker {
    /// The last state all of whose consequences were decided.
    processed: Arc<State>,
    needs_full: bool,
}

/// Decisions that remain after some steps are committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FollowUp {
    /// Nothing: the steps were decided together with their consequences.
    None,
    /// The state changed, so the plan may change.
    Replan,
    /// Nodes changed in a way that does not show in the jobs they ran.
    FullPass,
}

impl DirtyTracker {
    pub fn new(processed: Arc<State>) -> Self {
        Self { processed, needs_full: true }
    }

    /// Whether the next pass must be full regardless of the timer.
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

    /// Records a finished pass from `before` to `after`. `follow_up` is what its own steps require; `sole_writer` says that no other
    /// commit came in between.
    pub fn finish_pass(&mut self, before: Arc<State>, after: Arc<State>, follow_up: FollowUp, sole_writer: bool) {
        self.needs_full = follow_up == FollowUp::FullPass && before.revision != after.revision;
        self.processed = if follow_up == FollowUp::None && sole_writer { after } else { before };
    }

    /// Makes the next pass full, after a failed pass whose decisions are lost.
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

/// The follow-up of steps that were decided from this state.
pub fn follow_up_of(steps: &[Step], state: &State, observations: &BTreeMap<NodeId, NodeObservation>) -> FollowUp {
    steps.iter().map(|step| follow_up_of_step(step, state, observations)).max().unwrap_or(FollowUp::None)
}

fn follow_up_of_step(step: &Step, state: &State, observations: &BTreeMap<NodeId, NodeObservation>) -> FollowUp {
    match step {
        Step::RemoveNode(_) | Step::Node(_, NodeEvent::Broken { .. }) => FollowUp::FullPass,
        Step::EndAttempt(key, _) | Step::Requeue(key, _) | Step::Retry(key, ..) => {
            let Some(job) = state.jobs.get(key) else { return FollowUp::Replan };
            // A busy node reports its problem with its task; once it is free it is given up.
            let has_problem = |node: &NodeId| {
                observations.get(node).is_some_and(|observation| observation.observed.problem.is_some())
            };
            let deleting = || {
                let cluster = state.clusters.get(&job.cluster);
                job.provisioning.is_deleting() || cluster.is_none_or(|cluster| cluster.provisioning.is_deleting())
            };
            match job.state().nodes().iter().any(has_problem) {
                true => FollowUp::FullPass,
                // The plan covers the freed nodes, but not that the job itself may now be removed.
                false if deleting() => FollowUp::Replan,
                false => FollowUp::None,
            }
        }
        // The plan covers the job as one without the dependency.
        Step::MeetDependency(..) | Step::Place(..) | Step::Grow(..) => FollowUp::None,
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
            txn.update::<JobRecord>(&key("b"), |job| job.provisioning.set_state(ProvisioningState::Deleting, NOW));
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
            (vec![Step::Retry(key("a"), 1, error()), place()], FollowUp::None),
            (vec![end("a"), Step::MeetDependency(key("c"), key("a")), place()], FollowUp::None),
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
        // Rejected steps would be rejected again.
        dirty.finish_pass(before.clone(), before, FollowUp::FullPass, true);
        assert!(!dirty.needs_full_pass());
    }
}
