//! State machine of a job: queued, running, terminating, ended. An ended job never changes.

use serde::{Deserialize, Serialize};

use super::TransitionError;
use crate::batchai::{BatchAiError, ExecutionInfo, ExecutionState, WebhookEvent};
use crate::{NodeId, Timestamp};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "camelCase")]
pub enum JobState {
    Queued,
    Running {
        nodes: Vec<NodeId>,
        started: Timestamp,
    },
    /// Termination was requested; processes still run on the nodes.
    Terminating {
        nodes: Vec<NodeId>,
        started: Timestamp,
        #[serde(default)]
        cause: Termination,
    },
    Succeeded {
        started: Timestamp,
        ended: Timestamp,
    },
    Failed {
        started: Timestamp,
        ended: Timestamp,
        exit_code: Option<i32>,
        errors: Vec<BatchAiError>,
    },
}

/// Reason for terminating a job early.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Termination {
    #[default]
    User,
    ClusterDeleted,
    /// A resize with the option `terminate` removed its nodes.
    ClusterResized,
    /// The stopping rule of its sweep chose it.
    StoppedEarly {
        reason: String,
    },
}

/// Code of the error of a job that was terminated.
const TERMINATED: &str = "JobTerminated";
/// Code of the error of a job that was stopped by the rule of its sweep.
pub const STOPPED_EARLY: &str = "StoppedEarly";

impl Termination {
    fn error(self) -> BatchAiError {
        let message = match self {
            Termination::StoppedEarly { reason } => return BatchAiError::new(STOPPED_EARLY, reason),
            Termination::User => "The specified job has been terminated by the user",
            Termination::ClusterDeleted => "The specified job has been terminated because its cluster was deleted",
            Termination::ClusterResized => {
                "The specified job has been terminated because its cluster was resized with the option 'terminate'"
            }
        };
        BatchAiError::new(TERMINATED, message)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JobEvent {
    Placed {
        nodes: Vec<NodeId>,
        at: Timestamp,
    },
    /// An elastic job goes on with these nodes.
    Resized {
        nodes: Vec<NodeId>,
    },
    /// All ranks exited successfully.
    Succeeded {
        at: Timestamp,
    },
    Failed {
        exit_code: Option<i32>,
        errors: Vec<BatchAiError>,
        at: Timestamp,
    },
    /// A node was lost or removed, and the job may be tried again.
    Requeued,
    TerminateRequested {
        cause: Termination,
        at: Timestamp,
    },
}

/// Applies an event. The end is never before the start, even if the clock was set back meanwhile.
pub fn next(state: JobState, event: JobEvent) -> Result<JobState, TransitionError> {
    use {JobEvent as E, JobState as S};
    match (state, event) {
        (S::Queued, E::Placed { nodes, at }) => Ok(S::Running { nodes, started: at }),
        (S::Queued, E::TerminateRequested { cause, at }) => Ok(terminated(cause, at, at)),
        (S::Queued, E::Failed { exit_code, errors, at }) => Ok(S::Failed { started: at, ended: at, exit_code, errors }),

        (S::Running { started, .. }, E::Resized { nodes }) => Ok(S::Running { nodes, started }),
        (S::Running { started, .. }, E::Succeeded { at }) => Ok(S::Succeeded { started, ended: at.max(started) }),
        (S::Running { started, .. }, E::Failed { exit_code, errors, at }) => {
            Ok(S::Failed { started, ended: at.max(started), exit_code, errors })
        }
        (S::Running { .. }, E::Requeued) => Ok(S::Queued),
        (S::Running { nodes, started }, E::TerminateRequested { cause, .. }) => {
            Ok(S::Terminating { nodes, started, cause })
        }

        // The reported cause is the first termination request, regardless of the exit of the ranks.
        (S::Terminating { started, cause, .. }, E::Succeeded { at } | E::Failed { at, .. }) => {
            Ok(terminated(cause, started, at))
        }
        (state @ S::Terminating { .. }, E::TerminateRequested { .. }) => Ok(state),

        (state, event) => Err(TransitionError { thing: "job", state: state.name(), event: event.name() }),
    }
}

fn terminated(cause: Termination, started: Timestamp, ended: Timestamp) -> JobState {
    JobState::Failed { started, ended: ended.max(started), exit_code: None, errors: vec![cause.error()] }
}

impl JobState {
    pub fn name(&self) -> &'static str {
        match self {
            JobState::Queued => "queued",
            JobState::Running { .. } => "running",
            JobState::Terminating { .. } => "terminating",
            JobState::Succeeded { .. } => "succeeded",
            JobState::Failed { .. } => "failed",
        }
    }

    /// The state as the end of a sentence that begins with the job.
    pub fn predicate(&self) -> &'static str {
        match self {
            JobState::Queued => "is queued",
            JobState::Running { .. } => "is running",
            JobState::Terminating { .. } => "is being terminated",
            JobState::Succeeded { .. } => "has succeeded",
            JobState::Failed { .. } => "has failed",
        }
    }

