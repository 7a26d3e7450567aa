//! Error of the file and blob services: code, message and details. The client gets code and message; the cause (an I/O
//! error) goes to the log only.

use std::borrow::Cow;
use std::time::Duration;

use corro_shares::ShareError;

use crate::protocol::error_codes::status_and_message;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StorageError {
    pub code: &'static str,
    pub(super) message: Cow<'static, str>,
    /// For 416: length of the file.
    pub(super) file_length: Option<u64>,
    /// For 503: time to wait before a retry.
    pub(super) retry_after: Duration,
    /// Name of the missing or invalid header.
    pub(super) header: Option<&'static str>,
    /// For the log only.
    pub(super) cause: Option<String>,
}

impl StorageError {
    pub fn new(code: &'static str) -> Self {
        StorageError {
            code,
            message: Cow::Borrowed(status_and_message(code).1),
            file_length: None,
            retry_after: Duration::ZERO,
            header: None,
            cause: None,
        }
    }

    pub fn authentication_failed() -> Self {
        Self::new("AuthenticationFailed")
    }

    /// The login that the SAS was made for has ended.
    pub fn login_ended() -> Self {
        Self::authentication_failed()
            .with_message("The login that this link was made for has ended. Ask for a new link.")
    }

    pub fn internal() -> Self {
        Self::new("InternalError")
    }

    /// The header has an invalid value.
    pub fn invalid_header(name: &'static str) -> Self {
        let error = StorageError { header: Some(name), ..Self::new("InvalidHeaderValue") };
        error.with_message(format!("The value of the header {name} is invalid."))
    }

    pub fn missing_header(name: &'static str) -> Self {
        let error = StorageError { header: Some(name), ..Self::new("MissingRequiredHeader") };
        error.with_message(format!("The request requires the header {name}."))
    }

    pub fn range_not_satisfiable(file_length: u64) -> Self {
        StorageError { file_length: Some(file_length), ..Self::new("InvalidRange") }
    }

    /// `who` continues the sentence "Too many requests …".
    pub fn rate_limited(who: &str, retry_after: Duration) -> Self {
        let error = StorageError { retry_after, ..Self::new("ServerBusy") };
        let seconds = error.retry_after_seconds();
        error.with_message(format!("Too many requests {who}. Retry after {seconds} s."))
    }

    /// Whole seconds, at least one.
    pub(super) fn retry_after_seconds(&self) -> u64 {
        (self.retry_after.as_secs_f64().ceil() as u64).max(1)
    }

    pub fn with_message(self, message: impl Into<Cow<'static, str>>) -> Self {
        StorageError { message: message.into(), ..self }
    }

    /// For reads: an entry of the other type does not exist for the caller.
    pub fn type_mismatch_as_not_found(self) -> Self {
        match self.code {
            "ResourceTypeMismatch" => Self::new("ResourceNotFound"),
            _ => self,
        }
    }

    /// Translates the error into a code of the blob service.
    pub fn into_blob_error(self) -> Self {
        let code = match self.code {
            "ResourceNotFound" | "ParentNotFound" => "BlobNotFound",
            "ResourceAlreadyExists" => "BlobAlreadyExists",
            "LeaseIdMismatchWithFileOperation" => "LeaseIdMismatchWithBlobOperation",
            "LeaseNotPresentWithFileOperation" => "LeaseNotPresentWithBlobOperation",
            "InvalidFileOrDirectoryPathName" => "InvalidResourceName",
            "ResourceTypeMismatch" => {
                let message = "The blob name conflicts with another one, because blobs are stored as files in directories: \
                               another blob's name is a directory of this one, or this name is a directory of another.";
                return StorageError { code: "BlobPathConflict", ..self }.with_message(message);
            }
            _ => return self,
        };
        StorageError { code, message: Cow::Borrowed(status_and_message(code).1), ..self }
    }
}

impl From<ShareError> for StorageError {
    fn from(error: ShareError) -> Self {
        let code = error.code();
        let cause = std::error::Error::source(&error).map(|source| format!("{error}: {source}"));
        let message = match &error {
            // The cause is for the operator, so the client gets the default message.
            ShareError::Io { .. } | ShareError::ShareIo { .. } => return StorageError { cause, ..Self::new(code) },
            // Tools and people know Azure's message; ours would add only the path.
            ShareError::ShareNotFound(_)
            | ShareError::ShareAlreadyExists(_)
            | ShareError::ContainerNotFound(_)
            | ShareError::ContainerAlreadyExists(_) => return Self::new(code),
            ShareError::OutOfRange { len, .. } => {
                return Self::range_not_satisfiable(*len).with_message(format!("{}.", sentence(&error)));
            }
            _ => format!("{} {}.", status_and_message(code).1, sentence(&error)),
        };
        StorageError { cause, ..Self::new(code).with_message(message) }
    }
}

fn sentence(error: &ShareError) -> String {
    let text = error.to_string();
    let mut chars = text.chars();
    chars.next().map(|first| first.to_uppercase().chain(chars).collect()).unwrap_or_default()
}
