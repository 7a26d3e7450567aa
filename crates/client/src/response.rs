//! Whole HTTP responses: status check, error envelope and `Retry-After`.

use std::time::Duration;

use bytes::Bytes;
use corro_model::ApiError;
use corro_model::error::ErrorEnvelope;
use reqwest::StatusCode;
use reqwest::header::HeaderMap;

use crate::ClientError;

/// Complete response in memory.
#[derive(Debug)]
pub struct HttpResponse {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl HttpResponse {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }
}

/// Retries after `429 Too Many Requests`.
pub(crate) const MAX_RETRY_LATER: u32 = 5;

/// `Retry-After` of a response, at most 10 s.
pub(crate) fn retry_delay(answer: &HttpResponse) -> Duration {
    let seconds = answer.header("retry-after").and_then(|text| text.parse().ok()).unwrap_or(1);
    Duration::from_secs(u64::min(seconds, 10))
}

/// Turns an error response into an error.
pub(crate) fn check_status(answer: HttpResponse) -> Result<HttpResponse, ClientError> {
    if answer.status.is_success() {
        return Ok(answer);
    }
    let status = answer.status.as_u16();
    let error = match serde_json::from_slice::<ErrorEnvelope>(&answer.body) {
        Ok(ErrorEnvelope { error }) => {
            ApiError { status, code: error.code, message: error.message, target: error.target }
        }
        Err(_) => ApiError::new(status, "Unknown", plain_error(status, &answer.body)),
    };
    Err(ClientError::Api(error))
}

fn plain_error(status: u16, body: &[u8]) -> String {
    let text: String = String::from_utf8_lossy(body).trim().chars().take(300).collect();
    let reason = StatusCode::from_u16(status).ok().and_then(|code| code.canonical_reason()).unwrap_or("unknown");
    match text.is_empty() {
        true => format!("the server answered with status {status} ({reason})"),
        false => format!("the server answered with status {status} ({reason}): {text}"),
    }
}
