//! Shared types of the control plane: wire types, names, ids, state machines, the table of API operations, `job.json`,
//! validation and the messages between server and node. Depends on no other crate of the control plane.
//!
//! Never does I/O and never reads a clock: time, randomness and bytes are arguments.
//!
//! Reading order: [`names`] and [`ids`], [`batchai`] and [`arm`] (wire types), [`state`] (lifecycles of jobs and
//! nodes), [`ops`] (API operations), [`rbac`] (roles and scopes), [`validate`] (request validation), [`layout`]
//! (processes of a job), [`node`] (server and agent protocol), [`root_cause`] (the rank that made a gang fail),
//! [`storage`] (signatures of file requests).

pub mod api_versions;
pub mod arm;
pub mod batchai;
pub mod container;
pub mod defaults;
pub mod docs_keys;
pub mod error;
pub mod events;
pub mod explain;
pub mod gpu;
pub mod history;
pub mod host;
pub mod ids;
pub mod job_file;
pub mod layout;
pub mod metrics;
pub mod mount;
pub mod names;
pub mod node;
pub mod notebook;
pub mod ops;
pub mod password;
pub mod preemption;
pub mod rbac;
pub mod retry;
pub mod root_cause;
pub mod secret;
pub mod spelling;
pub mod state;
pub mod storage;
pub mod time;
pub mod usage;
pub mod validate;
pub mod vm_size;
pub mod warnings;
pub mod webhook;
pub mod xml;

pub use error::ApiError;
pub use ids::{AttemptId, ClusterKey, ExperimentKey, FileServerKey, GroupKey, JobKey, NodeId, WorkspaceKey};
pub use secret::Secret;
pub use time::Timestamp;
