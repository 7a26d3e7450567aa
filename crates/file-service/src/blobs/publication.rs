//! Publishes a staged file as a blob, in one step.

use axum::response::Response;
use corro_shares::{Draft, Properties, Shares, Stat};

use crate::context::{Location, OperationContext};
use crate::files::file_ops::creation_error;
use crate::preconditions::Preconditions;
use crate::preconditions::lease::Lease;
use crate::protocol::error::StorageError;
use crate::protocol::request::StorageRequest;
use crate::protocol::{metadata_headers, response};

/// How a draft becomes a blob: what is kept with it, and what must hold.
pub(crate) struct BlobPublication {
    pub properties: Properties,
    preconditions: Preconditions,
    may_replace: bool,
    /// Only if there is none of the name.
    must_not_exist: bool,
}

impl BlobPublication {
    pub fn parse(context: &OperationContext<'_>) -> Result<Self, StorageError> {
        let request = context.request;
        let must_not_exist = request.header("if-none-match").is_some_and(|tags| tags.trim() == "*");
        let preconditions = Preconditions::parse(request, (context.state.now)())?;
        // Said by the step that makes it, so that of two who ask at once one is refused.
        let preconditions = if must_not_exist { preconditions.without_conditions() } else { preconditions };
        Ok(BlobPublication {
            properties: metadata_headers::parse_properties(request)?,
            preconditions,
            may_replace: context.may_replace,
            must_not_exist,
        })
    }

    pub fn publish(self, shares: &Shares, location: &Location, draft: Draft) -> Result<Stat, StorageError> {
        let BlobPublication { mut properties, preconditions, may_replace, must_not_exist } = self;
        let container = location.open(shares)?;
        // A directory is no blob: whether it can make room for one is seen when it must.
        match preconditions.check_write(&container, &location.path) {
            Err(refusal) if refusal.code == "ResourceNotFound" => {}
            checked => checked?,
        }
        if let Ok((_, before)) = container.describe(&location.path) {
            Lease::copy(&before, &mut properties);
        }
        let replace = may_replace && !must_not_exist;
        let published = draft.publish(&container, &location.path, replace, &properties);
        published.map_err(|error| if must_not_exist { error.into() } else { creation_error(error, may_replace) })
    }
}

/// The answer to one that was created_response.
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

/// The service's largest body of one request: 5000 MiB.
const MAX_BODY_BYTES: u64 = 5000 << 20;
