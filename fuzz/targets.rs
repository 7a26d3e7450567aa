//! Fuzz targets: each function takes untrusted bytes and asserts invariants that hold for every input. The coverage-guided
//! driver beside this file calls them, and so does an ordinary test, with the corpus and mutations of it.

#[path = "targets/handshake.rs"]
mod handshake;
#[path = "targets/metrics.rs"]
mod metrics;
#[path = "targets/nfs.rs"]
mod nfs;
#[path = "targets/sas.rs"]
mod sas;

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use corro_file_service::{AccountKeys, AddressStyle, FileService, RateLimiter};
use corro_model::batchai::{ClusterCreateParameters, FileServerCreateParameters, JobCreateParameters};
use corro_model::node::{FromNode, JoinRequest, ToNode, bearer, parse_bearer};
use corro_model::ops::{ALL, match_path};
use corro_model::rbac::Scope;
use corro_model::storage::sas::{AccountSas, Sas};
use corro_model::storage::shared_key::{self, Credential};
use corro_model::{job_file, validate};
use corro_shares::{SharePath, Shares};

pub type Target = fn(&[u8]);

pub const TARGETS: &[(&str, Target)] = &[
    ("path", path),
    ("job_json", job_json),
    ("headers", headers),
    ("xml", xml),
    ("node_message", node_message),
    ("sas", sas::sas),
    ("nfs", nfs::nfs),
    ("handshake", handshake::handshake),
    ("metrics", metrics::metrics),
];

/// Paths on shares and of requests: an accepted path cannot traverse upwards, and parses back to itself.
pub fn path(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(path) = SharePath::parse(text) {
        let normalized = path.as_str();
        assert_eq!(SharePath::parse(normalized).ok().as_ref(), Some(&path), "{normalized:?} reads back differently");
        assert!(
            !normalized.starts_with('/') && !normalized.contains('\0') && !normalized.contains('\\'),
            "{normalized:?}"
        );
        let climbs = |segment: &str| matches!(segment, "." | "..") || segment.is_empty();
        assert!(path.is_root() || !normalized.split('/').any(climbs), "{normalized:?}");
    }
    for (id, _, template) in ALL {
        let Some(parameters) = match_path(template, text) else { continue };
        let n_parameters = template.split('/').filter(|segment| segment.starts_with('{')).count();
        assert_eq!(parameters.len(), n_parameters, "{id}");
        // Rights are checked at the scope that the request's own names denote.
        let name = |key: &str| parameters.iter().find(|(name, _)| *name == key).map(|(_, value)| value.to_lowercase());
        let expected = match (name("group"), name("workspace")) {
            (Some(group), Some(workspace)) => Scope::Workspace(group, workspace),
            (Some(group), None) => Scope::Group(group),
            _ => Scope::Subscription,
        };
        assert_eq!(Scope::of_path(text), expected, "{id} at {text:?}");
    }
}

/// `job.json`, and descriptions of clusters and file servers: parsed, validated, and unchanged by a round trip.
pub fn job_json(data: &[u8]) {
    if let Ok(job) = job_file::parse::<JobCreateParameters>(data) {
        let _ = validate::check_job(&job.properties);
        round_trip(&job);
    }
    if let Ok(cluster) = job_file::parse::<ClusterCreateParameters>(data) {
        let _ = validate::check_cluster(&cluster.properties);
        round_trip(&cluster);
    }
    if let Ok(server) = job_file::parse::<FileServerCreateParameters>(data) {
        let _ = validate::check_file_server(&server.properties);
        round_trip(&server);
    }
    if let Err(problem) = job_file::parse::<JobCreateParameters>(data) {
        let _ = problem.to_string();
    }
}

/// Messages between server and agent.
pub fn node_message(data: &[u8]) {
    if let Ok(message) = serde_json::from_slice::<FromNode>(data) {
        round_trip(&message);
    }
    if let Ok(message) = serde_json::from_slice::<ToNode>(data) {
        round_trip(&message);
    }
    if let Ok(request) = job_file::parse::<JoinRequest>(data) {
        round_trip(&request);
    }
    if let Ok(text) = std::str::from_utf8(data)
        && let Some(credential) = parse_bearer(text)
    {
        let again = parse_bearer(&bearer(&credential)).expect("a parsed credential can be written");
        assert_eq!((again.node, again.epoch), (credential.node, credential.epoch));
    }
}

