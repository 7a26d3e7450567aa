//! Caches of headers and verified SAS: repeated reads hit them, and stale entries are never used.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::extract::Request;
use corro_model::storage::sas;

use super::{AccountKeys, AddressStyle, Answer, Bench, KEY1, KEY2, NOW};
use crate::auth::sas_cache;
use crate::files::header_cache;

/// Reads until the file is cached, which takes some seconds without a change. False if the file system does not support
/// non-blocking reads.
async fn remember(bench: &Bench, uri: &str) -> bool {
    let deadline = Instant::now() + Duration::from_secs(20);
    while header_cache::cached_count() == 0 {
        if Instant::now() > deadline {
            eprintln!("passed over: files here cannot be read without waiting for the disk");
            return false;
        }
        assert_eq!(bench.get(uri, &[]).await.status, 200);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    true
}

#[tokio::test]
async fn cached_headers_are_never_stale() {
    let bench = Bench::new();
    bench.upload("/share/f", b"hello").await;
    if !remember(&bench, "/share/f").await {
        return;
    }
    let shown = |answer: &Answer| {
        let names = ["etag", "content-type", "content-length", "x-ms-meta-a", "x-ms-file-parent-id", "x-ms-type"];
        (names.map(|name| answer.header(name).to_owned()), answer.body.clone())
    };
    let newer = [("x-ms-version", "2023-11-03")];
    let older = shown(&bench.get("/share/f", &[]).await);
    assert_eq!(older, shown(&bench.get("/share/f", &[]).await));
    // Another API version gets more headers of the same file.
    let parent = bench.get("/share/f", &newer).await.header("x-ms-file-parent-id").to_owned();
    assert_eq!((older.0[4].as_str(), parent.is_empty()), ("", false));
    let part = bench.get("/share/f", &[("x-ms-range", "bytes=1-2")]).await;
    assert_eq!((part.status, &part.body[..], part.header("content-length")), (206, &b"el"[..], "2"));

    let set = bench.send("PUT", "/share/f?comp=metadata", &[("x-ms-meta-a", "1")], "").await;
    assert_eq!((set.status, bench.get("/share/f", &[]).await.header("x-ms-meta-a")), (200, "1"));
    bench.send("PUT", "/share/f?comp=range", &[("x-ms-write", "update"), ("x-ms-range", "bytes=0-0")], "j").await;
    let written = shown(&bench.get("/share/f", &[]).await);
    assert_eq!(written.1, "jello");
    assert_ne!(written.0[0], older.0[0], "another ETag");
    let lease = [("x-ms-lease-action", "acquire"), ("x-ms-lease-duration", "-1"), newer[0]];
    assert_eq!(bench.send("PUT", "/share/f?comp=lease", &lease, "").await.status, 201);
    assert_eq!(bench.get("/share/f", &newer).await.header("x-ms-lease-state"), "leased");
    assert_eq!(bench.send("DELETE", "/share/f", &[], "").await.status, 412, "it is leased");
    std::fs::remove_file(bench.host().join("f")).expect("removed");
    assert_eq!(bench.get("/share/f", &[]).await.status, 404);
}

/// An account whose keys can be rotated.
#[derive(Default)]
struct Renewed(Mutex<Option<Arc<[Vec<u8>]>>>);

impl AccountKeys for Renewed {
    fn keys(&self, account: &str) -> Option<Arc<[Vec<u8>]>> {
        self.0.lock().expect("free").clone().filter(|_| account == "acc")
    }
}

#[tokio::test]
async fn a_cached_sas_keeps_its_terms_and_misses_after_key_rotation() {
    let keys = Arc::new(Renewed::default());
    let set = |key: [u8; 64]| *keys.0.lock().expect("free") = Some([key.to_vec()].into());
    set(KEY1);
    let bench = Bench::with_keys(keys.clone());
    for name in ["f", "g"] {
        std::fs::write(bench.host().join(name), name).expect("written");
    }
    let link = |seconds: i64| sas::read_link_query(&KEY1, "acc", "share", "f", NOW + seconds).expect("a link");
    let get = async |name: &str, query: &str| {
        let request = Request::builder().uri(format!("/acc/share/{name}?{query}"));
        bench.send_raw(request, AddressStyle::Path, "").await.status
    };
    let (good, over) = (link(60), link(0));
    for _ in 0..2 {
        assert_eq!(get("f", &good).await, 200);
        assert_eq!(get("f", &over).await, 403, "it has ended");
        assert_eq!(get("g", &good).await, 403, "another file");
        assert_eq!(get("f", &good.replace("sp=rl", "sp=rwl")).await, 403, "not what was signed");
    }
    assert_eq!(sas_cache::cached_count(), 1);
    set(KEY2);
    assert_eq!(get("f", &good).await, 403, "the key is another");
    set(KEY1);
    assert_eq!(get("f", &good).await, 200);
    *keys.0.lock().expect("free") = None;
    assert_eq!(get("f", &good).await, 403, "there is no such account");
}
