//! Preemption of a node: when, why, and the grace period of its job.

use serde::{Deserialize, Serialize};

use crate::Timestamp;

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
