//! The node's control loop: `reconcile` decides (pure), `driver` acts, `setup` runs the cluster's setup task before the first job.

pub mod driver;
pub mod reconcile;
pub mod setup;
