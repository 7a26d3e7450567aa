//! Headers of answers: those on every answer, those of a thing's properties, and the SMB ones
//! that newer versions expect on files and directories (and that break an older SDK when they
//! appear on shares).

use axum::{body::Body, response::Response};
use corro_shares::{Properties, Stat};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};

use crate::protocol::request::StorageRequest;
use crate::protocol::smb_properties::SmbProperties;
use crate::protocol::time_format::http_date;

/// The name of a header, checked by the compiler.
macro_rules! header_name {
    ($text:literal) => {
        const { http::HeaderName::from_static($text) }
    };
}
pub(crate) use header_name;

/// An answer without a body.
pub(crate) fn empty(status: u16) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::from_u16(status).expect("callers pass literal statuses");
    response
}

/// A 200 with an XML document.
pub(crate) fn xml_document(xml: String) -> Response {
    let mut response = Response::new(Body::from(xml));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/xml"));
    response
}

/// Puts the headers that all answers have on one.
pub(crate) fn add_common_headers(request: &StorageRequest, mut response: Response) -> Response {
    let headers = response.headers_mut();
    set_owned_header(headers, header_name!("x-ms-request-id"), request.request_id.clone());
    set_owned_header(headers, header_name!("x-ms-version"), request.version.clone());
    let server = match request.is_blob_service {
        true => "Windows-Azure-Blob/1.0 Microsoft-HTTPAPI/2.0",
        false => "Windows-Azure-File/1.0 Microsoft-HTTPAPI/2.0",
    };
    headers.insert(header::SERVER, HeaderValue::from_static(server));
    // Content comes from jobs: no browser shall take it for a page.
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    // Nor run it, whatever type its maker gave it: it would run with the rights of this address.
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static("default-src 'none'; sandbox"));
    if let Some(id) = request.headers.get("x-ms-client-request-id") {
        headers.insert("x-ms-client-request-id", id.clone());
    }
    response
}

/// `ETag` and `Last-Modified`.
pub(crate) fn set_etag_and_modified(headers: &mut HeaderMap, stat: &Stat) {
    set_owned_header(headers, header::ETAG, stat.etag.clone());
    set_owned_header(headers, header::LAST_MODIFIED, http_date(stat.modified));
}

/// The SMB properties, for callers that know them. `parent` is the id of the directory above.
pub(crate) fn set_smb_headers(
    headers: &mut HeaderMap,
    request: &StorageRequest,
    (stat, properties): (&Stat, &Properties),
    parent: u64,
) {
    if !request.supports_smb_headers() || request.is_blob_service {
        return;
    }
    let smb = SmbProperties::of(stat, properties);
    set_owned_header(headers, header_name!("x-ms-file-attributes"), smb.attributes);
    set_owned_header(headers, header_name!("x-ms-file-creation-time"), smb.created);
    set_owned_header(headers, header_name!("x-ms-file-last-write-time"), smb.written);
    set_owned_header(headers, header_name!("x-ms-file-change-time"), smb.changed);
    headers.insert(header_name!("x-ms-file-id"), HeaderValue::from(stat.id));
    headers.insert(header_name!("x-ms-file-parent-id"), HeaderValue::from(parent));
    set_owned_header(headers, header_name!("x-ms-file-permission-key"), smb.permission_key);
}

/// As [`set`], for what is on every answer: the name was checked when this was compiled, and the text is not copied.
pub(crate) fn set_owned_header(headers: &mut HeaderMap, name: HeaderName, value: String) {
    if let Ok(value) = HeaderValue::try_from(value) {
        headers.insert(name, value);
    }
}

pub(crate) fn set_header(headers: &mut HeaderMap, name: &'static str, value: &str) {
    // Values made here are printable; one that is not (it came with a link) is left out.
    if let Ok(value) = HeaderValue::from_str(value) {
        headers.insert(HeaderName::from_static(name), value);
    }
}
