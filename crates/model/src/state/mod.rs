//! The life of a job and of a node as state machines: an enum whose variants hold only what is true in that state, and
//! one function that moves it. Only `store` applies these, inside its transaction.

pub mod job;
pub mod node;

pub use job::{JobEvent, JobState, Termination};
pub use node::{NodeEvent, NodeState};

pub use crate::preemption::{Preemption, PreemptionCause};

/// An event that a state does not take; nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a {thing} that is {state} does not take the event {event}")]
pub struct Refused {
    pub thing: &'static str,
    pub state: &'static str,
    pub event: &'static str,
}
