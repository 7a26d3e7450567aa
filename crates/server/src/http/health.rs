//! Health, readiness and metrics endpoints. The first two are public and reveal nothing else; metrics need read access to the
//! subscription. Also classifies requests for the counters and logs them.

use std::time::Instant;

use axum::body::Body;
use axum::response::Response;
use corro_model::ApiError;
use corro_model::events::EVENTS_PATH;
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};

use super::login::LoginRoute;
use crate::app::App;
use crate::app::monitoring::http_counters::Route;
use crate::app::monitoring::prometheus_text::{OPEN_METRICS_CONTENT_TYPE, TEXT_CONTENT_TYPE, render};

pub const METRICS_PATH: &str = "/metrics";
pub const HEALTH_PATH: &str = "/healthz";
pub const READY_PATH: &str = "/readyz";
/// Longer client ids are truncated in the log.
const MAX_LOGGED_ID_CHARS: usize = 80;

pub fn health() -> Response {
    plain(StatusCode::OK, "ok\n".to_owned(), "text/plain; charset=utf-8")
}

/// Readiness: 200, or 503 with the name of the failing part.
pub fn readiness(app: &App) -> Response {
    match app.not_ready_reason() {
        None => health(),
        Some(part) => {
            let text = format!("not ready: {part}\n");
            plain(StatusCode::SERVICE_UNAVAILABLE, text, "text/plain; charset=utf-8")
        }
    }
}

pub fn metrics(app: &App, headers: &HeaderMap) -> Result<Response, ApiError> {
    let accept = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let open = accept.contains("application/openmetrics-text");
    let text = render(&app.server_metrics()?, open);
    Ok(plain(StatusCode::OK, text, if open { OPEN_METRICS_CONTENT_TYPE } else { TEXT_CONTENT_TYPE }))
}

fn plain(status: StatusCode, text: String, media: &'static str) -> Response {
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(media));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// The counter that a request belongs to.
pub fn classify_route(method: &Method, path: &str) -> Route {
    match path {
        METRICS_PATH | HEALTH_PATH | READY_PATH => Route::Watch,
        EVENTS_PATH => Route::Events,
        "/" | "/ui" => Route::Pages,
        path if path.starts_with("/ui/") => Route::Pages,
        path if path.starts_with("/corro/") => Route::Nodes,
        path if LoginRoute::find(path).is_some() => Route::Login,
        _ => match *method {
            Method::GET | Method::HEAD => Route::Reads,
            _ => Route::Writes,
        },
    }
}

/// The client's ids of a request, for the log.
pub struct RequestIds {
    client_request: String,
    correlation: String,
}

impl RequestIds {
    pub fn from_headers(headers: &HeaderMap) -> RequestIds {
        if !tracing::enabled!(tracing::Level::INFO) {
            return RequestIds { client_request: String::new(), correlation: String::new() };
        }
        let id = |names: [&str; 2]| {
            let found = names.into_iter().find_map(|name| headers.get(name)?.to_str().ok());
            found.unwrap_or_default().chars().take(MAX_LOGGED_ID_CHARS).collect()
        };
        let client_request = id(["x-ms-client-request-id", "client-request-id"]);
        RequestIds { client_request, correlation: id(["x-ms-correlation-request-id", "traceparent"]) }
    }

    /// Logs the response. The path is logged without its query, which may hold signatures.
    pub fn log(self, method: &Method, path: &str, address: &str, response: &Response, began: Instant) {
        let request_id = response.headers().get("x-ms-request-id").and_then(|id| id.to_str().ok()).unwrap_or_default();
        let RequestIds { client_request: client_request_id, correlation: correlation_id } = self;
        let (status, ms) = (response.status().as_u16(), began.elapsed().as_secs_f64() * 1e3);
        tracing::info!(
            request_id, client_request_id, correlation_id, %method, path, address, status, ms, "a request was answered"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_classified() {
        for (method, path, expected) in [
            (Method::GET, "/metrics", Route::Watch),
            (Method::GET, "/events", Route::Events),
            (Method::GET, "/ui/main.js", Route::Pages),
            (Method::POST, "/adfs/oauth2/token", Route::Login),
            (Method::GET, corro_model::node::CONNECT_PATH, Route::Nodes),
            (Method::POST, corro_model::node::JOIN_PATH, Route::Nodes),
            (Method::GET, "/subscriptions", Route::Reads),
            (Method::DELETE, "/subscriptions/s/resourceGroups/g", Route::Writes),
        ] {
            assert_eq!(classify_route(&method, path), expected, "{path}");
        }
    }
}
