//! A parsed resource-manager request: path parameters, query, body, and the base URL that the client used. Paging.

use std::time::Duration;

use axum::body::{Body, Bytes};
use corro_file_service::OverTls;
use corro_model::ApiError;
use corro_model::batchai::Page;
use http::header::HOST;
use http::request::Parts;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use tokio::time::timeout;

/// Request of an operation, with its typed body.
pub struct ArmRequest<R> {
    pub params: Vec<(&'static str, String)>,
    pub query: Vec<(String, String)>,
    pub body: R,
    /// `http://127.0.0.1:8470`, as the client wrote it; URLs in responses start with it.
    pub base_url: String,
    pub path: String,
    /// The `Accept` header.
    pub accept: String,
}

impl<R> ArmRequest<R> {
    /// A path parameter. The route's template has it, so it exists.
    pub fn param(&self, name: &str) -> String {
        self.params.iter().find(|(key, _)| *key == name).map(|(_, value)| value.clone()).unwrap_or_default()
    }

    /// A query parameter; the name is case-insensitive.
    pub fn query(&self, name: &str) -> Option<&str> {
        self.query.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }

    /// URL of the page that starts at `marker`: the same request with another marker.
    pub fn next_link(&self, marker: &str) -> String {
        let others = self.query.iter().filter(|(name, _)| !name.eq_ignore_ascii_case("marker"));
        let pairs = others.map(|(name, value)| (name.as_str(), value.as_str())).chain([("marker", marker)]);
        let encode = |text| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
        let query: Vec<String> = pairs.map(|(name, value)| format!("{}={}", encode(name), encode(value))).collect();
        format!("{}{}?{}", self.base_url, self.path, query.join("&"))
    }

    /// One page of `items`, which are sorted by name.
    pub fn page<T>(&self, items: Vec<T>, name: fn(&T) -> &str) -> Result<Page<T>, ApiError> {
        let (marker, limit) = self.page_params()?;
        let mut rest = items.into_iter().skip_while(|item| name(item).to_lowercase() < marker);
        let value: Vec<T> = rest.by_ref().take(limit).collect();
        let next_link = rest.next().map(|first| self.next_link(&name(&first).to_lowercase()));
        Ok(Page { value, next_link })
    }

    /// The first name of the requested page, and its maximum size.
    pub fn page_params(&self) -> Result<(String, usize), ApiError> {
        let limit = self.int_param("maxresults", 1000, 1..=1000)? as usize;
        Ok((self.query("marker").unwrap_or_default().to_lowercase(), limit))
    }

    /// An integer query parameter within a range.
    pub fn int_param(&self, name: &str, default: i64, range: std::ops::RangeInclusive<i64>) -> Result<i64, ApiError> {
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

pub fn base_url(parts: &Parts) -> String {
    let host = parts.headers.get(HOST).and_then(|value| value.to_str().ok()).unwrap_or("localhost");
    let scheme = if parts.extensions.get::<OverTls>().is_some() { "https" } else { "http" };
    format!("{scheme}://{host}")
}

/// Limit on receiving a body. Bodies are small; a slower one only occupies a connection.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);

/// Reads the whole body. Fails when it is larger than `limit` or late.
pub async fn read_body(body: Body, limit: usize) -> Result<Bytes, ApiError> {
    let late = |_| ApiError::new(408, "RequestTimeout", "The request's body did not arrive in time");
    match timeout(BODY_TIMEOUT, Limited::new(body, limit).collect()).await.map_err(late)? {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => {
            let message = format!("The request's body is larger than {limit} bytes");
            Err(ApiError::new(413, "RequestEntityTooLarge", message))
        }
        Err(_) => Err(ApiError::bad_body("The request's body ended early")),
    }
}
