//! Resource groups, workspaces and experiments, and what all resources share: lookups by name, idempotent PUTs,
//! long-running operations, deletion marks, sealed secrets of specifications, and warnings sent with a response.

pub mod deletion;
pub mod experiments;
pub mod groups;
pub mod idempotent_put;
pub mod lookup;
pub mod operations;
pub mod spec_secrets;
pub mod warnings;
pub mod workspaces;
