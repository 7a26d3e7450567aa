//! Preemption of a node: when, why, and the grace period of its job.

use serde::{Deserialize, Serialize};

use crate::Timestamp;

/// Preemption of a node, whatever its state: its job is evicted, then the node leaves and is replaced. Applies to
/// low-priority clusters, drained hosts and reclaimed Slurm allocations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Preemption {
    pub at: Timestamp,
    pub cause: PreemptionCause,
    /// Grace period of the job's processes between the warning signal and SIGKILL.
    pub grace_ms: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum PreemptionCause {
    /// Requested by a user.
    Asked,
    /// A dedicated cluster needs its cores or its machine.
    Dedicated,
    /// Its host is drained.
    Drained,
    /// The walltime of its Slurm allocation has ended.
    Walltime,
    /// Slurm reclaims the allocation.
    Reclaimed,
}

impl PreemptionCause {
    pub fn describe(self) -> &'static str {
        match self {
            PreemptionCause::Asked => "an operator requested it",
            PreemptionCause::Dedicated => "a dedicated cluster needed its capacity",
            PreemptionCause::Drained => "its host was taken out of service",
            PreemptionCause::Walltime => "the walltime of its Slurm allocation ended",
            PreemptionCause::Reclaimed => "Slurm cancelled its allocation",
        }
    }

    /// Whether the cause applies to low-priority nodes only.
    pub fn is_of_low_priority(self) -> bool {
        matches!(self, PreemptionCause::Asked | PreemptionCause::Dedicated)
    }
}
