//! Validation of requests. Each error names the field, the cause and the fix. Valid settings that a server cannot run
//! are reported by [`unsupported`], likely mistakes by [`unmounted_paths`].

mod cluster;
mod extensions;
mod job;
mod limits;
mod mount_paths;
mod prefix;
mod ssh_key;
mod sweep;
mod toolkit;
mod volumes;

use crate::error::ApiError;

pub use cluster::{check_cluster, check_file_server, check_scale};
pub use extensions::check_notifications;
pub use job::{check_job, unsupported};
pub use limits::{MAX_TAGS, check_tags};
pub use mount_paths::unmounted_paths;
pub use sweep::{MAX_PARAMETERS, MAX_TRIALS, check_parameter_name, check_trial_name};

/// Maximum number of nodes of a cluster.
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
