//! Stored properties: metadata, content settings, quota, statistics; conditional reads.

use std::fs;

use super::{Bench, md5};

const CREATE: [(&str, &str); 2] = [("x-ms-type", "file"), ("x-ms-content-length", "5")];

#[tokio::test]
async fn metadata_and_content_settings_are_returned() {
    let bench = Bench::new();
    let digest = md5(b"hello");
    let about = [
        ("x-ms-content-type", "text/x-python"),
        ("x-ms-content-encoding", "gzip"),
        ("x-ms-content-language", "en"),
        ("x-ms-content-disposition", "attachment; filename=\"x.py\""),
        ("x-ms-content-md5", digest.as_str()),
        ("x-ms-cache-control", "no-cache"),
        ("x-ms-meta-Owner", "me & you"),
        ("x-ms-meta-empty", ""),
    ];
    let made = bench.send("PUT", "/share/f", &[&CREATE[..], &about].concat(), "").await;
    assert_eq!(made.status, 201, "{made:?}");
    let expected = [
        ("content-type", "text/x-python"),
        ("content-encoding", "gzip"),
        ("content-language", "en"),
        ("content-disposition", "attachment; filename=\"x.py\""),
        ("content-md5", digest.as_str()),
        ("cache-control", "no-cache"),
        ("x-ms-meta-owner", "me & you"),
        ("content-security-policy", "default-src 'none'; sandbox"),
    ];
    for answer in [bench.send("HEAD", "/share/f", &[], "").await, bench.get("/share/f", &[]).await] {
        expected.iter().for_each(|(name, value)| assert_eq!(answer.header(name), *value, "{name}"));
        assert!(answer.headers.contains_key("x-ms-meta-empty"));
    }
    let part = bench.get("/share/f", &[("x-ms-range", "bytes=0-1")]).await;
    assert_eq!((part.header("content-md5"), part.header("x-ms-content-md5")), ("", digest.as_str()));

    // A new length keeps the content settings. New settings replace all settings and no metadata. New metadata replaces
    // all metadata and no settings.
    let set = async |comp: &str, headers: &[(&str, &str)]| {
        let before = bench.get("/share/f", &[]).await.header("etag").to_owned();
        let answer = bench.send("PUT", &format!("/share/f?comp={comp}"), headers, "").await;
        assert_eq!(answer.status, 200, "{answer:?}");
        assert_ne!(answer.header("etag"), before);
        bench.send("HEAD", "/share/f", &[], "").await
    };
    let resized = set("properties", &[("x-ms-content-length", "7")]).await;
    assert_eq!((resized.header("content-length"), resized.header("content-type")), ("7", "text/x-python"));
    let typed = set("properties", &[("x-ms-content-type", "a/b")]).await;
    assert_eq!((typed.header("content-type"), typed.header("content-language")), ("a/b", ""));
    assert_eq!(typed.header("x-ms-meta-owner"), "me & you");
    let renamed = set("metadata", &[("x-ms-meta-b", "2")]).await;
    assert_eq!((renamed.header("x-ms-meta-b"), renamed.header("content-type")), ("2", "a/b"));
    assert!(!renamed.headers.contains_key("x-ms-meta-owner"));
    // Created again, it has the properties of the new request only.
    bench.upload("/share/f", b"x").await;
    let anew = bench.send("HEAD", "/share/f", &[], "").await;
    assert_eq!((anew.header("content-type"), anew.header("x-ms-meta-b")), ("application/octet-stream", ""));
}

#[tokio::test]
async fn invalid_metadata_is_rejected_and_nothing_created() {
    let bench = Bench::new();
    let long = "x".repeat(8200);
    for (name, value, code) in [
        ("x-ms-meta-1st", "v", "InvalidMetadata"),
        ("x-ms-meta-", "v", "InvalidMetadata"),
        ("x-ms-meta-a!b", "v", "InvalidMetadata"),
        ("x-ms-meta-a", "é", "InvalidMetadata"),
        ("x-ms-meta-a", long.as_str(), "MetadataTooLarge"),
        ("x-ms-content-type", "é", "InvalidHeaderValue"),
        ("x-ms-content-type", &"y".repeat(17000), "InvalidHeaderValue"),
    ] {
        let refused = bench.send("PUT", "/share/f", &[&CREATE[..], &[(name, value)]].concat(), "").await;
        assert_eq!(refused.outcome(), (400, code), "{name}");
        assert_eq!(bench.send("HEAD", "/share/f", &[], "").await.status, 404);
    }
}

