//! Every refusal of the file service: code, status, message. The one place that maps them. The
//! user gets code and message; the operator's detail (the disk's own error) goes to the log.

use std::borrow::Cow;
use std::time::Duration;

use corro_shares::ShareError;

use crate::protocol::error_codes::row;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub code: &'static str,
    pub(super) message: Cow<'static, str>,
    /// For 416: how long the file is.
    pub(super) length: Option<u64>,
    /// For 503: when to come again.
    pub(super) wait: Duration,
    /// The header that is missing or wrong.
    pub(super) header: Option<&'static str>,
    /// For the log only.
    pub(super) cause: Option<String>,
}

impl Refusal {
    pub fn new(code: &'static str) -> Self {
        Refusal {
            code,
            message: Cow::Borrowed(row(code).1),
            length: None,
            wait: Duration::ZERO,
            header: None,
            cause: None,
        }
    }

    pub fn authentication() -> Self {
        Self::new("AuthenticationFailed")
    }

    /// A link that was made for somebody whose login was ended since.
    pub fn revoked() -> Self {
        Self::authentication().saying("The one this link was made for is not logged in any more. Ask for a new link.")
    }

    pub fn internal() -> Self {
        Self::new("InternalError")
    }

    /// The header has a value that cannot be used.
    pub fn header(name: &'static str) -> Self {
        let refusal = Refusal { header: Some(name), ..Self::new("InvalidHeaderValue") };
        refusal.saying(format!("The value of the header {name} is not one that can be used."))
    }

    pub fn missing_header(name: &'static str) -> Self {
        let refusal = Refusal { header: Some(name), ..Self::new("MissingRequiredHeader") };
        refusal.saying(format!("The request needs the header {name}."))
    }

    pub fn range_beyond(length: u64) -> Self {
        Refusal { length: Some(length), ..Self::new("InvalidRange") }
    }

    /// More requests than are allowed; `who` goes after "requests".
    pub fn too_often(who: &str, wait: Duration) -> Self {
        let refusal = Refusal { wait, ..Self::new("ServerBusy") };
        let seconds = refusal.wait_seconds();
        refusal.saying(format!("More requests {who} came than the server allows: try again after {seconds} s."))
    }

    /// Whole, and at least one: a client that comes back at once finds the server as busy.
    pub(super) fn wait_seconds(&self) -> u64 {
        (self.wait.as_secs_f64().ceil() as u64).max(1)
    }

    pub fn saying(self, message: impl Into<Cow<'static, str>>) -> Self {
        Refusal { message: message.into(), ..self }
    }

    /// For reads: something of the other kind is, to the asker, not there.
    pub fn kind_as_missing(self) -> Self {
        match self.code {
            "ResourceTypeMismatch" => Self::new("ResourceNotFound"),
            _ => self,
        }
    }

    /// The same in the words of the blob service.
    pub fn of_blobs(self) -> Self {
        let code = match self.code {
            "ResourceNotFound" | "ParentNotFound" => "BlobNotFound",
            "ResourceAlreadyExists" => "BlobAlreadyExists",
            "LeaseIdMismatchWithFileOperation" => "LeaseIdMismatchWithBlobOperation",
            "LeaseNotPresentWithFileOperation" => "LeaseNotPresentWithBlobOperation",
            "InvalidFileOrDirectoryPathName" => "InvalidResourceName",
            "ResourceTypeMismatch" => {
                let message = "A blob cannot be kept under this name here, where blobs are files in directories: \
                               another one lies below it, or it lies below another one.";
                return Refusal { code: "BlobPathConflict", ..self }.saying(message);
            }
            _ => return self,
        };
        Refusal { code, message: Cow::Borrowed(row(code).1), ..self }
    }
}

impl From<ShareError> for Refusal {
    fn from(error: ShareError) -> Self {
        let code = error.code();
        let cause = std::error::Error::source(&error).map(|source| format!("{error}: {source}"));
        let message = match &error {
            // Where the cause is the operator's, the message is the code's own.
            ShareError::Io { .. } | ShareError::ShareIo { .. } => return Refusal { cause, ..Self::new(code) },
            // The service's sentence is what tools and people know; ours says the path.
            ShareError::ShareNotFound(_)
            | ShareError::ShareAlreadyExists(_)
            | ShareError::ContainerNotFound(_)
            | ShareError::ContainerAlreadyExists(_) => return Self::new(code),
            ShareError::OutOfRange { len, .. } => {
                return Self::range_beyond(*len).saying(format!("{}.", sentence(&error)));
            }
            _ => format!("{} {}.", row(code).1, sentence(&error)),
        };
        Refusal { cause, ..Self::new(code).saying(message) }
    }
}

fn sentence(error: &ShareError) -> String {
    let text = error.to_string();
    let mut chars = text.chars();
    chars.next().map(|first| first.to_uppercase().chain(chars).collect()).unwrap_or_default()
}
