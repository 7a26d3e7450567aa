//! The server itself, as its clients see it. A Corro extension.

use serde::{Deserialize, Serialize};

use crate::Timestamp;

/// Version and start of a server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ServerStatus {
    pub version: String,
    pub start_time: Timestamp,
}
