//! The node's state as reported to the server, with the task's run time and estimated remaining time. Both are computed
//! when a message is sent, so they are right after any loss of the connection.
//!
//! The clock is CLOCK_MONOTONIC, which stops while the machine is suspended: time in which a job cannot run does not
//! count toward its limit. An attempt ends with its agent, so its run time never has to outlive the process.

use tokio::time::Instant;

use corro_model::node::{FromNode, ObservedNode};

/// The node's state and the times from which a report is computed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Observation {
    pub node: ObservedNode,
    /// Time at which this agent began the task; none for a task that an earlier agent began.
    pub task_began: Option<Instant>,
    /// Estimated end of the task, from the epochs that its processes print.
    pub task_expected_end: Option<Instant>,
}

impl Observation {
    /// The report as sent at `now`.
    pub fn message(&self, now: Instant) -> FromNode {
        let ran = self.task_began.filter(|_| self.node.task.is_some());
        let task_run_ms = ran.map(|began| now.saturating_duration_since(began).as_millis() as u64);
        let remaining = self.task_expected_end.and_then(|end| end.checked_duration_since(now));
        let remaining = remaining.filter(|remaining| !remaining.is_zero() && ran.is_some());
        let task_remaining_ms = remaining.map(|remaining| remaining.as_millis() as u64);
        FromNode::Observed(ObservedNode { task_run_ms, task_remaining_ms, ..self.node.clone() })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use corro_model::AttemptId;
    use corro_model::node::{ObservedTask, TaskPhase};

    use super::*;

    #[test]
    fn only_a_running_task_has_a_run_time() {
        let began = Instant::now();
        let attempt = AttemptId { job: "j".into(), number: 1 };
        let task = ObservedTask { attempt, phase: TaskPhase::Running, exits: Vec::new(), elastic: None };
        let busy = ObservedNode { task: Some(task), ..ObservedNode::default() };
        let ran = |node: &ObservedNode, task_began: Option<Instant>| {
            let task_expected_end = Some(began + Duration::from_secs(10));
            let observation = Observation { node: node.clone(), task_began, task_expected_end };
            let FromNode::Observed(reported) = observation.message(began + Duration::from_millis(1500)) else {
                panic!("another message")
            };
            (reported.task_run_ms, reported.task_remaining_ms)
        };
        assert_eq!(ran(&busy, Some(began)), (Some(1500), Some(8500)));
        assert_eq!(ran(&busy, None), (None, None));
        assert_eq!(ran(&ObservedNode::default(), Some(began)), (None, None));
        let late = Observation { node: busy.clone(), task_began: Some(began), task_expected_end: Some(began) };
        let FromNode::Observed(late) = late.message(began + Duration::from_secs(1)) else { panic!("another message") };
        assert_eq!(late.task_remaining_ms, None, "an estimate that has passed is none");
        // Servers and agents of the previous version omit the field.
        let old: ObservedNode =
            serde_json::from_str(r#"{"ready": true, "problem": null, "task": null, "retired": false}"#).expect("reads");
        assert_eq!((old.task_run_ms, old.task_remaining_ms), (None, None));
        assert!(!serde_json::to_string(&old).expect("writes").contains("task_r"));
    }
}
