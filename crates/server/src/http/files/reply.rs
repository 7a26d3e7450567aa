//! Headers of answers: those on every answer, those of a thing's properties, and the SMB ones
//! that newer versions expect on files and directories (and that break an older SDK when they
//! appear on shares).

use std::time::{Duration, SystemTime};

use axum::{body::Body, response::Response};
use corro_model::Timestamp;
use corro_shares::{Properties, Stat};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};

use super::{call::Call, smb::Shown};

/// The name of a header, checked by the compiler.
macro_rules! name {
    ($text:literal) => {
        const { http::HeaderName::from_static($text) }
    };
}
pub(super) use name;

/// An answer without a body.
pub(super) fn empty(status: u16) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::from_u16(status).expect("callers pass literal statuses");
    response
}

/// A 200 with an XML document.
pub(super) fn document(xml: String) -> Response {
    let mut response = Response::new(Body::from(xml));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/xml"));
    response
}

/// Puts the headers that all answers have on one.
pub(super) fn stamp(call: &Call, mut response: Response) -> Response {
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
pub(super) fn set_stat(headers: &mut HeaderMap, stat: &Stat) {
    set_text(headers, header::ETAG, stat.etag.clone());
    set_text(headers, header::LAST_MODIFIED, http_date(stat.modified));
}

/// The SMB properties, for callers that know them. `parent` is the id of the directory above.
pub(super) fn set_smb(headers: &mut HeaderMap, call: &Call, (stat, properties): (&Stat, &Properties), parent: u64) {
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
pub(super) fn set_text(headers: &mut HeaderMap, name: HeaderName, value: String) {
    if let Ok(value) = HeaderValue::try_from(value) {
        headers.insert(name, value);
    }
}

pub(super) fn set(headers: &mut HeaderMap, name: &'static str, value: &str) {
    // Values made here are printable; one that is not (it came with a link) is left out.
    if let Ok(value) = HeaderValue::from_str(value) {
        headers.insert(HeaderName::from_static(name), value);
    }
}

/// RFC 1123. A job can give its files any time; those that the form cannot say become the nearest
/// it can.
pub(super) fn http_date(time: SystemTime) -> String {
    const END_OF_9999: u64 = 253_402_300_799;
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO);
    let since = Duration::from_secs(since.as_secs().min(END_OF_9999));
    httpdate::fmt_http_date(SystemTime::UNIX_EPOCH + since)
}

/// The same of unix seconds.
pub(super) fn http_date_of(seconds: i64) -> String {
    http_date(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds.max(0) as u64))
}

/// `2018-06-07T21:16:21.0000000Z`
pub(super) fn smb_time(time: SystemTime) -> String {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO);
    let seconds = Timestamp::from(SystemTime::UNIX_EPOCH + Duration::from_secs(since.as_secs())).to_string();
    format!("{}.{:07}Z", seconds.trim_end_matches('Z'), since.subsec_nanos() / 100)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_any_file_can_be_written() {
        let at = |seconds: u64, nanos: u32| SystemTime::UNIX_EPOCH + Duration::new(seconds, nanos);
        assert_eq!(http_date(at(1_528_410_115, 5)), "Thu, 07 Jun 2018 22:21:55 GMT");
        assert_eq!(smb_time(at(1_528_410_115, 123_456_789)), "2018-06-07T22:21:55.1234567Z");
        let before = SystemTime::UNIX_EPOCH - Duration::from_secs(5);
        assert_eq!(http_date(before), "Thu, 01 Jan 1970 00:00:00 GMT");
        assert_eq!(smb_time(before), "1970-01-01T00:00:00.0000000Z");
        let far = at(1 << 42, 0);
        assert_eq!(http_date(far), "Fri, 31 Dec 9999 23:59:59 GMT");
        smb_time(far);
    }
}
