//! In-memory file share behind a real socket. Checks every signature, records requests, and can fail or change files.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::response::Response;
use corro_client::{Credential, FileService};
use corro_model::Secret;
use corro_model::storage::shared_key::{Credential as Signature, Request as Signed, verify};

const KEY: &str = "c2VjcmV0"; // "secret"
pub const MIB: usize = 1024 * 1024;

#[derive(Default)]
pub struct FakeShare {
    pub files: BTreeMap<String, Vec<u8>>,
    pub seen: Vec<String>,
    /// Metadata and content headers of the last request that had any.
    pub property_headers: Vec<String>,
    /// Ranges that fail once before they succeed.
    pub flaky: Vec<String>,
    /// Changes the ETag with every read, like a concurrent writer.
    pub changing: bool,
    pub reads: u32,
}

pub type Shared = Arc<Mutex<FakeShare>>;

pub async fn serve() -> (Shared, FileService, String) {
    let listener = tokio::net::TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).await.expect("a port");
    let base = format!("http://{}", listener.local_addr().expect("bound"));
    let share = Shared::default();
    let router = Router::new().fallback(handle).with_state(share.clone());
    tokio::spawn(async move { axum::serve(listener, router).await });
    let files = FileService::new(&format!("{base}/acc/"), "acc", Credential::Key(Secret::new(KEY))).expect("a service");
    (share, files, base)
}

async fn handle(State(share): State<Shared>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let body = axum::body::to_bytes(body, 5 * MIB).await.expect("a body");
    let mut share = share.lock().expect("not poisoned");
    let range = text(&parts, "x-ms-range").or(text(&parts, "range")).unwrap_or_default();
    share.seen.push(format!("{} {} {range}", parts.method, parts.uri).trim().to_owned());
    let property_headers: Vec<String> = parts
        .headers
        .keys()
        .map(|name| name.as_str())
        .filter(|name| is_setting(name))
        .map(|name| format!("{name}: {}", text(&parts, name).unwrap_or_default()))
        .collect();
    if !property_headers.is_empty() {
        share.property_headers = property_headers;
        share.property_headers.sort();
    }
    if !parts.uri.path().starts_with("/link/") && !is_signed(&parts, body.len()) {
        return error(403, "AuthenticationFailed");
    }
    if let Some(at) = share.flaky.iter().position(|flaky| *flaky == range) {
        share.flaky.remove(at);
        return error(503, "ServerBusy");
    }
    respond(&mut share, &parts, &range, body)
}

fn is_setting(header: &str) -> bool {
    header.starts_with("x-ms-meta-")
        || header == "x-ms-cache-control"
        || header.starts_with("x-ms-content-") && header != "x-ms-content-length"
}

fn is_signed(parts: &Parts, length: usize) -> bool {
    let Some(authorization) = text(parts, "authorization") else {
        return parts.uri.query().is_some_and(|query| query.ends_with("sig=x%2B"));
    };
    let signature = Signature::parse(&authorization).expect("shared key");
    let headers = parts.headers.iter().filter_map(|(name, value)| Some((name.as_str(), value.to_str().ok()?)));
    let length = length.to_string();
    let without = headers.filter(|(name, _)| *name != "content-length").chain([("content-length", length.as_str())]);
    let signed = Signed {
        method: parts.method.as_str(),
        path: parts.uri.path(),
        query: parts.uri.query().unwrap_or_default(),
        account: "acc",
    };
    verify(signed, without, &[b"secret".to_vec()], signature).is_some()
}

fn respond(share: &mut FakeShare, parts: &Parts, range: &str, body: Bytes) -> Response {
    let path = parts.uri.path().to_owned();
    match (parts.method.as_str(), parts.uri.query().unwrap_or_default()) {
        ("PUT", "restype=share") if path == "/acc/old" => error(409, "ShareAlreadyExists"),
        ("PUT", "restype=share" | "restype=directory") => plain(201, Vec::new()),
        ("PUT", "comp=range") => {
            let (start, end) = bounds(range);
            let file = share.files.get_mut(&path).expect("created first");
            file[start..=end].copy_from_slice(&body);
            plain(201, Vec::new())
        }
        ("PUT", "") => {
            let length: usize = text(parts, "x-ms-content-length").and_then(|l| l.parse().ok()).expect("a length");
            share.files.insert(path, vec![0; length]);
            plain(201, Vec::new())
        }
        ("GET", "restype=directory&comp=list") => plain(200, LIST_1.into()),
        ("GET", "restype=directory&comp=list&marker=m%202") => plain(200, LIST_2.into()),
        ("GET", _) => read(share, &path, range),
        ("DELETE", _) => plain(202, Vec::new()),
        other => panic!("{other:?} is not expected"),
    }
}

const LIST_1: &str = "<EnumerationResults><Entries><Directory><Name>d &amp; e</Name><Properties/></Directory></Entries>\
                      <NextMarker>m 2</NextMarker></EnumerationResults>";
const LIST_2: &str = "<EnumerationResults><Entries><File><Name>f</Name><Properties><Content-Length>7</Content-Length>\
                      </Properties></File></Entries><NextMarker/></EnumerationResults>";

fn read(share: &mut FakeShare, path: &str, range: &str) -> Response {
    share.reads += 1;
    let Some(file) = share.files.get(path) else { return error(404, "ResourceNotFound") };
    let etag = if share.changing { format!("\"{}\"", share.reads) } else { "\"same\"".to_owned() };
    let builder = Response::builder().header("etag", etag).header("last-modified", "Thu, 07 Jun 2018 22:21:55 GMT");
    if range.is_empty() {
        return builder.body(Body::from(file.clone())).expect("a response");
    }
    let (start, end) = bounds(range);
    if start >= file.len() {
        return error(416, "InvalidRange");
    }
    let end = end.min(file.len() - 1);
    builder
        .status(206)
        .header("content-range", format!("bytes {start}-{end}/{}", file.len()))
        .body(Body::from(file[start..=end].to_vec()))
        .expect("a response")
}

fn bounds(range: &str) -> (usize, usize) {
    let (start, end) = range.strip_prefix("bytes=").and_then(|range| range.split_once('-')).expect("a range");
    (start.parse().expect("a number"), end.parse().unwrap_or(usize::MAX - 1))
}

fn text(parts: &Parts, name: &str) -> Option<String> {
    parts.headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned)
}

fn plain(status: u16, body: Vec<u8>) -> Response {
    Response::builder().status(status).body(body.into()).expect("a response")
}

fn error(status: u16, code: &str) -> Response {
    let document = format!(
        "\u{feff}<?xml version=\"1.0\" encoding=\"utf-8\"?><Error><Code>{code}</Code><Message>It is {code}.\nRequestId:1</Message></Error>"
    );
    Response::builder().status(status).header("x-ms-error-code", code).body(document.into()).expect("a response")
}
