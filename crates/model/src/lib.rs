//! The words of the system: wire types, names, ids, states, the table of operations, `job.json`, validation and the
//! messages between server and node. Every other control-plane crate enters here; this crate enters no other.
//!
//! It never does I/O and never reads a clock: time, randomness and bytes are arguments.
//!
//! Reading order: [`names`] and [`ids`] (what things are called), [`batchai`] and [`arm`] (what travels),
//! [`state`] (what may happen to a job and a node), [`ops`] (every request there is), [`rbac`] (who may), [`validate`] (what is refused),
//! [`layout`] (which processes a job has), [`node`] (what server and agent tell each other), [`root_cause`] (which rank made a gang fail), [`storage`] (how file requests are signed).

pub mod api_versions;
pub mod arm;
pub mod batchai;
pub mod container;
pub mod defaults;
pub mod error;
pub mod events;
pub mod explain;
pub mod history;
pub mod host;
pub mod ids;
pub mod job_file;
pub mod layout;
pub mod metrics;
pub mod mount;
pub mod names;
pub mod node;
pub mod ops;
pub mod password;
pub mod preemption;
pub mod rbac;
pub mod root_cause;
pub mod secret;
pub mod state;
pub mod storage;
pub mod time;
pub mod usage;
pub mod validate;
pub mod vm_size;
pub mod warnings;
pub mod xml;

pub use error::ApiError;
pub use ids::{AttemptId, ClusterKey, ExperimentKey, FileServerKey, GroupKey, JobKey, NodeId, WorkspaceKey};
pub use secret::Secret;
pub use time::Timestamp;
