//! Tests of the file service in one process: requests go directly into `handle`, signed as clients sign them. This file
//! is the fixture.

mod access;
mod blobs;
mod caching;
mod containers;
mod content;
mod directories;
mod escapes;
mod leases;
mod mount;
mod properties;
mod rename_and_ranges;
mod sas;
mod smb;
mod snapshots;
mod stream;
mod symlinks;

use std::{
    collections::HashMap,
    path::PathBuf,
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{body::Body, extract::Request};
use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::Bytes;
use corro_model::storage::shared_key;
use corro_shares::Shares;
use http::HeaderMap;
use http_body_util::BodyExt;
use tempfile::TempDir;

use super::{AccountKeys, AddressStyle, FileService};
use crate::RateLimiter;

/// 2018-06-07T22:21:55Z
pub const NOW: i64 = 1_528_410_115;
pub const DATE: &str = "Thu, 07 Jun 2018 22:21:55 GMT";
pub const KEY1: [u8; 64] = [1; 64];
pub const KEY2: [u8; 64] = [2; 64];

struct OneAccount;

impl AccountKeys for OneAccount {
    fn keys(&self, account: &str) -> Option<Arc<[Vec<u8>]>> {
        (account == "acc").then(|| [KEY1.to_vec(), KEY2.to_vec()].into())
    }
}

/// Rate limiter with a fixed number of requests per account and address.
struct FixedBudget {
    per_caller: u32,
    used: Mutex<HashMap<String, u32>>,
}

impl FixedBudget {
    pub fn new(per_caller: u32) -> Self {
        FixedBudget { per_caller, used: Mutex::default() }
    }

    fn admit(&self, caller: String) -> Result<(), Duration> {
        let mut used = self.used.lock().expect("free");
        let used = used.entry(caller).or_default();
        *used += 1;
        if *used <= self.per_caller { Ok(()) } else { Err(Duration::from_millis(700)) }
    }
}

impl RateLimiter for FixedBudget {
    fn admit_account(&self, account: &str) -> Result<(), Duration> {
        self.admit(format!("account {account}"))
    }

    fn admit_unauthenticated(&self, address: &str) -> Result<(), Duration> {
        self.admit(format!("address {address}"))
    }
}

pub struct Bench {
    pub dir: TempDir,
    pub service: FileService,
}

pub struct Answer {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl Bench {
    /// With the account `acc` and, in it, the share `share`.
    pub fn new() -> Self {
        Self::limited(u32::MAX)
    }

    pub fn limited(requests: u32) -> Self {
        Self::made(Arc::new(OneAccount), requests)
    }

    pub fn with_keys(keys: Arc<dyn AccountKeys>) -> Self {
        Self::made(keys, u32::MAX)
    }

    fn made(keys: Arc<dyn AccountKeys>, requests: u32) -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let shares = Arc::new(Shares::open(dir.path().join("root")).expect("a root"));
        shares.create_share("acc", "share").expect("a share");
        let service = FileService::new(shares, keys, Arc::new(FixedBudget::new(requests)), || NOW);
        Bench { dir, service }
    }

    /// Path of the share on disk.
    pub fn host(&self) -> PathBuf {
        self.dir.path().join("root/acc/share")
    }

    /// A path-style request, signed with the first key. `uri` begins after `/acc`.
    pub async fn send(&self, method: &str, uri: &str, headers: &[(&str, &str)], body: impl Into<Bytes>) -> Answer {
        let body = body.into();
        let length = body.len().to_string();
        let mut headers = headers.to_vec();
        if !headers.iter().any(|(name, _)| *name == "content-length") {
            headers.push(("content-length", &length));
        }
        self.send_raw(sign(method, &format!("/acc{uri}"), &headers, &KEY1), AddressStyle::Path, body).await
    }

    pub async fn get(&self, uri: &str, headers: &[(&str, &str)]) -> Answer {
        self.send("GET", uri, headers, "").await
    }

    pub async fn send_raw(
        &self,
        request: http::request::Builder,
        style: AddressStyle,
        body: impl Into<Body>,
    ) -> Answer {
        let request: Request = request.body(body.into()).expect("a good request");
        let response = self.service.handle("acc", style, request, None).await;
        let (parts, body) = response.into_parts();
        let body = body.collect().await.expect("a whole body").to_bytes();
        Answer { status: parts.status.as_u16(), headers: parts.headers, body }
    }

    /// Uploads a file as an SDK does: created, then written range by range.
    pub async fn upload(&self, uri: &str, content: &[u8]) {
        let length = content.len().to_string();
        let made = self.send("PUT", uri, &[("x-ms-type", "file"), ("x-ms-content-length", &length)], "").await;
        assert_eq!(made.status, 201, "{made:?}");
        for (idx, piece) in content.chunks(4 << 20).enumerate() {
            let start = idx * (4 << 20);
            let range = format!("bytes={start}-{}", start + piece.len() - 1);
            let headers = [("x-ms-write", "update"), ("x-ms-range", range.as_str())];
            let written = self.send("PUT", &format!("{uri}?comp=range"), &headers, piece.to_vec()).await;
            assert_eq!(written.status, 201, "{written:?}");
        }
    }
}

/// A signed request; the date is added unless given.
pub fn sign(method: &str, uri: &str, headers: &[(&str, &str)], key: &[u8]) -> http::request::Builder {
    let mut headers = headers.to_vec();
    if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("x-ms-date")) {
        headers.push(("x-ms-date", DATE));
    }
    let (path, query) = uri.split_once('?').unwrap_or((uri, ""));
    let request = shared_key::Request { method, path, query, account: "acc" };
    let authorization = shared_key::authorization(request, headers.iter().copied(), key);
    let builder = Request::builder().method(method).uri(uri).header("authorization", authorization);
    headers.iter().fold(builder, |builder, (name, value)| builder.header(*name, *value))
}

pub fn md5(bytes: &[u8]) -> String {
    use md5::Digest;
    STANDARD.encode(md5::Md5::digest(bytes))
}

impl Answer {
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map(|value| value.to_str().expect("text")).unwrap_or_default()
    }

    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("text")
    }

    /// Status and error code; `ok` for success. Checks the headers that every response must have.
    pub fn outcome(&self) -> (u16, &str) {
        assert!(!self.header("x-ms-request-id").is_empty(), "{self:?}");
        assert!(!self.header("x-ms-version").is_empty(), "{self:?}");
        match self.headers.contains_key("x-ms-error-code") {
            true => (self.status, self.header("x-ms-error-code")),
            false => (self.status, "ok"),
        }
    }
}

impl std::fmt::Debug for Answer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {:?} {}", self.status, self.headers, String::from_utf8_lossy(&self.body))
    }
}