    pub fn execution_state(&self) -> ExecutionState {
        match self {
            JobState::Queued => ExecutionState::Queued,
            JobState::Running { .. } => ExecutionState::Running,
            JobState::Terminating { .. } => ExecutionState::Terminating,
            JobState::Succeeded { .. } => ExecutionState::Succeeded,
            JobState::Failed { .. } => ExecutionState::Failed,
        }
    }

    pub fn is_terminal(&self) -> bool {
        self.execution_state().is_terminal()
    }

    /// Nodes that currently run the job.
    pub fn nodes(&self) -> &[NodeId] {
        match self {
            JobState::Running { nodes, .. } | JobState::Terminating { nodes, .. } => nodes,
            _ => &[],
        }
    }

    pub fn started(&self) -> Option<Timestamp> {
        match self {
            JobState::Queued => None,
            JobState::Running { started, .. }
            | JobState::Terminating { started, .. }
            | JobState::Succeeded { started, .. }
            | JobState::Failed { started, .. } => Some(*started),
        }
    }

    /// The event to report when a job enters the state. A queued job is reported when it starts, and a terminating one when it
    /// has ended.
    pub fn webhook_event(&self) -> Option<WebhookEvent> {
        match self {
            JobState::Queued | JobState::Terminating { .. } => None,
            JobState::Running { .. } => Some(WebhookEvent::Started),
            JobState::Succeeded { .. } => Some(WebhookEvent::Succeeded),
            JobState::Failed { errors, .. } => {
                let was_stopped = errors.iter().any(|error| [TERMINATED, STOPPED_EARLY].contains(&error.code.as_str()));
                Some(if was_stopped { WebhookEvent::Stopped } else { WebhookEvent::Failed })
            }
        }
    }

    pub fn execution_info(&self) -> Option<ExecutionInfo> {
        let start_time = self.started()?;
        let info = ExecutionInfo { start_time, end_time: None, exit_code: None, errors: Vec::new() };
        Some(match self {
            JobState::Succeeded { ended, .. } => ExecutionInfo { end_time: Some(*ended), exit_code: Some(0), ..info },
            JobState::Failed { ended, exit_code, errors, .. } => {
                ExecutionInfo { end_time: Some(*ended), exit_code: *exit_code, errors: errors.clone(), ..info }
            }
            _ => info,
        })
    }
}