/// Headers of the file service, on the service itself. The first line is `METHOD target`, the others are headers. Sent once as
/// it is, where only refusals are right, and once signed with the account's key.
pub fn headers(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let mut lines = text.lines();
    let (method, target) = lines.next().unwrap_or_default().split_once(' ').unwrap_or(("GET", "/acc/share/file"));
    let given: Vec<(&str, &str)> = lines.filter_map(|line| line.split_once(':')).map(|(n, v)| (n, v.trim())).collect();
    let query = target.split_once('?').map_or("", |(_, query)| query);
    let _ = Sas::from_query(query);
    let _ = AccountSas::from_query(query);
    for (_, value) in &given {
        let _ = Credential::parse(value);
    }
    SERVICE.with_borrow_mut(|service| {
        let service = service.get_or_insert_with(TestService::new);
        if let Some(status) = service.send(method, target, &given, &[]) {
            assert!((400..500).contains(&status), "{method} {target} without a key answers {status}");
        }
        // Only methods that leave nothing behind for the next input.
        if matches!(method, "GET" | "HEAD") {
            let mut given = given.clone();
            given.retain(|(name, _)| {
                !["authorization", "x-ms-date", "date"].contains(&name.to_ascii_lowercase().as_str())
            });
            if let Some(status) = service.send_signed(method, target, &given, &[]) {
                assert!(status < 500, "{method} {target} with a key answers {status}");
            }
        }
    });
}

/// XML bodies that the file and blob services parse: access policies, settings, lists of blocks, and permissions. Accepted
/// values survive a round trip.
pub fn xml(data: &[u8]) {
    let length = data.len().to_string();
    SERVICE.with_borrow_mut(|service| {
        let service = service.get_or_insert_with(TestService::new);
        for target in [
            "/acc/share?restype=share&comp=acl",
            "/acc/?restype=service&comp=properties",
            "/acc/share?restype=share&comp=filepermission",
            "/acc.blob/con?restype=container&comp=acl",
            "/acc.blob/?restype=service&comp=properties",
            "/acc.blob/con/blob?comp=blocklist",
        ] {
            let put = service.send_signed("PUT", target, &[("content-length", length.as_str())], data);
            assert!(put.is_some_and(|status| status < 500), "{target} answers {put:?}");
            if put.is_some_and(|status| status < 300) {
                let key = [("x-ms-file-permission-key", "0*0")];
                assert_eq!(service.send_signed("GET", target, &key, &[]), Some(200), "{target} afterwards");
            }
        }
    });
}

const KEY: [u8; 64] = [7; 64];

thread_local! {
    static SERVICE: RefCell<Option<TestService>> = const { RefCell::new(None) };
}

/// A file service with one file, and the runtime that runs it.
struct TestService {
    service: FileService,
    runtime: tokio::runtime::Runtime,
    _dir: tempfile::TempDir,
}

struct OneAccount;

impl AccountKeys for OneAccount {
    fn keys(&self, account: &str) -> Option<Arc<[Vec<u8>]>> {
        (account == "acc").then(|| [KEY.to_vec()].into())
    }
}

/// No rate limit: the parsers are fuzzed here.
struct Unlimited;

impl RateLimiter for Unlimited {
    fn admit_account(&self, _: &str) -> Result<(), Duration> {
        Ok(())
    }

    fn admit_unauthenticated(&self, _: &str) -> Result<(), Duration> {
        Ok(())
    }
}

impl TestService {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let shares = Arc::new(Shares::open(dir.path().join("root")).expect("a root"));
        shares.create_share("acc", "share").expect("a share");
        std::fs::write(dir.path().join("root/acc/share/file"), [b'x'; 1000]).expect("a file");
        let service = FileService::new(shares, Arc::new(OneAccount), Arc::new(Unlimited), || 0);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let service = TestService { service, runtime, _dir: dir };
        let status = service.send_signed("PUT", "/acc.blob/con?restype=container", &[("content-length", "0")], &[]);
        assert_eq!(status, Some(201), "a container");
        service
    }

    /// Status of the response; `None` when the input is not an HTTP request.
    fn send(&self, method: &str, target: &str, headers: &[(&str, &str)], body: &[u8]) -> Option<u16> {
        let mut request = axum::http::Request::builder().method(method).uri(target);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request: Request = request.body(Body::from(body.to_vec())).ok()?;
        request.uri().path().starts_with('/').then_some(())?;
        let is_blob = request.uri().path().starts_with("/acc.blob");
        let style = if is_blob { AddressStyle::BlobPath } else { AddressStyle::Path };
        Some(self.runtime.block_on(self.service.handle("acc", style, request, None)).status().as_u16())
    }

    /// Like `send`, signed with the account's key.
    fn send_signed(&self, method: &str, target: &str, headers: &[(&str, &str)], body: &[u8]) -> Option<u16> {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let date = ("x-ms-date", "Thu, 01 Jan 1970 00:00:00 GMT");
        let request = shared_key::Request { method, path, query, account: "acc" };
        let signed = headers.iter().copied().chain([date]);
        let authorization = shared_key::authorization(request, signed.clone(), &KEY);
        let headers: Vec<_> = signed.chain([("authorization", authorization.as_str())]).collect();
        self.send(method, target, &headers, body)
    }
}

/// Asserts that serialising and parsing changes nothing.
fn round_trip<T: serde::Serialize + serde::de::DeserializeOwned>(value: &T) {
    let once = serde_json::to_value(value).expect("plain data");
    let again: T = serde_json::from_value(once.clone()).expect("a serialised value can be parsed");
    assert_eq!(serde_json::to_value(&again).expect("plain data"), once);
}
