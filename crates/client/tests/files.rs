//! The file client against a small share in memory: signatures, listings, uploads and downloads in pieces, links.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::response::Response;
use corro_client::files::{DownloadRange, Entry};
use corro_client::link::Reading;
use corro_client::{ClientError, Credential, FileLink, FileService};
use corro_model::Secret;
use corro_model::storage::shared_key::{Credential as Signature, Request as Signed, verify};

const KEY: &str = "c2VjcmV0"; // "secret"
const MIB: usize = 1024 * 1024;

#[derive(Default)]
struct Disk {
    files: BTreeMap<String, Vec<u8>>,
    seen: Vec<String>,
    /// Ranges that fail once before they succeed.
    flaky: Vec<String>,
    /// Changes with every read from this one on, as if somebody wrote meanwhile.
    changing: bool,
    reads: u32,
}

type Shared = Arc<Mutex<Disk>>;

async fn serve() -> (Shared, FileService, String) {
    let listener = tokio::net::TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).await.expect("a port");
    let base = format!("http://{}", listener.local_addr().expect("bound"));
    let disk = Shared::default();
    let router = Router::new().fallback(handle).with_state(disk.clone());
    tokio::spawn(async move { axum::serve(listener, router).await });
    let files = FileService::new(&format!("{base}/acc/"), "acc", Credential::Key(Secret::new(KEY))).expect("a service");
    (disk, files, base)
}

async fn handle(State(disk): State<Shared>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let body = axum::body::to_bytes(body, 5 * MIB).await.expect("a body");
    let mut disk = disk.lock().expect("not poisoned");
    let range = text(&parts, "x-ms-range").or(text(&parts, "range")).unwrap_or_default();
    disk.seen.push(format!("{} {} {range}", parts.method, parts.uri).trim().to_owned());
    if !parts.uri.path().starts_with("/link/") && !is_signed(&parts, body.len()) {
        return error(403, "AuthenticationFailed");
    }
    if let Some(at) = disk.flaky.iter().position(|flaky| *flaky == range) {
        disk.flaky.remove(at);
        return error(503, "ServerBusy");
    }
    respond(&mut disk, &parts, &range, body)
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
    verify(signed, without, &[b"secret".to_vec()], signature.signature)
}

fn respond(disk: &mut Disk, parts: &Parts, range: &str, body: Bytes) -> Response {
    let path = parts.uri.path().to_owned();
    match (parts.method.as_str(), parts.uri.query().unwrap_or_default()) {
        ("PUT", "restype=share") if path == "/acc/old" => error(409, "ShareAlreadyExists"),
        ("PUT", "restype=share" | "restype=directory") => plain(201, Vec::new()),
        ("PUT", "comp=range") => {
            let (start, end) = bounds(range);
            let file = disk.files.get_mut(&path).expect("created first");
            file[start..=end].copy_from_slice(&body);
            plain(201, Vec::new())
        }
        ("PUT", "") => {
            let length: usize = text(parts, "x-ms-content-length").and_then(|l| l.parse().ok()).expect("a length");
            disk.files.insert(path, vec![0; length]);
            plain(201, Vec::new())
        }
        ("GET", "restype=directory&comp=list") => plain(200, LIST_1.into()),
        ("GET", "restype=directory&comp=list&marker=m%202") => plain(200, LIST_2.into()),
        ("GET", _) => read(disk, &path, range),
        ("DELETE", _) => plain(202, Vec::new()),
        other => panic!("{other:?} is not expected"),
    }
}

const LIST_1: &str = "<EnumerationResults><Entries><Directory><Name>d &amp; e</Name><Properties/></Directory></Entries>\
                      <NextMarker>m 2</NextMarker></EnumerationResults>";
const LIST_2: &str = "<EnumerationResults><Entries><File><Name>f</Name><Properties><Content-Length>7</Content-Length>\
                      </Properties></File></Entries><NextMarker/></EnumerationResults>";

fn read(disk: &mut Disk, path: &str, range: &str) -> Response {
    disk.reads += 1;
    let Some(file) = disk.files.get(path) else { return error(404, "ResourceNotFound") };
    let etag = if disk.changing { format!("\"{}\"", disk.reads) } else { "\"same\"".to_owned() };
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

/// Bytes in which no two ranges are alike.
fn content(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at / 4096 + at) as u8).collect()
}

fn no_progress(_: u64, _: u64) {}

#[tokio::test]
async fn trees() {
    let (disk, files, _) = serve().await;
    assert!(files.create_share("new", Some(5)).await.expect("made"));
    assert!(!files.create_share("old", None).await.expect("there already"));
    assert!(files.create_directory("new", "a b/c").await.expect("made"));
    let entries = files.list("new", "").await.expect("listed");
    assert_eq!(entries, [Entry::Directory { name: "d & e".into() }, Entry::File { name: "f".into(), length: 7 }]);
    files.delete_file("new", "f").await.expect("deleted");
    let seen = disk.lock().expect("not poisoned").seen.clone();
    assert_eq!(seen[2], "PUT /acc/new/a%20b/c?restype=directory");
    let error = files.delete_file("new", "../f").await.expect_err("escapes");
    assert!(matches!(error, ClientError::InvalidPath { .. }), "{error:?}");
}

