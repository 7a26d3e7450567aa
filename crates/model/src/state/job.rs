//! The life of a job: queued, running, terminating, ended. Terminal states never leave.

use serde::{Deserialize, Serialize};

use super::Refused;
use crate::batchai::{BatchAiError, ExecutionInfo, ExecutionState};
use crate::{NodeId, Timestamp};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "camelCase")]
pub enum JobState {
    Queued,
    Running {
        nodes: Vec<NodeId>,
        started: Timestamp,
    },
    /// A user asked for the end; the nodes are still busy with it.
    Terminating {
        nodes: Vec<NodeId>,
        started: Timestamp,
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

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JobEvent {
    Placed {
        nodes: Vec<NodeId>,
        at: Timestamp,
    },
    /// All ranks ended well.
    Succeeded {
        at: Timestamp,
    },
    Failed {
        exit_code: Option<i32>,
        errors: Vec<BatchAiError>,
        at: Timestamp,
    },
    /// A node was lost or taken away and the job may be tried again.
    Requeued,
    TerminateRequested {
        at: Timestamp,
    },
}

pub fn next(state: JobState, event: JobEvent) -> Result<JobState, Refused> {
    use {JobEvent as E, JobState as S};
    match (state, event) {
        (S::Queued, E::Placed { nodes, at }) => Ok(S::Running { nodes, started: at }),
        (S::Queued, E::TerminateRequested { at }) => Ok(terminated(at, at)),
        (S::Queued, E::Failed { exit_code, errors, at }) => Ok(S::Failed { started: at, ended: at, exit_code, errors }),

        (S::Running { started, .. }, E::Succeeded { at }) => Ok(S::Succeeded { started, ended: at }),
        (S::Running { started, .. }, E::Failed { exit_code, errors, at }) => {
            Ok(S::Failed { started, ended: at, exit_code, errors })
        }
        (S::Running { .. }, E::Requeued) => Ok(S::Queued),
        (S::Running { nodes, started }, E::TerminateRequested { .. }) => Ok(S::Terminating { nodes, started }),

        // However the ranks ended, the user's wish is what is reported.
        (S::Terminating { started, .. }, E::Succeeded { at } | E::Failed { at, .. }) => Ok(terminated(started, at)),
        (state @ S::Terminating { .. }, E::TerminateRequested { .. }) => Ok(state),

        (state, event) => Err(Refused { thing: "job", state: state.name(), event: event.name() }),
    }
}

fn terminated(started: Timestamp, ended: Timestamp) -> JobState {
    let error = BatchAiError::new("JobTerminated", "The specified job has been terminated by the user");
    JobState::Failed { started, ended, exit_code: None, errors: vec![error] }
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

    /// The nodes that are busy with the job now.
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
            JobState::Terminating { nodes, started: at(1) },
            JobState::Succeeded { started: at(1), ended: at(2) },
            JobState::Failed { started: at(1), ended: at(2), exit_code: Some(1), errors: vec![] },
        ]
    }

    fn events() -> Vec<JobEvent> {
        vec![
            JobEvent::Placed { nodes: vec![], at: at(3) },
            JobEvent::Succeeded { at: at(3) },
            JobEvent::Failed { exit_code: Some(7), errors: vec![], at: at(3) },
            JobEvent::Requeued,
            JobEvent::TerminateRequested { at: at(3) },
        ]
    }

    /// Rows: states; columns: placed, succeeded, failed, requeued, terminate. `-` is a refusal.
    const TABLE: [[&str; 5]; 5] = [
        ["running", "-", "failed", "-", "failed"],
        ["-", "succeeded", "failed", "queued", "terminating"],
        ["-", "failed", "failed", "-", "terminating"],
        ["-", "-", "-", "-", "-"],
        ["-", "-", "-", "-", "-"],
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
    fn a_terminated_job_has_no_exit_code_and_says_who_ended_it() {
        let state = next(JobState::Queued, JobEvent::TerminateRequested { at: at(5) }).expect("allowed");
        let info = state.execution_info().expect("ended");
        assert_eq!((info.start_time, info.end_time, info.exit_code), (at(5), Some(at(5)), None));
        assert_eq!(info.errors[0].code, "JobTerminated");
    }
}
