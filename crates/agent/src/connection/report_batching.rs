//! Decides which changes of the node are reported at once and which wait a moment, so that a short job causes one
//! message instead of four. Pure: the time is an argument. Never delays an end, a failure or anything that other nodes
//! wait for.

use std::time::Duration;

use tokio::time::Instant;

use corro_model::node::{ObservedNode, RankExit, TaskPhase};

/// Delay of changes that are not urgent. Short enough not to be noticed; most urgent changes follow within it.
const BATCH_DELAY: Duration = Duration::from_millis(20);

/// The last report and the deadline for unreported changes.
#[derive(Debug, Default)]
pub struct ReportBatch {
    last_sent: Option<ObservedNode>,
    due: Option<Instant>,
}

impl ReportBatch {
    /// Takes note of a change; true if it must be reported now.
    pub fn is_urgent(&mut self, now: &ObservedNode, at: Instant) -> bool {
        let waits = self.last_sent.as_ref().is_some_and(|last_sent| may_wait(last_sent, now));
        if waits {
            self.due.get_or_insert(at + BATCH_DELAY);
        }
        !waits
    }

    /// Deadline for reporting the delayed changes.
    pub fn due(&self) -> Option<Instant> {
        self.due
    }

    pub fn mark_sent(&mut self, observed: ObservedNode) {
        *self = ReportBatch { last_sent: Some(observed), due: None };
    }
}

/// Whether the change only says that a task is preparing, is running, or has ranks that succeeded. The server takes no
/// action on these.
fn may_wait(last_sent: &ObservedNode, now: &ObservedNode) -> bool {
    let Some(task) = &now.task else { return false };
    let goes_on = matches!(task.phase, TaskPhase::Preparing | TaskPhase::Running);
    let rest = |node: &ObservedNode| ObservedNode { task: None, ..node.clone() };
    goes_on && task.exits.iter().all(RankExit::succeeded) && rest(last_sent) == rest(now)
}

#[cfg(test)]
mod tests {
    use corro_model::layout::Role;
    use corro_model::node::ObservedTask;
    use corro_model::{AttemptId, Timestamp};

    use super::*;

    fn node(phase: TaskPhase, exits: &[i32]) -> ObservedNode {
        let exit = |code: &i32| RankExit {
            rank: 0,
            role: Role::Rank,
            index: 0,
            exit_code: Some(*code),
            signal: None,
            stopped: false,
            at: Timestamp::from_millis(0),
            stderr_tail: String::new(),
            out_of_memory: None,
            out_of_processes: None,
            gpu_errors: Vec::new(),
        };
        let attempt = AttemptId { job: "j".into(), number: 1 };
        let task = ObservedTask { attempt, phase, exits: exits.iter().map(exit).collect(), elastic: None };
        ObservedNode { ready: true, task: Some(task), ..ObservedNode::default() }
    }

    #[test]
    fn only_unimportant_changes_are_delayed() {
        let idle = ObservedNode { ready: true, ..ObservedNode::default() };
        let check = |now: &ObservedNode, expected: bool| assert_eq!(may_wait(&idle, now), expected, "{now:?}");
        check(&node(TaskPhase::Preparing, &[]), true);
        check(&node(TaskPhase::Running, &[]), true);
        check(&node(TaskPhase::Running, &[0, 0]), true);
        check(&node(TaskPhase::Running, &[0, 1]), false);
        check(&node(TaskPhase::Prepared { gang: None }, &[]), false);
        check(&node(TaskPhase::Ended { failure: None }, &[0]), false);
        check(&ObservedNode { ready: false, ..node(TaskPhase::Running, &[]) }, false);
        check(&ObservedNode { ending: true, ..node(TaskPhase::Running, &[]) }, false);
        check(&idle, false);
    }

    #[test]
    fn the_delay_starts_with_the_first_change() {
        let (mut batch, begin) = (ReportBatch::default(), Instant::now());
        let (preparing, running) = (node(TaskPhase::Preparing, &[]), node(TaskPhase::Running, &[]));
        assert!(batch.is_urgent(&preparing, begin), "a new connection gets the current state");
        batch.mark_sent(preparing);
        assert!(!batch.is_urgent(&running, begin) && !batch.is_urgent(&running, begin + BATCH_DELAY / 2));
        assert_eq!(batch.due(), Some(begin + BATCH_DELAY));
        batch.mark_sent(running);
        assert_eq!(batch.due(), None);
    }
}
