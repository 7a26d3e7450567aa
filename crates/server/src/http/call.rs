//! One resource-manager request, translated: path parameters, query, body, and the address the caller used.

use axum::body::{Body, Bytes};
use corro_model::ApiError;
use http::HeaderMap;
use http::header::HOST;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

/// What a handler of the operation `O` works with.
pub struct Call<R> {
    pub params: Vec<(&'static str, String)>,
    pub query: Vec<(String, String)>,
    pub body: R,
    /// `http://127.0.0.1:8470`, as the caller wrote it: links in answers begin with it.
    pub base_url: String,
    pub path: String,
}

impl<R> Call<R> {
    /// A path parameter; the route's template has it, so it is there.
    pub fn param(&self, name: &str) -> String {
        self.params.iter().find(|(key, _)| *key == name).map(|(_, value)| value.clone()).unwrap_or_default()
    }

    /// A query parameter, by name in any case.
    pub fn query(&self, name: &str) -> Option<&str> {
        self.query.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }

    /// The address of the page that begins with `marker`: the same request, with only that changed.
    pub fn next_link(&self, marker: &str) -> String {
        let kept = self.query.iter().filter(|(name, _)| !name.eq_ignore_ascii_case("marker"));
        let pairs = kept.map(|(name, value)| (name.as_str(), value.as_str())).chain([("marker", marker)]);
        let encode = |text| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
        let query: Vec<String> = pairs.map(|(name, value)| format!("{}={}", encode(name), encode(value))).collect();
        format!("{}{}?{}", self.base_url, self.path, query.join("&"))
    }

    /// A whole number within bounds.
    pub fn number(&self, name: &str, default: i64, range: std::ops::RangeInclusive<i64>) -> Result<i64, ApiError> {
        let Some(text) = self.query(name) else { return Ok(default) };
        let (low, high) = (range.start(), range.end());
        match text.parse::<i64>() {
            Ok(number) if range.contains(&number) => Ok(number),
            _ => {
                let message = format!("{name} is '{text}': use a whole number from {low} to {high}");
                Err(ApiError::new(400, "InvalidQueryParameterValue", message).about(name))
            }
        }
    }
}

pub fn base_url(headers: &HeaderMap) -> String {
    let host = headers.get(HOST).and_then(|value| value.to_str().ok()).unwrap_or("localhost");
    format!("http://{host}")
}

/// `a=b&c=d`, with `+` as a space and percent-encoding undone.
pub fn form_pairs(text: &str) -> impl Iterator<Item = (String, String)> + '_ {
    let decode = |part: &str| percent_decode_str(&part.replace('+', " ")).decode_utf8_lossy().into_owned();
    text.split('&').filter(|pair| !pair.is_empty()).map(move |pair| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        (decode(name), decode(value))
    })
}

/// The whole body, refused when it is larger than `limit`.
pub async fn read_body(body: Body, limit: usize) -> Result<Bytes, ApiError> {
    match Limited::new(body, limit).collect().await {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => {
            let message = format!("The request's body is larger than {limit} bytes");
            Err(ApiError::new(413, "RequestEntityTooLarge", message))
        }
        Err(_) => Err(ApiError::bad_body("The request's body ended early")),
    }
}
