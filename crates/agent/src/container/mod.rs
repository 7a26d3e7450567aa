//! Containers of jobs through the Docker API: one per attempt and node, in which job preparation and ranks run. Without
//! an engine such a job fails.
//!
//! A container runs as long as its standard input is open, which only the agent holds: however the agent ends, the
//! engine ends and removes the container. A container left by an engine failure is found by its label.
//!
//! Reading order: `engine`, `image`, `spec` (pure), `capabilities`, `lifecycle`, `exec_relay` (a process inside),
//! `oom`, `cleanup`, `error`.

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

/// Whether the order's job runs in a container.
pub fn is_wanted(order: &TaskOrder) -> bool {
    order.container.is_some() && !order.containers_on_host
}
