//! One resource-manager request, translated: path parameters, query, body, and the address the caller used.

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

/// What a handler of the operation `O` works with.
pub struct ArmRequest<R> {
    pub params: Vec<(&'static str, String)>,
    pub query: Vec<(String, String)>,
    pub body: R,
    /// `http://127.0.0.1:8470`, as the caller wrote it: links in answers begin with it.
    pub base_url: String,
    pub path: String,
    /// What form of answer the caller takes.
    pub accept: String,
}

impl<R> ArmRequest<R> {
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
        let others = self.query.iter().filter(|(name, _)| !name.eq_ignore_ascii_case("marker"));
        let pairs = others.map(|(name, value)| (name.as_str(), value.as_str())).chain([("marker", marker)]);
        let encode = |text| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
        let query: Vec<String> = pairs.map(|(name, value)| format!("{}={}", encode(name), encode(value))).collect();
        format!("{}{}?{}", self.base_url, self.path, query.join("&"))
    }

    /// One page of `items`, which are in the order of their names.
    pub fn page<T>(&self, items: Vec<T>, name: fn(&T) -> &str) -> Result<Page<T>, ApiError> {
        let (marker, limit) = self.page_params()?;
        let mut rest = items.into_iter().skip_while(|item| name(item).to_lowercase() < marker);
        let value: Vec<T> = rest.by_ref().take(limit).collect();
        let next_link = rest.next().map(|first| self.next_link(&name(&first).to_lowercase()));
        Ok(Page { value, next_link })
    }

    /// The name that the wanted page begins with, and how many items it may have.
    pub fn page_params(&self) -> Result<(String, usize), ApiError> {
        let limit = self.int_param("maxresults", 1000, 1..=1000)? as usize;
        Ok((self.query("marker").unwrap_or_default().to_lowercase(), limit))
    }

    /// A whole number within bounds.
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

/// Bodies here are small; one that takes longer is sent to hold a connection.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);

/// The whole body, refused when it is larger than `limit` or does not come.
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
