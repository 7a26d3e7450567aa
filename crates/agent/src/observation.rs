//! What a node tells the server about itself, together with the run time of its task by the monotonic clock. Filled in when a message is
//! sent, so that it is right however long the connection was lost, and is no change by itself.
//!
//! The clock is CLOCK_MONOTONIC, which stands still while the machine is suspended: time in which a job cannot run is not counted
//! into its limit. An attempt ends with its agent, so its run time never has to outlive this process.

use tokio::time::Instant;

use corro_model::node::{FromNode, ObservedNode};

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Observation {
    pub node: ObservedNode,
    /// When this agent took up the task; none for a task that an earlier agent took up.
    pub task_began: Option<Instant>,
}

impl Observation {
    /// As it is sent at `now`.
    pub fn message(&self, now: Instant) -> FromNode {
        let ran = self.task_began.filter(|_| self.node.task.is_some());
        let task_run_ms = ran.map(|began| now.saturating_duration_since(began).as_millis() as u64);
        FromNode::Observed(ObservedNode { task_run_ms, ..self.node.clone() })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use corro_model::AttemptId;
    use corro_model::node::{ObservedTask, TaskPhase};

    use super::*;

    #[test]
    fn a_task_is_told_with_its_run_time_and_nothing_else_is() {
        let began = Instant::now();
        let attempt = AttemptId { job: "j".into(), number: 1 };
        let task = ObservedTask { attempt, phase: TaskPhase::Running, exits: Vec::new() };
        let busy = ObservedNode { task: Some(task), ..ObservedNode::default() };
        let ran = |node: &ObservedNode, task_began: Option<Instant>| {
            let observation = Observation { node: node.clone(), task_began };
            let FromNode::Observed(told) = observation.message(began + Duration::from_millis(1500)) else {
                panic!("another message")
            };
            told.task_run_ms
        };
        assert_eq!(ran(&busy, Some(began)), Some(1500));
        assert_eq!(ran(&busy, None), None);
        assert_eq!(ran(&ObservedNode::default(), Some(began)), None);
        // Servers and agents of one version back: the field may be absent.
        let old: ObservedNode =
            serde_json::from_str(r#"{"ready": true, "problem": null, "task": null, "retired": false}"#).expect("reads");
        assert_eq!(old.task_run_ms, None);
        assert!(!serde_json::to_string(&old).expect("writes").contains("task_run_ms"));
    }
}
