//! Rules for browsers: which pages of other origins may use an account's files, as the settings of its service say
//! (`Cors`). A question before the request (`OPTIONS`) is answered without a signature, for browsers send none; it says
//! what may be asked, and nothing else. Pure but for the settings it is given.

use axum::response::Response;
use http::{HeaderMap, Method};

use crate::protocol::error::Refusal;
use crate::protocol::request::Call;
use crate::protocol::response;
use crate::protocol::xml_parse::Element;

/// Whether a request is such a question: browsers always say where they come from.
pub(crate) fn is_preflight(call: &Call) -> bool {
    call.method == Method::OPTIONS && call.headers.contains_key("origin")
}

/// The answer to such a question. `cors` is the part of the settings, if there is one.
pub(crate) fn preflight(call: &Call, cors: Option<&Element>) -> Result<Response, Refusal> {
    const METHOD: &str = "access-control-request-method";
    let origin = call.header("origin").ok_or(Refusal::header("origin"))?;
    let method = call.header(METHOD).ok_or(Refusal::missing_header(METHOD))?;
    let asked = call.header("access-control-request-headers").unwrap_or_default();
    let names = || asked.split(',').map(str::trim).filter(|name| !name.is_empty());
    let rule = rules(cors)
        .find(|rule| {
            let allows = |name: &str| words(rule, "AllowedHeaders").any(|pattern| fits(pattern, name));
            allows_origin(rule, origin) && allows_method(rule, method) && names().all(allows)
        })
        .ok_or(Refusal::new("CorsPreflightFailure"))?;
    let mut response = response::empty(200);
    let headers = response.headers_mut();
    set_origin(headers, rule, origin);
    response::set(headers, "access-control-allow-methods", method);
    if !asked.is_empty() {
        response::set(headers, "access-control-allow-headers", asked);
    }
    response::set(headers, "access-control-max-age", rule.text_of("MaxAgeInSeconds"));
    Ok(response)
}

/// Lets the page read an answer, if a rule does.
pub(crate) fn describe(headers: &mut HeaderMap, call: &Call, cors: Option<&Element>) {
    let Some(origin) = call.header("origin") else { return };
    let fitting = |rule: &&Element| allows_origin(rule, origin) && allows_method(rule, call.method.as_str());
    let Some(rule) = rules(cors).find(fitting) else { return };
    set_origin(headers, rule, origin);
    let patterns: Vec<&str> = words(rule, "ExposedHeaders").collect();
    let names = headers.keys().map(|name| name.as_str());
    let exposed: Vec<&str> = names.filter(|name| patterns.iter().any(|pattern| fits(pattern, name))).collect();
    if !exposed.is_empty() {
        let exposed = exposed.join(",");
        response::set(headers, "access-control-expose-headers", &exposed);
    }
}

fn rules(cors: Option<&Element>) -> impl Iterator<Item = &Element> {
    cors.into_iter().flat_map(|cors| &cors.children)
}

fn allows_origin(rule: &Element, origin: &str) -> bool {
    words(rule, "AllowedOrigins").any(|allowed| allowed == "*" || allowed == origin)
}

fn allows_method(rule: &Element, method: &str) -> bool {
    words(rule, "AllowedMethods").any(|allowed| allowed.eq_ignore_ascii_case(method))
}

/// A rule for all origins says so; any other repeats the one that asked.
fn set_origin(headers: &mut HeaderMap, rule: &Element, origin: &str) {
    let is_open = words(rule, "AllowedOrigins").any(|allowed| allowed == "*");
    response::set(headers, "access-control-allow-origin", if is_open { "*" } else { origin });
    response::set(headers, "vary", "Origin");
}

fn words<'r>(rule: &'r Element, name: &str) -> impl Iterator<Item = &'r str> {
    rule.text_of(name).split(',').map(str::trim).filter(|word| !word.is_empty())
}

/// A name, or the beginning of some with a star.
fn fits(pattern: &str, name: &str) -> bool {
    let (pattern, name) = (pattern.to_ascii_lowercase(), name.to_ascii_lowercase());
    match pattern.strip_suffix('*') {
        Some(start) => name.starts_with(start),
        None => name == pattern,
    }
}
