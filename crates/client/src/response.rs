//! Whole HTTP responses: status check, error envelope and `Retry-After`.

use std::time::Duration;

use bytes::Bytes;
use corro_model::ApiError;
use reqwest::StatusCode;
use reqwest::header::HeaderMap;

use crate::ClientError;

/// A whole answer in memory.
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

/// How often a server that says "later" is believed.
pub(crate) const MAX_RETRY_LATER: u32 = 5;

/// What the server asks for, within reason.
pub(crate) fn retry_delay(answer: &HttpResponse) -> Duration {
    let seconds = answer.header("retry-after").and_then(|text| text.parse().ok()).unwrap_or(1);
    Duration::from_secs(u64::min(seconds, 10))
}

/// Turns an error answer into an error.
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

pub(crate) fn decode<T: DeserializeOwned>(operation: &'static str, answer: &HttpResponse) -> Result<T, ClientError> {
    let body: &[u8] = if answer.body.is_empty() { b"{}" } else { &answer.body };
    serde_json::from_slice(body).map_err(|source| ClientError::UnexpectedAnswer { operation, source })
}

fn encode<O: Operation>(request: &O::Request) -> Result<Bytes, ClientError> {
    if TypeId::of::<O::Request>() == TypeId::of::<NoBody>() {
        return Ok(Bytes::new());
    }
    to_json(request).map_err(|source| ClientError::UnexpectedAnswer { operation: O::ID, source })
}

fn to_json(value: &impl Serialize) -> Result<Bytes, serde_json::Error> {
    serde_json::to_vec(value).map(Bytes::from)
}

pub(crate) fn method_of<O: Operation>() -> Method {
    use corro_model::ops::Method as M;
    match O::METHOD {
        M::Get => Method::GET,
        M::Head => Method::HEAD,
        M::Put => Method::PUT,
        M::Patch => Method::PATCH,
        M::Post => Method::POST,
        M::Delete => Method::DELETE,
    }
}
