//! Every refusal of the file service: code, status, message. The one place that maps them. The
//! user gets code and message; the operator's detail (the disk's own error) goes to the log.

use std::borrow::Cow;
use std::time::Duration;

use axum::{body::Body, response::Response};
use corro_model::Timestamp;
use corro_shares::ShareError;
use http::{HeaderValue, Method, StatusCode, header};
use hyper::ext::ReasonPhrase;

use super::{call::Call, xml};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Refusal {
    pub code: &'static str,
    message: Cow<'static, str>,
    /// For 416: how long the file is.
    length: Option<u64>,
    /// For 503: when to come again.
    wait: Duration,
    /// The header that is missing or wrong.
    header: Option<&'static str>,
    /// For the log only.
    cause: Option<String>,
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
    fn wait_seconds(&self) -> u64 {
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

    pub fn into_response(self, call: &Call, now: i64) -> Response {
        let (status, _) = row(self.code);
        if let Some(cause) = &self.cause {
            tracing::error!(request = call.request_id, account = call.account, code = self.code, "{cause}");
        }
        let bodiless = call.method == Method::HEAD || status == StatusCode::NOT_MODIFIED;
        let mut response = Response::new(match bodiless {
            true => Body::empty(),
            false => Body::from(self.document(call, now)),
        });
        *response.status_mut() = status;
        // Of an answer without a body, clients show the reason.
        let reason = self.message.lines().next().unwrap_or_default().as_bytes().to_vec();
        if let Ok(reason) = ReasonPhrase::try_from(reason) {
            response.extensions_mut().insert(reason);
        }
        let headers = response.headers_mut();
        headers.insert("x-ms-error-code", HeaderValue::from_static(self.code));
        if !bodiless {
            headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/xml"));
        }
        if status == StatusCode::SERVICE_UNAVAILABLE {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(self.wait_seconds()));
        }
        if let Some(length) = self.length {
            let value = format!("bytes */{length}");
            headers.insert(header::CONTENT_RANGE, HeaderValue::try_from(value).expect("digits and spaces"));
        }
        response
    }

    fn document(&self, call: &Call, now: i64) -> String {
        let header = self.header.map(|name| format!("<HeaderName>{name}</HeaderName>")).unwrap_or_default();
        format!(
            "{}<Error><Code>{}</Code><Message>{}\nRequestId:{}\nTime:{}</Message>{header}</Error>",
            xml::DECLARATION,
            self.code,
            xml::escape(&self.message),
            call.request_id,
            Timestamp::from_millis(now.saturating_mul(1000)).whole_seconds(),
        )
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

/// Status and message of a code. 5xx only for what a later try may mend: clients repeat those with
/// long pauses.
fn row(code: &str) -> (StatusCode, &'static str) {
    let (status, message) = match code {
        "NoAuthenticationInformation" => {
            (401, "The request is neither signed with the account's key nor does it carry a shared access signature.")
        }
        "AuthenticationFailed" => (
            403,
            "Server failed to authenticate the request. Make sure the value of Authorization header is formed correctly including the signature.",
        ),
        "AuthorizationPermissionMismatch" => {
            (403, "This request is not authorized to perform this operation using this permission.")
        }
        "AuthorizationServiceMismatch" => {
            (403, "This request is not authorized to perform this operation using this service.")
        }
        "AuthorizationResourceTypeMismatch" => {
            (403, "This request is not authorized to perform this operation using this resource type.")
        }
        "AuthorizationSourceIPMismatch" => {
            (403, "This request is not authorized to perform this operation using this source IP.")
        }
        "AuthorizationProtocolMismatch" => {
            (403, "This request is not authorized to perform this operation using this protocol. Use https.")
        }
        "CorsPreflightFailure" => {
            (403, "CORS not enabled or no matching rule found for this request. Set rules in the service's properties.")
        }
        "InsufficientAccountPermissions" => (403, "The server may not access this resource."),
        "ShareNotFound" => (404, "The specified share does not exist."),
        "ContainerNotFound" => (404, "The specified container does not exist."),
        "ShareSnapshotNotFound" => (404, "The specified share snapshot does not exist."),
        "CannotVerifyCopySource" => (404, "The specified copy source does not exist or may not be read."),
        "ResourceNotFound" => (404, "The specified resource does not exist."),
        "BlobNotFound" => (404, "The specified blob does not exist."),
        "BlobAlreadyExists" => (409, "The specified blob already exists."),
        "BlobPathConflict" => (409, "A blob cannot be kept under this name."),
        "InvalidBlobType" => (409, "The blob type is invalid for this operation: only block blobs are kept here."),
        "PublicAccessNotPermitted" => {
            (409, "Public access is not permitted on this storage account. Leave it out, and give out links instead.")
        }
        "FeatureNotSupported" => (409, "This cannot be had here."),
        "InvalidBlobOrBlock" => (400, "The specified blob or block content is invalid."),
        "InvalidBlockId" => (400, "The specified block ID is invalid. The block ID must be Base64-encoded."),
        "InvalidBlockList" => (400, "The specified block list is invalid: one of its blocks was not uploaded."),
        "BlockListTooLong" => (400, "The block list may not contain more than 50,000 blocks."),
        "LeaseIdMismatchWithBlobOperation" => (412, "The lease ID specified did not match the lease ID for the blob."),
        "LeaseNotPresentWithBlobOperation" => (412, "There is currently no lease on the blob."),
        "ParentNotFound" => (404, "The specified parent path does not exist."),
        "UnsupportedHttpVerb" => (405, "The resource does not support the specified HTTP verb."),
        "OperationTimedOut" => (408, "The body of the request did not arrive in time."),
        "ServerBusy" => (503, "Too many uploads are under way: try again later."),
        "ShareAlreadyExists" => (409, "The specified share already exists."),
        "ContainerAlreadyExists" => (409, "The specified container already exists."),
        "ResourceAlreadyExists" => (409, "The specified resource already exists."),
        "ResourceTypeMismatch" => {
            (409, "The specified resource type does not match the type of the existing resource.")
        }
        "ShareHasSnapshots" => (
            409,
            "The share has snapshots. Delete them with it (x-ms-delete-snapshots: include), or each by itself first.",
        ),
        "ShareSnapshotOperationNotSupported" => (409, "A snapshot of a share can only be read."),
        "ReadOnlyAttribute" => (409, "The specified resource is read-only and cannot be modified at this time."),
        "LeaseAlreadyPresent" => (409, "There is already a lease present."),
        "LeaseIdMismatchWithLeaseOperation" => {
            (409, "The lease ID specified did not match the lease ID for the resource.")
        }
        "LeaseNotPresentWithLeaseOperation" => (409, "There is currently no lease on the resource."),
        "LeaseIsBreakingAndCannotBeAcquired" => {
            (409, "The lease is being broken and cannot be acquired until it is broken.")
        }
        "LeaseIsBreakingAndCannotBeChanged" => (409, "The lease is being broken and cannot be changed."),
        "LeaseIsBrokenAndCannotBeRenewed" => (409, "The lease was broken explicitly and cannot be renewed."),
        "LeaseIdMissing" => {
            (412, "There is currently a lease on the resource and no lease ID was specified in the request.")
        }
        "LeaseIdMismatchWithFileOperation" => (412, "The lease ID specified did not match the lease ID for the file."),
        "LeaseIdMismatchWithContainerOperation" => {
            (412, "The lease ID specified did not match the lease ID for the share.")
        }
        "LeaseNotPresentWithFileOperation" => (412, "There is currently no lease on the file."),
        "LeaseNotPresentWithContainerOperation" => (412, "There is currently no lease on the share."),
        "LeaseLost" => (412, "A lease ID was specified, but the lease for the file has been broken or has expired."),
        "SourceConditionNotMet" => (412, "The source condition specified using HTTP conditional header(s) is not met."),
        "NoPendingCopyOperation" => (409, "There is currently no pending copy operation."),
        "CopyAborted" => (409, "The copy was stopped."),
        "DirectoryNotEmpty" => (409, "The specified directory is not empty."),
        "ShareSizeLimitReached" => (409, "The share has no space left."),
        "MissingContentLengthHeader" => (411, "The Content-Length header was not specified."),
        "RequestBodyTooLarge" => {
            (413, "The size of the request body exceeds the maximum size permitted, which is 4 MiB for one range.")
        }
        "NotModified" => (304, "The resource is as the caller knows it."),
        "ConditionNotMet" => (412, "The condition specified using HTTP conditional header(s) is not met."),
        "InvalidRange" => (416, "The range specified is invalid for the current size of the resource."),
        "InternalError" => (500, "The server encountered an internal error. Please retry the request."),
        "InvalidFileOrDirectoryPathName" => (400, "The specified file or directory path name is invalid."),
        "InvalidHeaderValue" => (400, "The value provided for one of the HTTP headers was not in the correct format."),
        "InvalidInput" => (400, "The body of the request is not as long as its Content-Length says."),
        "InvalidMetadata" => (400, "The metadata specified is invalid. It has characters that are not permitted."),
        "MetadataTooLarge" => {
            (400, "The size of the specified metadata exceeds the maximum size permitted, which is 8 KiB.")
        }
        "InvalidQueryParameterValue" => (400, "The query parameters name no operation on this resource."),
        "InvalidResourceName" => (400, "The specified resource name is invalid."),
        "InvalidUri" => (400, "The requested URI does not represent any resource on the server."),
        "Md5Mismatch" => {
            (400, "The MD5 value specified in the request did not match the MD5 value calculated by the server.")
        }
        "Crc64Mismatch" => {
            (400, "The CRC64 value specified in the request did not match the CRC64 value calculated by the server.")
        }
        "InvalidXmlDocument" => (400, "The specified XML is not syntactically or otherwise valid."),
        "InvalidXmlNodeValue" => (400, "The value provided for one of the XML nodes was not in the correct format."),
        "UnsupportedXmlNode" => (400, "One of the XML nodes specified in the request body is not supported."),
        "MissingRequiredXmlNode" => (400, "A required XML node was not specified in the request body."),
        "MissingRequiredHeader" => (400, "An HTTP header that is mandatory for this request is not specified."),
        "OutOfRangeQueryParameterValue" => {
            (400, "A query parameter specified in the request is outside the permissible range.")
        }
        _ => (500, "The server encountered an internal error. Please retry the request."),
    };
    (StatusCode::from_u16(status).expect("the table holds real statuses"), message)
}
