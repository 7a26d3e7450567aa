//! State machine of a node: allocating (not counted yet), preparing, idle, running, leaving, unusable.

use serde::{Deserialize, Serialize};

use super::TransitionError;
use crate::batchai::BatchAiError;
use crate::{AttemptId, JobKey};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "camelCase")]
pub enum NodeState {
    /// Requested; no agent has joined as this node yet.
    Allocating,
    Preparing,
    Idle,
    Running {
        job: JobKey,
        attempt: AttemptId,
    },
    Leaving,
    Unusable {
        error: BatchAiError,
        lost: bool,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeEvent {
    Joined,
    Ready,
    Assigned {
        job: JobKey,
        attempt: AttemptId,
    },
    Released,
    Retired,
    /// The node is unusable: `lost` when its agent stopped reporting, otherwise its preparation failed.
    Broken {
        error: BatchAiError,
        lost: bool,
    },
}

pub fn next(state: NodeState, event: NodeEvent) -> Result<NodeState, TransitionError> {
    use {NodeEvent as E, NodeState as S};
    match (state, event) {
        (S::Allocating, E::Joined) => Ok(S::Preparing),
        (S::Preparing, E::Ready) => Ok(S::Idle),
        (S::Idle, E::Assigned { job, attempt }) => Ok(S::Running { job, attempt }),
        (S::Running { .. }, E::Released) => Ok(S::Idle),
        (S::Leaving, E::Retired) => Ok(S::Leaving),
        // A busy node's job is requeued or ended first, so that no job refers to a leaving node.
        (S::Allocating | S::Preparing | S::Idle | S::Unusable { .. }, E::Retired) => Ok(S::Leaving),
        (S::Allocating | S::Preparing | S::Idle, E::Broken { error, lost }) => Ok(S::Unusable { error, lost }),
        (S::Running { .. }, E::Broken { error, lost: true }) => Ok(S::Unusable { error, lost: true }),
        (state, event) => Err(TransitionError { thing: "node", state: state.name(), event: event.name() }),
    }
}

impl NodeState {
    pub fn name(&self) -> &'static str {
        match self {
            NodeState::Allocating => "allocating",
            NodeState::Preparing => "preparing",
            NodeState::Idle => "idle",
            NodeState::Running { .. } => "running",
            NodeState::Leaving => "leaving",
            NodeState::Unusable { .. } => "unusable",
        }
    }
}

impl NodeEvent {
    pub fn name(&self) -> &'static str {
        match self {
            NodeEvent::Joined => "joined",
            NodeEvent::Ready => "ready",
            NodeEvent::Assigned { .. } => "assigned",
            NodeEvent::Released => "released",
            NodeEvent::Retired => "retired",
            NodeEvent::Broken { .. } => "broken",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::GroupKey;

    fn attempt() -> (JobKey, AttemptId) {
        (GroupKey::new("g").workspace("w").experiment("e").job("j"), AttemptId { job: "guid".to_owned(), number: 1 })
    }

    fn states() -> Vec<NodeState> {
        let (job, attempt) = attempt();
        vec![
            NodeState::Allocating,
            NodeState::Preparing,
            NodeState::Idle,
            NodeState::Running { job, attempt },
            NodeState::Leaving,
            NodeState::Unusable { error: BatchAiError::new("X", "x"), lost: true },
        ]
    }

    fn events() -> Vec<NodeEvent> {
        let (job, attempt) = attempt();
        vec![
            NodeEvent::Joined,
            NodeEvent::Ready,
            NodeEvent::Assigned { job, attempt },
            NodeEvent::Released,
            NodeEvent::Retired,
            NodeEvent::Broken { error: BatchAiError::new("X", "x"), lost: true },
            NodeEvent::Broken { error: BatchAiError::new("X", "x"), lost: false },
        ]
    }

    /// Columns: joined, ready, assigned, released, retired, lost, failed.
    const TABLE: [[&str; 7]; 6] = [
        ["preparing", "-", "-", "-", "leaving", "unusable", "unusable"],
        ["-", "idle", "-", "-", "leaving", "unusable", "unusable"],
        ["-", "-", "running", "-", "leaving", "unusable", "unusable"],
        ["-", "-", "-", "idle", "-", "unusable", "-"],
        ["-", "-", "-", "-", "leaving", "-", "-"],
        ["-", "-", "-", "-", "leaving", "-", "-"],
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
}
