//! What is refused, in one place: called by the CLI for early hints and by the server for authority. Each refusal names
//! the field, the cause and the fix. What a server accepts and cannot carry out yet is told by [`unsupported`].

mod cluster;
mod job;
mod limits;
mod prefix;
mod ssh_key;
mod toolkit;
mod volumes;

use crate::error::ApiError;

pub use cluster::{check_cluster, check_file_server, check_scale};
pub use job::{check_job, unsupported};
pub use limits::{MAX_TAGS, check_tags};

/// The most nodes of one cluster.
pub const MAX_NODES: i32 = 10_000;

fn is_variable_name(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

fn blank(text: Option<&str>) -> bool {
    text.is_none_or(|text| text.trim().is_empty())
}

fn refuse(field: &str, message: &str) -> Result<(), ApiError> {
    Err(ApiError::invalid(field, message))
}
