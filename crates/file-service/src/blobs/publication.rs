//! Publishes a staged file as a blob, in one step.

use axum::response::Response;
use corro_shares::{Properties, Shares, StagedFile, Stat};

use crate::context::{Location, OperationContext};
use crate::files::file_ops::creation_error;
use crate::preconditions::Preconditions;
use crate::preconditions::lease::Lease;
use crate::protocol::error::StorageError;
use crate::protocol::request::StorageRequest;
use crate::protocol::{metadata_headers, response};

/// Properties and preconditions of a staged file that is to become a blob.
pub(crate) struct BlobPublication {
    pub properties: Properties,
    preconditions: Preconditions,
    may_replace: bool,
    /// Fail if the blob exists (`If-None-Match: *`).
    must_not_exist: bool,
}

impl BlobPublication {
    pub fn parse(context: &OperationContext<'_>) -> Result<Self, StorageError> {
        let request = context.request;
        let must_not_exist = request.header("if-none-match").is_some_and(|tags| tags.trim() == "*");
        let preconditions = Preconditions::parse(request, (context.state.now)())?;
        // The rename itself fails if the blob exists, so that only one of two concurrent uploads succeeds.
        let preconditions = if must_not_exist { preconditions.without_conditions() } else { preconditions };
        Ok(BlobPublication {
            properties: metadata_headers::parse_properties(request)?,
            preconditions,
            may_replace: context.may_replace,
            must_not_exist,
        })
    }

    pub fn publish(self, shares: &Shares, location: &Location, staged: StagedFile) -> Result<Stat, StorageError> {
        let BlobPublication { mut properties, preconditions, may_replace, must_not_exist } = self;
        let container = location.open(shares)?;
        // A directory is not a blob. An empty one makes way for the blob when it is published.
        match preconditions.check_write(&container, &location.path) {
            Err(error) if error.code == "ResourceNotFound" => {}
            checked => checked?,
        }
        if let Ok((_, before)) = container.describe(&location.path) {
            Lease::copy(&before, &mut properties);
        }
        let replace = may_replace && !must_not_exist;
        let published = staged.publish(&container, &location.path, replace, &properties);
        published.map_err(|error| if must_not_exist { error.into() } else { creation_error(error, may_replace) })
    }
}

/// Response to a successful upload.
pub(crate) fn created_response(stat: &Stat) -> Response {
    let mut response = response::empty(201);
    response::set_etag_and_modified(response.headers_mut(), stat);
    response::set_header(response.headers_mut(), "x-ms-request-server-encrypted", "true");
    response
}

pub(crate) fn parse_body_length(request: &StorageRequest) -> Result<u64, StorageError> {
    match request.number("content-length")? {
        None => Err(StorageError::new("MissingContentLengthHeader")),
        Some(len) if len > MAX_BODY_BYTES => Err(StorageError::new("RequestBodyTooLarge")
            .with_message("The body is larger than 5000 MiB, the most for one request: upload the blob in blocks.")),
        Some(len) => Ok(len),
    }
}

/// Azure's limit for the body of one request: 5000 MiB.
const MAX_BODY_BYTES: u64 = 5000 << 20;