impl JobEvent {
    pub fn name(&self) -> &'static str {
        match self {
            JobEvent::Placed { .. } => "placed",
            JobEvent::Resized { .. } => "resized",
            JobEvent::Succeeded { .. } => "succeeded",
            JobEvent::Failed { .. } => "failed",
            JobEvent::Requeued => "requeued",
            JobEvent::TerminateRequested { .. } => "terminate",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    fn states() -> Vec<JobState> {
        let nodes = vec![];
        vec![
            JobState::Queued,
            JobState::Running { nodes: nodes.clone(), started: at(1) },
            JobState::Terminating { nodes, started: at(1), cause: Termination::User },
            JobState::Succeeded { started: at(1), ended: at(2) },
            JobState::Failed { started: at(1), ended: at(2), exit_code: Some(1), errors: vec![] },
        ]
    }

    fn events() -> Vec<JobEvent> {
        vec![
            JobEvent::Placed { nodes: vec![], at: at(3) },
            JobEvent::Resized { nodes: vec![] },
            JobEvent::Succeeded { at: at(3) },
            JobEvent::Failed { exit_code: Some(7), errors: vec![], at: at(3) },
            JobEvent::Requeued,
            JobEvent::TerminateRequested { cause: Termination::User, at: at(3) },
        ]
    }

    #[test]
    fn every_state_ends_a_sentence() {
        let sentences = states().iter().map(|state| format!("The job j {}", state.predicate())).collect::<Vec<_>>();
        let expected = ["is queued", "is running", "is being terminated", "has succeeded", "has failed"];
        assert_eq!(sentences, expected.map(|predicate| format!("The job j {predicate}")));
    }

    /// Rows: states; columns: placed, resized, succeeded, failed, requeued, terminate. `-` is a refusal.
    const TABLE: [[&str; 6]; 5] = [
        ["running", "-", "-", "failed", "-", "failed"],
        ["-", "running", "succeeded", "failed", "queued", "terminating"],
        ["-", "-", "failed", "failed", "-", "terminating"],
        ["-", "-", "-", "-", "-", "-"],
        ["-", "-", "-", "-", "-", "-"],
    ];

    #[test]
    fn every_state_takes_exactly_the_events_of_the_table() {
        for (state, row) in states().into_iter().zip(TABLE) {
            for (event, expected) in events().into_iter().zip(row) {
                let (state_name, event_name) = (state.name(), event.name());
                let got = next(state.clone(), event).map_or("-", |s| s.name());
                assert_eq!(got, expected, "{state_name} x {event_name}");
            }
        }
    }

    #[test]
    fn every_state_reports_its_event() {
        let events = |states: Vec<JobState>| {
            states.iter().map(|state| state.webhook_event().map(|e| e.name())).collect::<Vec<_>>()
        };
        assert_eq!(events(states()), [None, Some("started"), None, Some("succeeded"), Some("failed")]);
        let causes = [
            Termination::User,
            Termination::ClusterDeleted,
            Termination::ClusterResized,
            Termination::StoppedEarly { reason: "r".to_owned() },
        ];
        let stopped = causes.map(|cause| terminated(cause, at(1), at(2))).to_vec();
        assert_eq!(events(stopped), [Some("stopped"); 4]);
    }

    #[test]
    fn a_terminated_job_has_no_exit_code_and_says_who_ended_it() {
        let end = |cause| JobEvent::TerminateRequested { cause, at: at(5) };
        let state = next(JobState::Queued, end(Termination::User)).expect("allowed");
        let info = state.execution_info().expect("ended");
        assert_eq!((info.start_time, info.end_time, info.exit_code), (at(5), Some(at(5)), None));
        assert_eq!(info.errors[0].code, "JobTerminated");
        assert_eq!(info.errors[0].message, "The specified job has been terminated by the user");
        let running = JobState::Running { nodes: vec![], started: at(1) };
        let ending = next(running, end(Termination::ClusterDeleted)).expect("allowed");
        let ended = next(ending, JobEvent::Succeeded { at: at(6) }).expect("allowed");
        let message = &ended.execution_info().expect("ended").errors[0].message;
        assert!(message.ends_with("its cluster was deleted"), "{message}");
        let cause = Termination::StoppedEarly { reason: "not among the best 2 of 7 trials".to_owned() };
        let running = JobState::Running { nodes: vec![], started: at(1) };
        let ending = next(running, end(cause)).expect("allowed");
        let stored = serde_json::to_string(&ending).expect("plain data");
        let ending: JobState = serde_json::from_str(&stored).expect("a record");
        let ended =
            next(ending, JobEvent::Failed { exit_code: Some(143), errors: vec![], at: at(6) }).expect("allowed");
        let info = ended.execution_info().expect("ended");
        assert_eq!((info.exit_code, info.errors[0].code.as_str()), (None, STOPPED_EARLY));
        assert_eq!(info.errors[0].message, "not among the best 2 of 7 trials");
    }

    #[test]
    fn a_job_that_was_being_terminated_by_an_older_version_reads_back() {
        let old = r#"{"state":"terminating","nodes":[],"started":"2018-06-07T21:16:21Z"}"#;
        let state: JobState = serde_json::from_str(old).expect("an old record");
        assert!(matches!(state, JobState::Terminating { cause: Termination::User, .. }));
    }
}
