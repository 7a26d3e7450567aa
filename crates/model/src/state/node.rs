//! The life of a node: allocating (not yet counted), preparing, idle, running, leaving, unusable.

use serde::{Deserialize, Serialize};

use super::Refused;
use crate::batchai::BatchAiError;
use crate::{AttemptId, JobKey, Timestamp};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "camelCase")]
pub enum NodeState {
    /// Asked for; no agent has joined as this node yet.
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

/// A node of a low-priority cluster, of a drained host or of a Slurm that wants it back is taken back, whatever its state: its
/// job gives way, then it leaves and is replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Preemption {
    pub at: Timestamp,
    pub cause: PreemptionCause,
    /// For its job's processes, between the warning signal and the end.
    pub grace_ms: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum PreemptionCause {
    /// Somebody asked for it.
    Asked,
    /// A dedicated cluster needs its cores or its machine.
    Dedicated,
    /// Its host is taken out of service.
    Drained,
    /// Slurm lent it for so long, and no longer.
    Walltime,
    /// Slurm needs it for somebody else.
    Reclaimed,
}

impl PreemptionCause {
    pub fn words(self) -> &'static str {
        match self {
            PreemptionCause::Asked => "an operator took it back",
            PreemptionCause::Dedicated => "a dedicated cluster needed its place",
            PreemptionCause::Drained => "its host was taken out of service",
            PreemptionCause::Walltime => "the walltime of its Slurm allocation ended",
            PreemptionCause::Reclaimed => "Slurm took its allocation back",
        }
    }

    /// Does it happen to low-priority nodes only?
    pub fn is_of_low_priority(self) -> bool {
        matches!(self, PreemptionCause::Asked | PreemptionCause::Dedicated)
    }
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
    /// It cannot be used: `lost` when it fell silent, otherwise its preparation failed.
    Broken {
        error: BatchAiError,
        lost: bool,
    },
}

pub fn next(state: NodeState, event: NodeEvent) -> Result<NodeState, Refused> {
    use {NodeEvent as E, NodeState as S};
    match (state, event) {
        (S::Allocating, E::Joined) => Ok(S::Preparing),
        (S::Preparing, E::Ready) => Ok(S::Idle),
        (S::Idle, E::Assigned { job, attempt }) => Ok(S::Running { job, attempt }),
        (S::Running { .. }, E::Released) => Ok(S::Idle),
        (S::Leaving, E::Retired) => Ok(S::Leaving),
        // A busy node's job is requeued or ended first, so that no job points at a node that leaves.
        (S::Allocating | S::Preparing | S::Idle | S::Unusable { .. }, E::Retired) => Ok(S::Leaving),
        (S::Allocating | S::Preparing | S::Idle, E::Broken { error, lost }) => Ok(S::Unusable { error, lost }),
        (S::Running { .. }, E::Broken { error, lost: true }) => Ok(S::Unusable { error, lost: true }),
        (state, event) => Err(Refused { thing: "node", state: state.name(), event: event.name() }),
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
