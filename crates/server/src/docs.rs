//! The documentation under `/docs`, rendered from the pages in the binary. Public, as the dashboard is: it contains no data.
//!
//! `docs` is also a valid name of a storage account in path style. Requests of storage clients carry a login, in a header or in the
//! query, and are left to the file service.

use std::sync::LazyLock;

use axum::body::Body;
use axum::response::Response;
use base64::{Engine, engine::general_purpose::STANDARD};
use corro_docs::html;
use http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header};
use sha2::{Digest, Sha256};

const ROOT: &str = "/docs";

static CONTENT_SECURITY_POLICY: LazyLock<HeaderValue> = LazyLock::new(|| {
    let style_digest = STANDARD.encode(Sha256::digest(html::STYLE));
    let policy = format!(
        "default-src 'none'; style-src 'sha256-{style_digest}'; img-src 'self'; form-action 'none'; frame-ancestors 'none'; base-uri 'none'"
    );
    HeaderValue::from_str(&policy).expect("it is plain text")
});

/// Response to a request for the documentation; `None` for other requests.
pub fn answer(method: &Method, uri: &Uri, headers: &HeaderMap) -> Option<Response> {
    let path = uri.path().strip_prefix(ROOT)?;
    let has_login = headers.contains_key(header::AUTHORIZATION) || uri.query().is_some();
    if has_login || !matches!(*method, Method::GET | Method::HEAD) {
        return None;
    }
    if matches!(path, "" | "/") {
        return Some(redirect("/docs/introduction.html"));
    }
    let path = path.strip_prefix('/')?;
    if let Some(page) = html::document(path) {
        return Some(response(page.into(), "text/html; charset=utf-8"));
    }
    if path == corro_docs::JOB_SCHEMA_PATH {
        return Some(response(corro_docs::JOB_SCHEMA.into(), "application/schema+json"));
    }
    corro_docs::picture(path).map(|bytes| response(bytes.into(), "image/png"))
}

fn response(body: Body, media_type: &'static str) -> Response {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type));
    headers.insert(header::CONTENT_SECURITY_POLICY, CONTENT_SECURITY_POLICY.clone());
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    response
}

fn redirect(location: &'static str) -> Response {
    let mut response = response(Body::empty(), "text/plain; charset=utf-8");
    *response.status_mut() = StatusCode::SEE_OTHER;
    response.headers_mut().insert(header::LOCATION, HeaderValue::from_static(location));
    response
}

#[cfg(test)]
mod tests {
    use axum::extract::Request;

    use super::*;

    fn status(method: &str, path: &str, headers: &[(&str, &str)]) -> Option<u16> {
        let builder = Request::builder().method(method).uri(path);
        let request = headers.iter().fold(builder, |request, (name, value)| request.header(*name, *value));
        let request = request.body(()).expect("a request");
        let response = answer(request.method(), request.uri(), request.headers());
        response.map(|response| response.status().as_u16())
    }

    #[test]
    fn pages_are_served_and_storage_requests_are_not_touched() {
        for (path, expected) in [
            ("/docs", Some(303)),
            ("/docs/", Some(303)),
            ("/docs/introduction.html", Some(200)),
            ("/docs/users/quickstart.html", Some(200)),
            ("/docs/reference/job.schema.json", Some(200)),
            ("/docs/users/quickstart.md", None),
            ("/docs/../Cargo.toml", None),
            ("/docs/introduction.html?sv=2018-03-28&sig=x", None),
            ("/docstore/share/file", None),
            ("/ui/", None),
        ] {
            assert_eq!(status("GET", path, &[]), expected, "{path}");
        }
        assert_eq!(status("PUT", "/docs/introduction.html", &[]), None);
        assert_eq!(status("GET", "/docs/introduction.html", &[("authorization", "SharedKey docs:x")]), None);
    }
}
