//! The web dashboard: one HTML page, its scripts and styles, embedded in the binary. Public, since it contains no data: the scripts
//! fetch everything from the API with the user's login.

use std::io::Write;
use std::sync::{LazyLock, OnceLock};

use axum::body::Body;
use axum::response::Response;
use base64::{Engine, engine::general_purpose::STANDARD};
use flate2::{Compression, write::GzEncoder};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use sha2::{Digest, Sha256};

/// Path of the dashboard. Too short to be a storage account.
pub const UI: &str = "/ui";
const ASSETS: &str = "/ui/assets/";

/// Content security policy: same origin only, no inline code but the hashed styles, no frames.
static CONTENT_SECURITY_POLICY: LazyLock<HeaderValue> = LazyLock::new(|| {
    let styles_digest = STANDARD.encode(Sha256::digest(STYLES));
    let policy = format!(
        "default-src 'none'; script-src 'self'; style-src 'sha256-{styles_digest}'; img-src 'self' data: blob:; connect-src 'self'; form-action 'none'; frame-ancestors 'none'; base-uri 'none'"
    );
    HeaderValue::from_str(&policy).expect("it is plain text")
});

struct Asset {
    name: &'static str,
    body: &'static [u8],
    /// Gzipped body, compressed on first use; a third of the size.
    gzipped: OnceLock<Vec<u8>>,
    etag: String,
}

macro_rules! assets {
    ($($name:literal)*) => {
        [$(Asset::new($name, include_bytes!(concat!("assets/", $name)))),*]
    };
}

/// Styles, embedded in the page since nothing is painted before they are loaded.
const STYLES: &str = concat!(
    include_str!("assets/style.css"),
    include_str!("assets/components.css"),
    include_str!("assets/pages.css"),
    include_str!("assets/job.css"),
    include_str!("assets/chart.css"),
);

static ALL: LazyLock<Vec<Asset>> = LazyLock::new(|| {
    let files = assets! {
        "icon.svg"
        "boot.js"
        "main.js"
        "api.js"
        "dom.js"
        "share-client.js"
        "clipboard.js"
        "tabs.js"
        "cluster-cards.js"
        "cluster-history.js"
        "event-stream.js"
        "components.js"
        "times.js"
        "routes.js"
        "search.js"
        "shortcuts.js"
        "next-steps.js"
        "notifications.js"
        "node-list.js"
        "node-tiles.js"
        "chart.js"
        "chart-export.js"
        "chart-scale.js"
        "curve-panel.js"
        "job-clone.js"
        "job-list.js"
        "job-notes.js"
        "job-files.js"
        "job-folder.js"
        "job-size.js"
        "job-source.js"
        "submitted-files.js"
        "job-logs.js"
        "job-engines.js"
        "job-ranks.js"
        "gpu-table.js"
        "job-timeline.js"
        "log-file.js"
        "log-rows.js"
        "log-text.js"
        "log-view.js"
        "hyperparameters.js"
        "run-difference.js"
        "run-filter.js"
        "run-table.js"
        "runs.js"
        "directory-upload.js"
        "forms.js"
        "new-cluster.js"
        "new-job.js"
        "new-share.js"
        "resources.js"
        "pages/submit.js"
        "pages/login.js"
        "pages/cluster.js"
        "pages/clusters.js"
        "pages/experiments.js"
        "pages/jobs.js"
        "resource-charts.js"
        "pages/node.js"
        "pages/nodes.js"
        "pages/preview.js"
        "pages/scale-form.js"
        "pages/shares.js"
        "pages/overview.js"
        "pages/job.js"
        "pages/experiment.js"
        "pages/usage.js"
    };
    // Leaked once: it lives as long as the process.
    let page = include_str!("assets/index.html").replace("STYLES", STYLES).leak();
    [Asset::new("index.html", page.as_bytes())].into_iter().chain(files).collect()
});

impl Asset {
    fn new(name: &'static str, body: &'static [u8]) -> Asset {
        let etag = Sha256::digest(body)[..8].iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        Asset { name, body, gzipped: OnceLock::new(), etag: format!("\"{etag}\"") }
    }

    fn gzipped(&'static self) -> &'static [u8] {
        self.gzipped.get_or_init(|| {
            let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
            encoder.write_all(self.body).and_then(|()| encoder.finish()).expect("memory takes what is written")
        })
    }

    fn media_type(&self) -> &'static str {
        match self.name.rsplit('.').next() {
            Some("html") => "text/html; charset=utf-8",
            Some("css") => "text/css; charset=utf-8",
            Some("js") => "text/javascript; charset=utf-8",
            Some("svg") => "image/svg+xml",
            _ => "application/octet-stream",
        }
    }
}

/// Response to a request for the dashboard; `None` for other paths.
pub fn answer(request: &Parts) -> Option<Response> {
    if !matches!(request.method, Method::GET | Method::HEAD) {
        return None;
    }
    let path = request.uri.path();
    if path == UI || (path == "/" && is_browser(&request.headers)) {
        return Some(redirect("/ui/"));
    }
    if let Some(name) = path.strip_prefix(ASSETS) {
        let found = ALL.iter().find(|asset| asset.name == name && asset.name != "index.html");
        return Some(found.map_or_else(not_found, |asset| asset_response(asset, &request.headers)));
    }
    // Every page is this document; its scripts route by the path.
    path.starts_with("/ui/").then(|| asset_response(&ALL[0], &request.headers))
}

fn asset_response(asset: &'static Asset, request_headers: &HeaderMap) -> Response {
    let cached_tags = request_headers.get_all(header::IF_NONE_MATCH).iter().filter_map(|value| value.to_str().ok());
    let is_cached =
        cached_tags.flat_map(|etags| etags.split(',')).any(|etag| etag.trim().trim_start_matches("W/") == asset.etag);
    let codings =
        request_headers.get(header::ACCEPT_ENCODING).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let accepts_gzip = codings.split(',').any(|coding| coding.trim() == "gzip");
    let mut response = Response::new(match (is_cached, accepts_gzip) {
        (true, _) => Body::empty(),
        (false, true) => Body::from(asset.gzipped()),
        (false, false) => Body::from(asset.body),
    });
    if is_cached {
        *response.status_mut() = StatusCode::NOT_MODIFIED;
    }
    let headers = response.headers_mut();
    if accepts_gzip && !is_cached {
        headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    headers.insert(header::VARY, HeaderValue::from_static("accept-encoding"));
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(asset.media_type()));
    // Weak: the same with and without compression.
    headers.insert(header::ETAG, HeaderValue::from_str(&format!("W/{}", asset.etag)).expect("hexadecimal digits"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    with_security_headers(response)
}

fn with_security_headers(mut response: Response) -> Response {
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_SECURITY_POLICY, CONTENT_SECURITY_POLICY.clone());
    for (name, value) in [
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

fn not_found() -> Response {
    let mut response = Response::new(Body::from("There is no such file.\n"));
    *response.status_mut() = StatusCode::NOT_FOUND;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    with_security_headers(response)
}

fn redirect(location: &'static str) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SEE_OTHER;
    response.headers_mut().insert(header::LOCATION, HeaderValue::from_static(location));
    with_security_headers(response)
}

/// Whether the client prefers HTML. API clients accept anything or JSON.
fn is_browser(headers: &HeaderMap) -> bool {
    let accepted = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok());
    accepted.is_some_and(|accepted| accepted.split([',', ';']).any(|kind| kind.trim() == "text/html"))
}

#[cfg(test)]
mod tests;