#[tokio::test]
async fn directories_and_shares_keep_metadata_too() {
    let bench = Bench::new();
    let meta = [("x-ms-meta-a", "1"), ("x-ms-share-quota", "7")];
    assert_eq!(bench.send("PUT", "/share/d?restype=directory", &meta, "").await.status, 201);
    assert_eq!(bench.send("PUT", "/other?restype=share", &meta, "").await.status, 201);
    for uri in ["/share/d?restype=directory", "/other?restype=share"] {
        for uri in [uri.to_owned(), format!("{uri}&comp=metadata")] {
            assert_eq!(bench.get(&uri, &[]).await.header("x-ms-meta-a"), "1", "{uri}");
        }
        assert_eq!(bench.send("PUT", &format!("{uri}&comp=metadata"), &[("x-ms-meta-b", "2")], "").await.status, 200);
        let found = bench.get(uri, &[]).await;
        assert_eq!((found.header("x-ms-meta-a"), found.header("x-ms-meta-b")), ("", "2"));
    }
    let file = bench.send("PUT", "/share/d?comp=metadata", &meta, "").await;
    assert_eq!(file.outcome(), (404, "ResourceNotFound"), "a directory is no file");

    let quota = async |uri: &str| bench.get(uri, &[]).await.header("x-ms-share-quota").to_owned();
    assert_eq!((quota("/other?restype=share").await, quota("/share?restype=share").await), ("7".into(), "5120".into()));
    for (value, status) in [("9", 200), ("0", 400), ("999999", 400), ("x", 400)] {
        let set = bench.send("PUT", "/other?restype=share&comp=properties", &[("x-ms-share-quota", value)], "").await;
        assert_eq!(set.status, status, "{value}");
    }
    let listed = bench.get("/?comp=list&include=metadata", &[]).await;
    assert!(listed.text().contains("<Quota>9</Quota></Properties><Metadata><b>2</b></Metadata>"), "{listed:?}");
    assert!(!bench.get("/?comp=list", &[]).await.text().contains("<Metadata>"));
}

#[tokio::test]
async fn a_quota_is_stored_and_enforced() {
    let bench = Bench::new();
    bench.send("PUT", "/share?restype=share&comp=properties", &[("x-ms-share-quota", "1")], "").await;
    let create = async |name: &str, length: &str| {
        let headers = [("x-ms-type", "file"), ("x-ms-content-length", length)];
        bench.send("PUT", &format!("/share/{name}"), &headers, "").await
    };
    assert_eq!(create("a", "700000000").await.status, 201);
    let stats = bench.get("/share?restype=share&comp=stats", &[]).await;
    assert!(stats.text().contains("<ShareUsage>1</ShareUsage><ShareUsageBytes>700000000</ShareUsageBytes>"));
    assert_eq!(create("b", "700000000").await.outcome(), (409, "ShareSizeLimitReached"));
    assert!(!bench.host().join("b").exists(), "nothing is half-done");
    assert_eq!(create("a", "800000000").await.status, 201, "in its own place there is room");
    let grow = bench.send("PUT", "/share/a?comp=properties", &[("x-ms-content-length", "2000000000")], "").await;
    assert_eq!(grow.outcome(), (409, "ShareSizeLimitReached"));
    fs::remove_file(bench.host().join("a")).expect("removed");
    assert_eq!(create("b", "1000000000").await.status, 201, "what is gone is not counted");
}

#[tokio::test]
async fn reads_keep_their_conditions() {
    let bench = Bench::new();
    bench.upload("/share/f", b"hello").await;
    let head = bench.send("HEAD", "/share/f", &[], "").await;
    let (etag, modified) = (head.header("etag"), head.header("last-modified"));
    let long_ago = "Thu, 07 Jun 2018 22:21:55 GMT";
    for (name, value, status) in [
        ("if-match", etag, 200),
        ("if-match", "*", 200),
        ("if-match", "\"0x8D1\"", 412),
        ("if-none-match", etag, 304),
        ("if-none-match", "\"0x8D1\", \"0x8D2\"", 200),
        ("if-modified-since", modified, 304),
        ("if-modified-since", long_ago, 200),
        ("if-unmodified-since", modified, 200),
        ("if-unmodified-since", long_ago, 412),
        ("if-modified-since", "yesterday", 200),
    ] {
        for method in ["GET", "HEAD"] {
            let answer = bench.send(method, "/share/f", &[(name, value)], "").await;
            assert_eq!(answer.status, status, "{method} {name}: {value}");
            assert!(status != 304 || answer.body.is_empty());
        }
    }
}
