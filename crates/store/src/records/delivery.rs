//! Notifications of jobs that have not been delivered. Written in the transaction of the transition, so that none is lost when
//! the server is killed, and removed when they are delivered or given up.

use corro_model::batchai::WebhookEvent;
use corro_model::{JobKey, Timestamp};
use serde::{Deserialize, Serialize};

use crate::encryption::Ciphertext;

/// One notification; keyed by its delivery id. It has everything that is posted: the job's record may be gone by then.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DeliveryRecord {
    pub job: JobKey,
    /// Name of the job, as the user wrote it.
    pub name: String,
    /// Client id of the principal that submitted the job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// URL and key; see [`JobRecord::webhook`](crate::JobRecord::webhook).
    pub webhook: Ciphertext,
    pub event: WebhookEvent,
    /// Number of the job's attempt.
    pub attempt: u32,
    /// Time of the transition.
    pub at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// Code and shortened message of the job's first error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<(String, String)>,
    /// Posts that failed, and the last of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<DeliveryFailure>,
}

/// Failed posts of one notification.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeliveryFailure {
    pub count: u32,
    pub last: Timestamp,
    /// Why the last one failed. Holds no part of the URL but its host.
    pub reason: String,
}
