//! CORS: which origins may use an account's files from a browser, by the `Cors` rules of its service properties.
//! Preflight requests (`OPTIONS`) are answered without a signature, because browsers do not sign them. Pure.

use axum::response::Response;
use http::{HeaderMap, Method};

use corro_model::xml::Element;

use crate::protocol::error::StorageError;
use crate::protocol::request::StorageRequest;
use crate::protocol::response;

/// Browsers always send `Origin`.
pub(crate) fn is_preflight(request: &StorageRequest) -> bool {
    request.method == Method::OPTIONS && request.headers.contains_key("origin")
}

/// Answers a preflight request. `cors` is the `Cors` element of the service properties, if set.
pub(crate) fn preflight(request: &StorageRequest, cors: Option<&Element>) -> Result<Response, StorageError> {
    const METHOD: &str = "access-control-request-method";
    let origin = request.header("origin").ok_or(StorageError::invalid_header("origin"))?;
    let method = request.header(METHOD).ok_or(StorageError::missing_header(METHOD))?;
    let requested = request.header("access-control-request-headers").unwrap_or_default();
    let names = || requested.split(',').map(str::trim).filter(|name| !name.is_empty());
    let rule = rules(cors)
        .find(|rule| {
            let allows = |name: &str| list_items(rule, "AllowedHeaders").any(|pattern| matches_pattern(pattern, name));
            allows_origin(rule, origin) && allows_method(rule, method) && names().all(allows)
        })
        .ok_or(StorageError::new("CorsPreflightFailure"))?;
    let mut response = response::empty(200);
    let headers = response.headers_mut();
    set_origin(headers, rule, origin);
    response::set_header(headers, "access-control-allow-methods", method);
    if !requested.is_empty() {
        response::set_header(headers, "access-control-allow-headers", requested);
    }
    response::set_header(headers, "access-control-max-age", rule.child_text("MaxAgeInSeconds"));
    Ok(response)
}

/// Sets the CORS headers of a response if a rule matches.
pub(crate) fn set_headers(headers: &mut HeaderMap, request: &StorageRequest, cors: Option<&Element>) {
    let Some(origin) = request.header("origin") else { return };
    let fitting = |rule: &&Element| allows_origin(rule, origin) && allows_method(rule, request.method.as_str());
    let Some(rule) = rules(cors).find(fitting) else { return };
    set_origin(headers, rule, origin);
    let patterns: Vec<&str> = list_items(rule, "ExposedHeaders").collect();
    let names = headers.keys().map(|name| name.as_str());
    let exposed: Vec<&str> =
        names.filter(|name| patterns.iter().any(|pattern| matches_pattern(pattern, name))).collect();
    if !exposed.is_empty() {
        let exposed = exposed.join(",");
        response::set_header(headers, "access-control-expose-headers", &exposed);
    }
}

fn rules(cors: Option<&Element>) -> impl Iterator<Item = &Element> {
    cors.into_iter().flat_map(|cors| &cors.children)
}

fn allows_origin(rule: &Element, origin: &str) -> bool {
    list_items(rule, "AllowedOrigins").any(|allowed| allowed == "*" || allowed == origin)
}

fn allows_method(rule: &Element, method: &str) -> bool {
    list_items(rule, "AllowedMethods").any(|allowed| allowed.eq_ignore_ascii_case(method))
}

/// `*` if the rule allows all origins, else the origin of the request.
fn set_origin(headers: &mut HeaderMap, rule: &Element, origin: &str) {
    let is_open = list_items(rule, "AllowedOrigins").any(|allowed| allowed == "*");
    response::set_header(headers, "access-control-allow-origin", if is_open { "*" } else { origin });
    response::set_header(headers, "vary", "Origin");
}

fn list_items<'r>(rule: &'r Element, name: &str) -> impl Iterator<Item = &'r str> {
    rule.child_text(name).split(',').map(str::trim).filter(|word| !word.is_empty())
}

/// A name, or a prefix followed by `*`. Ignores case.
fn matches_pattern(pattern: &str, name: &str) -> bool {
    let (pattern, name) = (pattern.to_ascii_lowercase(), name.to_ascii_lowercase());
    match pattern.strip_suffix('*') {
        Some(start) => name.starts_with(start),
        None => name == pattern,
    }
}
