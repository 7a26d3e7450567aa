//! What browsers show: a page, its scripts and its styles, all of them in the program itself. Entered by `http` for requests
//! below [`UI`]. Public, because there is nothing in it: whatever a page shows it asks for at the API, with the login of
//! whoever looks at it.

use std::io::Write;
use std::sync::{LazyLock, OnceLock};

use axum::body::Body;
use axum::response::Response;
use base64::{Engine, engine::general_purpose::STANDARD};
use flate2::{Compression, write::GzEncoder};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use sha2::{Digest, Sha256};

/// Where the pages are. No storage account can have a name so short.
pub const UI: &str = "/ui";
const ASSETS: &str = "/ui/assets/";

/// Nothing from elsewhere, nothing inline but the look, no frames.
static POLICY: LazyLock<HeaderValue> = LazyLock::new(|| {
    let look = STANDARD.encode(Sha256::digest(LOOK));
    let policy = format!(
        "default-src 'none'; script-src 'self'; style-src 'sha256-{look}'; img-src 'self' data: blob:; connect-src 'self'; form-action 'none'; frame-ancestors 'none'; base-uri 'none'"
    );
    HeaderValue::from_str(&policy).expect("it is plain text")
});

struct Asset {
    name: &'static str,
    body: &'static [u8],
    /// The same, a third as long; made when it is first asked for.
    packed: OnceLock<Vec<u8>>,
    tag: String,
}

macro_rules! assets {
    ($($name:literal)*) => {
        [$(Asset::new($name, include_bytes!(concat!("assets/", $name)))),*]
    };
}

/// Goes into the page itself, as nothing is painted before it is there.
const LOOK: &str = concat!(
    include_str!("assets/style.css"),
    include_str!("assets/parts.css"),
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
        "files.js"
        "history.js"
        "live.js"
        "parts.js"
        "paths.js"
        "search.js"
        "tiles.js"
        "chart.js"
        "chart-export.js"
        "chart-scale.js"
        "plots.js"
        "job-clone.js"
        "job-files.js"
        "job-logs.js"
        "job-engines.js"
        "job-ranks.js"
        "job-timeline.js"
        "log-file.js"
        "log-text.js"
        "log-view.js"
        "pages/login.js"
        "pages/cluster.js"
        "pages/preview.js"
        "pages/scale.js"
        "pages/shares.js"
        "pages/overview.js"
        "pages/job.js"
        "pages/experiment.js"
        "pages/usage.js"
    };
    // Made once, and there for as long as the program is.
    let page = include_str!("assets/index.html").replace("LOOK", LOOK).leak();
    [Asset::new("index.html", page.as_bytes())].into_iter().chain(files).collect()
});

impl Asset {
    fn new(name: &'static str, body: &'static [u8]) -> Asset {
        let tag = Sha256::digest(body)[..8].iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        Asset { name, body, packed: OnceLock::new(), tag: format!("\"{tag}\"") }
    }

    fn packed(&'static self) -> &'static [u8] {
        self.packed.get_or_init(|| {
            let mut packer = GzEncoder::new(Vec::new(), Compression::best());
            packer.write_all(self.body).and_then(|()| packer.finish()).expect("memory takes what is written")
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

/// The answer to a request for a page or a part of one; nothing when it is for something else.
pub fn answer(request: &Parts) -> Option<Response> {
    if !matches!(request.method, Method::GET | Method::HEAD) {
        return None;
    }
    let path = request.uri.path();
    if path == UI || (path == "/" && is_browser(&request.headers)) {
        return Some(see_other("/ui/"));
    }
    if let Some(name) = path.strip_prefix(ASSETS) {
        let found = ALL.iter().find(|asset| asset.name == name && asset.name != "index.html");
        return Some(found.map_or_else(absent, |asset| show(asset, &request.headers)));
    }
    // Whatever page is asked for, it is this one that finds it.
    path.starts_with("/ui/").then(|| show(&ALL[0], &request.headers))
}

fn show(asset: &'static Asset, asked: &HeaderMap) -> Response {
    let known = asked.get_all(header::IF_NONE_MATCH).iter().filter_map(|value| value.to_str().ok());
    let is_known = known.flat_map(|tags| tags.split(',')).any(|tag| tag.trim().trim_start_matches("W/") == asset.tag);
    let codings = asked.get(header::ACCEPT_ENCODING).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let packs = codings.split(',').any(|coding| coding.trim() == "gzip");
    let mut response = Response::new(match (is_known, packs) {
        (true, _) => Body::empty(),
        (false, true) => Body::from(asset.packed()),
        (false, false) => Body::from(asset.body),
    });
    if is_known {
        *response.status_mut() = StatusCode::NOT_MODIFIED;
    }
    let headers = response.headers_mut();
    if packs && !is_known {
        headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    headers.insert(header::VARY, HeaderValue::from_static("accept-encoding"));
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(asset.media_type()));
    // Weak: it is the same whether packed or not.
    headers.insert(header::ETAG, HeaderValue::from_str(&format!("W/{}", asset.tag)).expect("hexadecimal digits"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    guarded(response)
}

fn guarded(mut response: Response) -> Response {
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_SECURITY_POLICY, POLICY.clone());
    for (name, value) in [
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

fn absent() -> Response {
    let mut response = Response::new(Body::from("There is no such file.\n"));
    *response.status_mut() = StatusCode::NOT_FOUND;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    guarded(response)
}

fn see_other(place: &'static str) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SEE_OTHER;
    response.headers_mut().insert(header::LOCATION, HeaderValue::from_static(place));
    guarded(response)
}

/// Whoever asks for a page to read; clients of the API ask for anything or for JSON.
fn is_browser(headers: &HeaderMap) -> bool {
    let accepted = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok());
    accepted.is_some_and(|accepted| accepted.split([',', ';']).any(|kind| kind.trim() == "text/html"))
}

#[cfg(test)]
mod tests;
