//! Every error of the file service: code, status, message. The one location that maps them. The
//! user gets code and message; the operator's detail (the disk's own error) goes to the log.

use std::borrow::Cow;
use std::time::Duration;

use corro_shares::ShareError;

use crate::protocol::error_codes::status_and_message;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StorageError {
    pub code: &'static str,
    pub(super) message: Cow<'static, str>,
    /// For 416: how long the file is.
    pub(super) file_length: Option<u64>,
    /// For 503: when to come again.
    pub(super) retry_after: Duration,
    /// The header that is missing or wrong.
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

    /// A link that was made for somebody whose login was ended since.
    pub fn login_ended() -> Self {
        Self::authentication_failed()
            .with_message("The one this link was made for is not logged in any more. Ask for a new link.")
    }

    pub fn internal() -> Self {
        Self::new("InternalError")
    }

    /// The header has a value that cannot be used.
    pub fn invalid_header(name: &'static str) -> Self {
        let error = StorageError { header: Some(name), ..Self::new("InvalidHeaderValue") };
        error.with_message(format!("The value of the header {name} is not one that can be used."))
    }

    pub fn missing_header(name: &'static str) -> Self {
        let error = StorageError { header: Some(name), ..Self::new("MissingRequiredHeader") };
        error.with_message(format!("The request needs the header {name}."))
    }

    pub fn range_not_satisfiable(file_length: u64) -> Self {
        StorageError { file_length: Some(file_length), ..Self::new("InvalidRange") }
    }

    /// More requests than are allowed; `who` goes after "requests".
    pub fn rate_limited(who: &str, retry_after: Duration) -> Self {
        let error = StorageError { retry_after, ..Self::new("ServerBusy") };
        let seconds = error.retry_after_seconds();
        error.with_message(format!("More requests {who} came than the server allows: try again after {seconds} s."))
    }

    /// Whole, and at least one: a client that comes back at once finds the server as busy.
    pub(super) fn retry_after_seconds(&self) -> u64 {
        (self.retry_after.as_secs_f64().ceil() as u64).max(1)
    }

    pub fn with_message(self, message: impl Into<Cow<'static, str>>) -> Self {
        StorageError { message: message.into(), ..self }
    }

    /// For reads: something of the other kind is, to the asker, not there.
    pub fn type_mismatch_as_not_found(self) -> Self {
        match self.code {
            "ResourceTypeMismatch" => Self::new("ResourceNotFound"),
            _ => self,
        }
    }

    /// The same in the words of the blob service.
    pub fn into_blob_error(self) -> Self {
        let code = match self.code {
            "ResourceNotFound" | "ParentNotFound" => "BlobNotFound",
            "ResourceAlreadyExists" => "BlobAlreadyExists",
            "LeaseIdMismatchWithFileOperation" => "LeaseIdMismatchWithBlobOperation",
            "LeaseNotPresentWithFileOperation" => "LeaseNotPresentWithBlobOperation",
            "InvalidFileOrDirectoryPathName" => "InvalidResourceName",
            "ResourceTypeMismatch" => {
                let message = "A blob cannot be kept under this name here, where blobs are files in directories: \
                               another one lies below it, or it lies below another one.";
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
            // Where the cause is the operator's, the message is the code's own.
            ShareError::Io { .. } | ShareError::ShareIo { .. } => return StorageError { cause, ..Self::new(code) },
            // The service's sentence is what tools and people know; ours says the path.
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
