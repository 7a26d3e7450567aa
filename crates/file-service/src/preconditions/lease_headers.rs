//! Lease ids in request headers and lease state in response headers.

use crate::preconditions::lease::Lease;
use crate::protocol::error::StorageError;
use crate::protocol::request::StorageRequest;
use crate::protocol::response;

use http::HeaderMap;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LeaseTarget {
    File,
    Share,
}

/// First API version in which responses about shares have lease headers. Older clients fail on them.
const SHARE_LEASE_VERSION: &str = "2020-02-10";

/// First API version in which responses about files have lease headers.
const FILE_LEASE_VERSION: &str = "2019-02-02";

pub(crate) fn reports_share_leases(request: &StorageRequest) -> bool {
    request.version.as_str() >= SHARE_LEASE_VERSION
}

pub(crate) fn reports_file_leases(request: &StorageRequest) -> bool {
    request.version.as_str() >= FILE_LEASE_VERSION
}

/// Sets state, status and duration of a lease.
pub(crate) fn set_lease_headers(headers: &mut HeaderMap, lease: &Lease) {
    response::set_header(headers, "x-ms-lease-status", lease.status());
    response::set_header(headers, "x-ms-lease-state", lease.state());
    if let Some(duration) = lease.duration() {
        response::set_header(headers, "x-ms-lease-duration", duration);
    }
}

/// Parses a lease id, a GUID, into its canonical form.
pub(crate) fn lease_id(request: &StorageRequest, header: &'static str) -> Result<Option<String>, StorageError> {
    if !request.headers.contains_key(header) {
        return Ok(None);
    }
    let id = request.header(header).and_then(|text| uuid::Uuid::parse_str(text.trim()).ok());
    id.map(|id| Some(id.to_string())).ok_or(StorageError::invalid_header(header))
}
