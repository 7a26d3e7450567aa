//! The container of a job on this node, through the Docker API: one for the whole attempt, in which job preparation and ranks run. Entered
//! by `task` (`enter`, `Container::end`) and `prepare` (`Entry`). Where no engine answers, such a job fails and says so.
//!
//! The container lives for as long as its input is open, and the agent alone holds that: whatever happens to the agent, the
//! engine ends the container and removes it. What an engine or a moment without such luck leaves is found by its label.
//!
//! Reading order: `engine`, `image`, `plan` (pure), this file, `life`, `relay` (a process inside), `oom`, `sweep`, `refusal` (words).

pub(crate) mod capabilities;
pub mod cleanup;
pub mod engine;
pub(crate) mod error;
pub mod exec_relay;
pub(crate) mod image;
pub(crate) mod lifecycle;
mod oom;
pub(crate) mod spec;

use corro_model::node::TaskOrder;

/// Does this order's job run in a container?
pub fn is_wanted(order: &TaskOrder) -> bool {
    order.container.is_some() && !order.containers_on_host
}
