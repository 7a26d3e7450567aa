//! Headers of answers: those on every answer, those of a thing's properties, and the SMB ones
//! that newer versions expect on files and directories (and that break an older SDK when they
//! appear on shares).

use axum::{body::Body, response::Response};
use corro_shares::{Properties, Stat};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};

use crate::protocol::request::Call;
use crate::protocol::smb_properties::Shown;
use crate::protocol::time_format::http_date;

/// The name of a header, checked by the compiler.
macro_rules! name {
    ($text:literal) => {
        const { http::HeaderName::from_static($text) }
    };
}
pub(crate) use name;

/// An answer without a body.
pub(crate) fn empty(status: u16) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::from_u16(status).expect("callers pass literal statuses");
    response
}

/// A 200 with an XML document.
pub(crate) fn document(xml: String) -> Response {
    let mut response = Response::new(Body::from(xml));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/xml"));
    response
}

/// Puts the headers that all answers have on one.
pub(crate) fn stamp(call: &Call, mut response: Response) -> Response {
    let headers = response.headers_mut();
    set_text(headers, name!("x-ms-request-id"), call.request_id.clone());
    set_text(headers, name!("x-ms-version"), call.version.clone());
    let server = match call.of_blobs {
        true => "Windows-Azure-Blob/1.0 Microsoft-HTTPAPI/2.0",
        false => "Windows-Azure-File/1.0 Microsoft-HTTPAPI/2.0",
    };
    headers.insert(header::SERVER, HeaderValue::from_static(server));
    // Content comes from jobs: no browser shall take it for a page.
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    // Nor run it, whatever type its maker gave it: it would run with the rights of this address.
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static("default-src 'none'; sandbox"));
    if let Some(id) = call.headers.get("x-ms-client-request-id") {
        headers.insert("x-ms-client-request-id", id.clone());
    }
    response
}

/// `ETag` and `Last-Modified`.
pub(crate) fn set_stat(headers: &mut HeaderMap, stat: &Stat) {
    set_text(headers, header::ETAG, stat.etag.clone());
    set_text(headers, header::LAST_MODIFIED, http_date(stat.modified));
}

/// The SMB properties, for callers that know them. `parent` is the id of the directory above.
pub(crate) fn set_smb(headers: &mut HeaderMap, call: &Call, (stat, properties): (&Stat, &Properties), parent: u64) {
    if !call.speaks_smb() || call.of_blobs {
        return;
    }
    let shown = Shown::of(stat, properties);
    set_text(headers, name!("x-ms-file-attributes"), shown.attributes);
    set_text(headers, name!("x-ms-file-creation-time"), shown.created);
    set_text(headers, name!("x-ms-file-last-write-time"), shown.written);
    set_text(headers, name!("x-ms-file-change-time"), shown.changed);
    headers.insert(name!("x-ms-file-id"), HeaderValue::from(stat.id));
    headers.insert(name!("x-ms-file-parent-id"), HeaderValue::from(parent));
    set_text(headers, name!("x-ms-file-permission-key"), shown.permission_key);
}

/// As [`set`], for what is on every answer: the name was checked when this was compiled, and the text is not copied.
pub(crate) fn set_text(headers: &mut HeaderMap, name: HeaderName, value: String) {
    if let Ok(value) = HeaderValue::try_from(value) {
        headers.insert(name, value);
    }
}

pub(crate) fn set(headers: &mut HeaderMap, name: &'static str, value: &str) {
    // Values made here are printable; one that is not (it came with a link) is left out.
    if let Ok(value) = HeaderValue::from_str(value) {
        headers.insert(HeaderName::from_static(name), value);
    }
}
