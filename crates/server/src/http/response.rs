//! Responses of the resource manager: status, headers, JSON, headers of long-running operations, error envelope. The only place
//! where an error becomes an HTTP response.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::body::Body;
use axum::response::Response;
use corro_model::{ApiError, Timestamp, warnings};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use hyper::ext::ReasonPhrase;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::app::guid;

/// Result of an operation's handler.
pub enum ArmResponse<T> {
    Ok(T),
    /// 200: status of a long-running operation.
    Polled(T),
    Created(T),
    /// 200, as comma-separated values.
    Csv(String),
    /// 202: poll these URLs.
    Accepted(PollUrls),
    /// 200 without a body.
    OkEmpty,
    /// 204: nothing to do or to return.
    NoContent,
    /// 404 without a body, for HEAD.
    NotFound,
}

/// URLs that return the status of a long-running operation.
pub struct PollUrls {
    pub async_operation: Option<String>,
    pub location: String,
}

impl<T: Serialize> ArmResponse<T> {
    pub fn into_response(self, size_hint: &BodySizeHint) -> Response {
        match self {
            ArmResponse::Ok(value) => json_body(StatusCode::OK, size_hint.serialize(&value)),
            ArmResponse::Polled(value) => {
                let mut response = json_response(StatusCode::OK, &value);
                set(&mut response, header::RETRY_AFTER, "0");
                response
            }
            ArmResponse::Created(value) => json_response(StatusCode::CREATED, &value),
            ArmResponse::Csv(text) => {
                let mut response = empty(StatusCode::OK);
                set(&mut response, header::CONTENT_TYPE, "text/csv; charset=utf-8");
                *response.body_mut() = Body::from(text);
                response
            }
            ArmResponse::Accepted(poll) => accepted(poll),
            ArmResponse::OkEmpty => empty(StatusCode::OK),
            ArmResponse::NoContent => empty(StatusCode::NO_CONTENT),
            ArmResponse::NotFound => empty(StatusCode::NOT_FOUND),
        }
    }
}

/// Size of an operation's last response body, reserved for the next one: a page of a thousand jobs, 1.5 MB, would otherwise be
/// reallocated a dozen times.
#[derive(Default)]
pub struct BodySizeHint(AtomicUsize);

impl BodySizeHint {
    fn serialize<T: Serialize>(&self, value: &T) -> Vec<u8> {
        let last = self.0.load(Ordering::Relaxed);
        let mut body = Vec::with_capacity(last + last / 16);
        serde_json::to_writer(&mut body, value).expect("answers are plain data");
        self.0.store(body.len(), Ordering::Relaxed);
        if body.len() < body.capacity() / 2 {
            body.shrink_to_fit();
        }
        body
    }
}

fn accepted(poll: PollUrls) -> Response {
    let mut response = empty(StatusCode::ACCEPTED);
    // Poll again at once: the server holds the poll while the operation is in progress.
    set(&mut response, header::RETRY_AFTER, "0");
    set(&mut response, header::LOCATION, &poll.location);
    if let Some(url) = &poll.async_operation {
        set(&mut response, HeaderName::from_static("azure-asyncoperation"), url);
    }
    response
}

pub fn json_response<T: Serialize>(status: StatusCode, value: &T) -> Response {
    json_body(status, serde_json::to_vec(value).expect("answers are plain data"))
}

fn json_body(status: StatusCode, body: Vec<u8>) -> Response {
    let mut response = empty(status);
    set(&mut response, header::CONTENT_TYPE, "application/json; charset=utf-8");
    if let Some((etag, modified)) = etag_and_time(&body) {
        set(&mut response, header::ETAG, &etag);
        set(&mut response, header::LAST_MODIFIED, &httpdate::fmt_http_date(modified));
    }
    *response.body_mut() = Body::from(body);
    response
}

/// ETag and Last-Modified of a Batch AI resource: a digest of the body, and its last state transition.
fn etag_and_time(body: &[u8]) -> Option<(String, SystemTime)> {
    #[derive(Deserialize)]
    struct Resource {
        properties: Times,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Times {
        provisioning_state_transition_time: Timestamp,
        allocation_state_transition_time: Option<Timestamp>,
        execution_state_transition_time: Option<Timestamp>,
    }
    // Lists, which may be long, start differently and are not parsed again.
    if !body.starts_with(br#"{"id":"#) {
        return None;
    }
    let times = serde_json::from_slice::<Resource>(body).ok()?.properties;
    let others = [times.allocation_state_transition_time, times.execution_state_transition_time];
    let last = others.into_iter().flatten().fold(times.provisioning_state_transition_time, Timestamp::max);
    let digest = Sha256::digest(body);
    let tag: String = digest[..7].iter().map(|byte| format!("{byte:02X}")).collect();
    Some((format!("\"0x{tag}\""), UNIX_EPOCH + Duration::from_millis(last.millis().max(0) as u64)))
}

pub fn error_response(error: &ApiError) -> Response {
    let status = StatusCode::from_u16(error.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    // The store logs a full disk once, however many requests fail.
    if status.is_server_error() && error.status != ApiError::INSUFFICIENT_STORAGE {
        tracing::error!(code = error.code, message = error.message, "a request failed");
    }
    let mut response = json_response(status, &error.envelope());
    if status == StatusCode::TOO_MANY_REQUESTS {
        set(&mut response, header::RETRY_AFTER, "1");
    }
    if status == StatusCode::UNAUTHORIZED {
        set(&mut response, header::WWW_AUTHENTICATE, "Bearer");
    }
    // The service's clients show the reason phrase of a 404, so it holds the message.
    if status == StatusCode::NOT_FOUND
        && let Ok(reason) = ReasonPhrase::try_from(error.message.as_bytes().to_vec())
    {
        response.extensions_mut().insert(reason);
    }
    response
}

/// The client's own id of its request.
pub const CLIENT_REQUEST_ID: HeaderName = HeaderName::from_static("x-ms-client-request-id");

/// The client's own request id, when it asks to have it returned.
pub fn requested_client_id(headers: &HeaderMap) -> Option<HeaderValue> {
    let wants_id = headers.get("x-ms-return-client-request-id")?;
    wants_id.as_bytes().eq_ignore_ascii_case(b"true").then(|| headers.get(CLIENT_REQUEST_ID).cloned())?
}

fn empty(status: StatusCode) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    set(&mut response, header::CACHE_CONTROL, "no-cache");
    set(&mut response, header::PRAGMA, "no-cache");
    set(&mut response, header::EXPIRES, "-1");
    set(&mut response, header::VARY, "Accept-Encoding");
    set(&mut response, HeaderName::from_static("x-content-type-options"), "nosniff");
    let id = guid();
    for name in ["request-id", "x-ms-request-id", "x-ms-correlation-request-id", "x-ms-routing-request-id"] {
        set(&mut response, HeaderName::from_static(name), &id);
    }
    response
}

/// Adds `Warning` headers.
pub fn warn(headers: &mut HeaderMap, warnings: impl IntoIterator<Item = String>) {
    for warning in warnings.into_iter().take(MAX_WARNINGS) {
        if let Ok(value) = HeaderValue::from_bytes(warnings::encode(&warning).as_bytes()) {
            headers.append(header::WARNING, value);
        }
    }
}

/// Maximum number of warnings per response.
const MAX_WARNINGS: usize = 20;

fn set(response: &mut Response, name: HeaderName, value: &str) {
    // An invalid value comes from a malformed Host header; the response goes without it.
    if let Ok(value) = HeaderValue::from_str(value) {
        response.headers_mut().insert(name, value);
    }
}
