//! Tokens by OAuth2 client credentials on an AAD-shaped endpoint, and the status of long-running operations.

use serde::{Deserialize, Serialize};

use crate::error::ErrorBody;
use crate::{Secret, Timestamp};

/// Where tokens are fetched: `POST`, form-encoded. Public, since the secret is in the body.
pub const TOKEN_PATH: &str = "/adfs/oauth2/token";

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TokenResponse {
    pub token_type: String,
    /// Seconds, as text: that is how the directory wrote it.
    pub expires_in: String,
    pub expires_on: String,
    pub not_before: String,
    pub resource: String,
    pub access_token: Secret,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TokenError {
    pub error: String,
    pub error_description: String,
}

/// The answer behind an `Azure-AsyncOperation` URL.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AsyncOperation {
    pub id: String,
    pub name: String,
    pub status: AsyncStatus,
    pub start_time: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end_time: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub properties: Option<AsyncProperties>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorBody>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AsyncStatus {
    InProgress,
    Succeeded,
    Failed,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AsyncProperties {
    /// The names from the subscription down, joined with `$`.
    pub resource_id: String,
}
