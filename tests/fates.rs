//! What befalls jobs and nodes from outside: nodes that are taken back, clusters that grow and shrink by themselves, and
//! people who look into a running job. Real processes.

mod harness;

#[path = "fates/beside.rs"]
mod beside;
#[path = "fates/preemption.rs"]
mod preemption;
