//! External events on jobs and nodes: preempted nodes, autoscaling clusters, and users who inspect a running job. Real
//! processes.

mod harness;

#[path = "fates/beside.rs"]
mod beside;
#[path = "fates/preemption.rs"]
mod preemption;
