//! Responses and their headers: common ones, ETag and time, and the SMB properties that newer API versions have on
//! files and directories. An older SDK fails if SMB headers appear on shares.

use axum::{body::Body, response::Response};
use corro_shares::{Properties, Stat};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};

use crate::protocol::request::StorageRequest;
use crate::protocol::smb_properties::SmbProperties;
use crate::protocol::time_format::http_date;

/// Header name, validated at compile time.
macro_rules! header_name {
    ($text:literal) => {
        const { http::HeaderName::from_static($text) }
    };
}
pub(crate) use header_name;

/// Response without a body.
pub(crate) fn empty(status: u16) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::from_u16(status).expect("callers pass literal statuses");
    response
}

/// 200 with an XML document.
pub(crate) fn xml_document(xml: String) -> Response {
    let mut response = Response::new(Body::from(xml));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/xml"));
    response
}

/// Sets the headers that every response has.
pub(crate) fn add_common_headers(request: &StorageRequest, mut response: Response) -> Response {
    let headers = response.headers_mut();
    set_owned_header(headers, header_name!("x-ms-request-id"), request.request_id.clone());
    set_owned_header(headers, header_name!("x-ms-version"), request.version.clone());
    let server = match request.is_blob_service {
        true => "Windows-Azure-Blob/1.0 Microsoft-HTTPAPI/2.0",
        false => "Windows-Azure-File/1.0 Microsoft-HTTPAPI/2.0",
    };
    headers.insert(header::SERVER, HeaderValue::from_static(server));
    // Content is written by jobs: a browser must not sniff it as a page.
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    // Nor run it as a script, whatever its content type: it would have the rights of this origin.
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

/// Sets the SMB properties if the API version has them. `parent` is the id of the parent directory.
pub(crate) fn set_smb_headers(
    headers: &mut HeaderMap,
    request: &StorageRequest,
    (stat, properties): (&Stat, &Properties),
    parent: u64,
) {
    if !request.supports_smb_headers() || request.is_blob_service {
        return;
    }
    let smb = SmbProperties::load(stat, properties);
    set_owned_header(headers, header_name!("x-ms-file-attributes"), smb.attributes);
    set_owned_header(headers, header_name!("x-ms-file-creation-time"), smb.created);
    set_owned_header(headers, header_name!("x-ms-file-last-write-time"), smb.written);
    set_owned_header(headers, header_name!("x-ms-file-change-time"), smb.changed);
    headers.insert(header_name!("x-ms-file-id"), HeaderValue::from(stat.id));
    headers.insert(header_name!("x-ms-file-parent-id"), HeaderValue::from(parent));
    set_owned_header(headers, header_name!("x-ms-file-permission-key"), smb.permission_key);
}

/// Like [`set_header`], for headers of every response: the name is validated at compile time and the text is not
/// copied.
pub(crate) fn set_owned_header(headers: &mut HeaderMap, name: HeaderName, value: String) {
    if let Ok(value) = HeaderValue::try_from(value) {
        headers.insert(name, value);
    }
}

pub(crate) fn set_header(headers: &mut HeaderMap, name: &'static str, value: &str) {
    // A value from a SAS can be unprintable; it is left out.
    if let Ok(value) = HeaderValue::from_str(value) {
        headers.insert(HeaderName::from_static(name), value);
    }
}