#[tokio::test]
async fn a_wrong_key_is_an_error_of_the_service() {
    let (_, _, base) = serve().await;
    let files =
        FileService::new(&format!("{base}/acc"), "acc", Credential::Key(Secret::new("b3RoZXI="))).expect("fine");
    let error = files.create_share("new", None).await.expect_err("refused");
    let api = error.api().expect("the server's own");
    assert_eq!(
        (api.status, api.code.as_str(), api.message.as_str()),
        (403, "AuthenticationFailed", "It is AuthenticationFailed.")
    );
    let invalid = FileService::new(&base, "acc", Credential::Key(Secret::new("not base64!")));
    assert!(matches!(invalid, Err(ClientError::InvalidAccountKey)));
    let sas =
        FileService::new(&format!("{base}/acc"), "acc", Credential::Sas(Secret::new("?sv=1&sig=x%2B"))).expect("fine");
    sas.delete_file("new", "f").await.expect("the signature is in the query");
}

#[tokio::test]
async fn files_travel_in_pieces_and_come_back_the_same() {
    let (disk, files, _) = serve().await;
    let dir = tempfile::tempdir().expect("temp dir");
    // Empty, small, exactly one range, and past the first 32 MiB of a download.
    for length in [0, 10, 4 * MIB, 45 * MIB + 123] {
        let (source, destination) = (dir.path().join("source.bin"), dir.path().join("back.bin"));
        std::fs::write(&source, content(length)).expect("written");
        disk.lock().expect("not poisoned").flaky =
            vec!["bytes=4194304-8388607".into(), "bytes=33554432-41943039".into()];
        let largest = Mutex::new(0);
        let progress = |done: u64, total: u64| {
            assert!(done <= total && total == length as u64);
            let mut largest = largest.lock().expect("not poisoned");
            *largest = done.max(*largest);
        };
        let sent = files.upload("s", "d/é f.bin", &source, 3, &progress).await.expect("uploaded");
        assert_eq!((sent, *largest.lock().expect("not poisoned")), (length as u64, length as u64));
        assert!(disk.lock().expect("not poisoned").files["/acc/s/d/%C3%A9%20f.bin"] == content(length), "{length}");

        let whole = DownloadRange::default();
        let got = files.download("s", "d/é f.bin", whole, &destination, 3, &progress).await.expect("downloaded");
        assert_eq!((got.bytes, got.properties.length), (length as u64, length as u64));
        assert_eq!(got.properties.last_modified.map(|time| time.to_string()).as_deref(), Some("2018-06-07T22:21:55Z"));
        assert!(std::fs::read(&destination).expect("there") == content(length), "{length}");
        std::fs::remove_file(&destination).expect("removed");
    }
    assert_eq!(std::fs::read_dir(dir.path()).expect("listed").count(), 1, "only the source is left");
}

#[tokio::test]
async fn a_part_of_a_file() {
    let (disk, files, _) = serve().await;
    disk.lock().expect("not poisoned").files.insert("/acc/s/f".into(), content(100));
    let dir = tempfile::tempdir().expect("temp dir");
    let destination = dir.path().join("f");
    let range = DownloadRange { start: 10, end: Some(19) };
    let got = files.download("s", "f", range, &destination, 2, &no_progress).await.expect("downloaded");
    assert_eq!((got.bytes, got.content_range.as_deref()), (10, Some("bytes 10-19/100")));
    assert_eq!(std::fs::read(&destination).expect("there"), content(100)[10..20]);
}

#[tokio::test]
async fn a_failed_download_leaves_the_destination_alone() {
    let (disk, files, _) = serve().await;
    let dir = tempfile::tempdir().expect("temp dir");
    let destination = dir.path().join("model.h5");
    std::fs::write(&destination, "old").expect("written");
    let whole = DownloadRange::default();
    let error = files.download("s", "missing", whole, &destination, 2, &no_progress).await.expect_err("missing");
    assert_eq!(error.api().map(|api| api.code.as_str()), Some("ResourceNotFound"));

    disk.lock().expect("not poisoned").files.insert("/acc/s/f".into(), content(50 * MIB));
    disk.lock().expect("not poisoned").changing = true;
    let error = files.download("s", "f", whole, &destination, 2, &no_progress).await.expect_err("changed");
    assert!(matches!(error, ClientError::ChangedDuringDownload { .. }), "{error:?}");
    assert_eq!(std::fs::read_to_string(&destination).expect("there"), "old");
    assert_eq!(std::fs::read_dir(dir.path()).expect("listed").count(), 1);
}

#[tokio::test]
async fn a_file_is_followed_by_its_link() {
    let (disk, _, base) = serve().await;
    disk.lock().expect("not poisoned").files.insert("/link/f".into(), b"hello ".to_vec());
    let link = FileLink::new(&format!("{base}/link/f?sig=1")).expect("a link");
    assert_eq!(bytes_from(&link, 0).await, b"hello ");
    assert!(matches!(link.read_from(6).await, Ok(Reading::AtEnd)));
    disk.lock().expect("not poisoned").files.get_mut("/link/f").expect("there").extend(b"world\xff");
    assert_eq!(bytes_from(&link, 6).await, b"world\xff");
    let gone = FileLink::new(&format!("{base}/link/none")).expect("a link");
    assert!(gone.read_from(0).await.expect_err("gone").is_not_found());
}

async fn bytes_from(link: &FileLink, offset: u64) -> Vec<u8> {
    let Ok(Reading::Bytes(mut body)) = link.read_from(offset).await else { panic!("nothing at {offset}") };
    let mut read = Vec::new();
    while let Some(bytes) = body.next().await.expect("unbroken") {
        read.extend_from_slice(&bytes);
    }
    read
}
