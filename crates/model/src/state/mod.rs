//! State machines of jobs and nodes: an enum whose variants hold only the data of that state, and one transition
//! function. Only `store` applies them, inside its transaction.

pub mod job;
pub mod node;

pub use job::{JobEvent, JobState, STOPPED_EARLY, Termination};
pub use node::{NodeEvent, NodeState};

pub use crate::preemption::{Preemption, PreemptionCause};

/// An event that is not valid in a state; nothing changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid transition: {thing} is {state}, event is {event}")]
pub struct TransitionError {
    pub thing: &'static str,
    pub state: &'static str,
    pub event: &'static str,
}
