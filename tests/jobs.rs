//! Jobs as real processes on real nodes: environment, results, termination. One module per topic.

mod harness;

#[path = "jobs/dependencies.rs"]
mod dependencies;
#[path = "jobs/endings.rs"]
mod endings;
#[path = "jobs/files.rs"]
mod files;
#[path = "jobs/limits.rs"]
mod limits;
#[path = "jobs/mpi.rs"]
mod mpi;
#[path = "jobs/preparation.rs"]
mod preparation;
#[path = "jobs/python.rs"]
mod python;
#[path = "jobs/queue.rs"]
mod queue;
#[path = "jobs/ranks.rs"]
mod ranks;
#[path = "jobs/recipes.rs"]
mod recipes;
#[path = "jobs/retries.rs"]
mod retries;
#[path = "jobs/webhooks.rs"]
mod webhooks;

/// Number of GPUs that a node with one declared GPU really has: 0 on a machine without GPUs.
fn gpus_of_a_node() -> String {
    u8::from(std::path::Path::new("/dev/nvidia0").exists()).to_string()
}
