//! The API's error: an HTTP status and the ARM envelope `{"error":{"code","message","target","details"}}`. The message
//! is for the user; operator detail goes to the log.

use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ApiError {
    pub status: u16,
    pub code: String,
    pub message: String,
    /// Field or resource that the error is about.
    pub target: Option<String>,
}

impl ApiError {
    pub fn new(status: u16, code: &str, message: impl Into<String>) -> Self {
        Self { status, code: code.to_owned(), message: message.into(), target: None }
    }

    pub fn about(mut self, target: impl Into<String>) -> Self {
        self.target = Some(target.into());
        self
    }

    /// A value that is not allowed; `target` names the field.
    pub fn invalid(target: &str, message: impl Into<String>) -> Self {
        Self::new(400, "InvalidPropertyValue", message).about(target)
    }

    /// Status of a request that fails because the disk is full.
    pub const INSUFFICIENT_STORAGE: u16 = 507;

    pub fn insufficient_storage() -> Self {
        Self::new(
            Self::INSUFFICIENT_STORAGE,
            "InsufficientStorage",
            "The server's disk is full: nothing was changed. Free some space in the server's data directory and try again.",
        )
    }

    pub fn bad_body(message: impl Into<String>) -> Self {
        Self::new(400, "InvalidRequestBody", message)
    }

    pub fn conflict(code: &str, message: impl Into<String>) -> Self {
        Self::new(409, code, message)
    }

    pub fn workspace_not_found(name: &str) -> Self {
        Self::new(404, "WorkspaceNotFound", format!("The specified workspace {name} is not found"))
    }

    pub fn cluster_not_found(name: &str) -> Self {
        Self::new(404, "ClusterNotFound", format!("The specified cluster {name} is not found"))
    }

    pub fn file_server_not_found(name: &str) -> Self {
        Self::new(404, "FileServerNotFound", format!("The specified file server {name} is not found"))
    }

    pub fn experiment_not_found(name: &str) -> Self {
        Self::new(404, "ExperimentNotFound", format!("The specified experiment {name} is not found"))
    }

    pub fn job_not_found(name: &str) -> Self {
        Self::new(404, "JobNotFound", format!("The specified job {name} is not found"))
    }

    pub fn group_not_found(name: &str) -> Self {
        Self::new(404, "ResourceGroupNotFound", format!("Resource group '{name}' could not be found."))
    }

    pub fn account_not_found(group: &str, name: &str) -> Self {
        let what = format!("The Resource 'Microsoft.Storage/storageAccounts/{name}'");
        Self::new(404, "ResourceNotFound", format!("{what} under resource group '{group}' was not found."))
    }

    pub fn unauthorized(message: impl Into<String>) -> Self {
        Self::new(401, "AuthenticationFailed", message)
    }

    pub fn envelope(&self) -> ErrorEnvelope {
        ErrorEnvelope {
            error: ErrorBody { code: self.code.clone(), message: self.message.clone(), target: self.target.clone() },
        }
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ErrorEnvelope {
    pub error: ErrorBody,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ErrorBody {
    pub code: String,
    pub message: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
}
