//! Renames, ranges copied from other files, changes since a snapshot, and names that end with dots.

use base64::engine::general_purpose::STANDARD;
use corro_model::storage::sas::{Resource, Sas};

use super::*;

const HOST: (&str, &str) = ("host", "h");
const NEW: (&str, &str) = ("x-ms-version", "2023-11-03");

#[tokio::test]
async fn files_and_directories_are_renamed_within_a_share() {
    let bench = Bench::new();
    bench.send("PUT", "/share/d?restype=directory", &[], "").await;
    bench.send("PUT", "/share/d/e?restype=directory", &[], "").await;
    bench.upload("/share/a%20b", b"abc").await;
    bench.upload("/share/there", b"old").await;
    bench.send("PUT", "/share/a%20b?comp=metadata", &[("x-ms-meta-a", "1")], "").await;
    bench.send("PUT", "/other?restype=share", &[], "").await;
    let rename = async |uri: &str, from: &str, more: &[(&str, &str)]| {
        let source = format!("http://h/acc/{from}");
        let headers = [&[HOST, NEW, ("x-ms-file-rename-source", source.as_str())], more].concat();
        let answer = bench.send("PUT", uri, &headers, "").await;
        (answer.outcome().0, answer.outcome().1.to_owned())
    };
    let no = |status: u16, code: &str| (status, code.to_owned());
    let ok = no(200, "ok");
    let replace = [("x-ms-file-rename-replace-if-exists", "true")];
    assert_eq!(rename("/share/d/c?comp=rename", "share/a%20b", &[]).await, ok);
    let moved = bench.get("/share/d/c", &[]).await;
    assert_eq!((moved.text(), moved.header("x-ms-meta-a")), ("abc", "1"));
    assert_eq!(bench.send("HEAD", "/share/a%20b", &[], "").await.status, 404);
    assert_eq!(rename("/share/there?comp=rename", "share/d/c", &[]).await, no(409, "ResourceAlreadyExists"));
    let said = [replace[0], ("x-ms-meta-b", "2"), ("x-ms-content-type", "a/b")];
    assert_eq!(rename("/share/there?comp=rename", "share/d/c", &said).await, ok);
    let there = bench.get("/share/there", &[]).await;
    assert_eq!((there.text(), there.header("x-ms-meta-a"), there.header("x-ms-meta-b")), ("abc", "", "2"));
    assert_eq!(there.header("content-type"), "a/b");
    for (uri, from, expected) in [
        ("/share/x?comp=rename", "share/none", no(404, "ResourceNotFound")),
        ("/share/no/x?comp=rename", "share/there", no(404, "ParentNotFound")),
        ("/other/x?comp=rename", "share/there", no(400, "InvalidHeaderValue")),
        ("/share/x?comp=rename", "share/d", no(409, "ResourceTypeMismatch")),
        ("/share/d?comp=rename", "share/there", no(409, "ResourceTypeMismatch")),
        ("/share/x?restype=directory&comp=rename", "share/there", no(409, "ResourceTypeMismatch")),
        ("/share/d/e/f?restype=directory&comp=rename", "share/d", no(400, "InvalidFileOrDirectoryPathName")),
    ] {
        assert_eq!(rename(uri, from, &replace).await, expected, "{uri} {from}");
    }
    assert_eq!(rename("/share/g?restype=directory&comp=rename", "share/d", &[]).await, ok);
    assert_eq!(bench.send("HEAD", "/share/g/e?restype=directory", &[], "").await.status, 200);
    let elsewhere = [HOST, ("x-ms-file-rename-source", "http://example.com/acc/share/there")];
    assert_eq!(bench.send("PUT", "/share/x?comp=rename", &elsewhere, "").await.outcome().1, "CannotVerifyCopySource");

    // With a SAS, the source URL needs a SAS with write permission.
    let link = |permissions: &str| {
        let text = |text: &str| text.to_owned();
        let (version, expiry) = (text("2018-03-28"), text("2018-06-08"));
        let sas = Sas { version, expiry, permissions: text(permissions), resource: Resource::Share, ..Sas::default() };
        sas.signed_query(&KEY1, "acc", "share", "")
    };
    for (own, of_source, expected) in [("w", "r", 404), ("r", "w", 403), ("w", "w", 200)] {
        let builder = Request::builder().method("PUT").uri(format!("/acc/share/linked?comp=rename&{}", link(own)));
        let source = format!("http://h/acc/share/there?{}", link(of_source));
        let builder = builder.header("host", "h").header("x-ms-file-rename-source", source);
        assert_eq!(bench.send_raw(builder, AddressStyle::Path, "").await.status, expected, "{own} {of_source}");
    }
    assert_eq!(bench.get("/share/linked", &[]).await.text(), "abc");
}

#[tokio::test]
async fn a_range_is_taken_from_another_file() {
    let bench = Bench::new();
    bench.upload("/share/from", b"0123456789").await;
    bench.upload("/share/to", b"..........").await;
    let take = async |range: &str, source_range: &str, more: &[(&str, &str)]| {
        let source = ("x-ms-copy-source", "http://h/acc/share/from");
        let ranges = [("x-ms-range", range), ("x-ms-source-range", source_range), ("x-ms-write", "update")];
        bench.send("PUT", "/share/to?comp=range", &[&[HOST, source], &ranges[..], more].concat(), "").await
    };
    let taken = take("bytes=1-3", "bytes=5-7", &[]).await;
    assert_eq!(taken.outcome(), (201, "ok"), "{taken:?}");
    assert_eq!(bench.get("/share/to", &[]).await.text(), ".567......");
    let crc = taken.header("x-ms-content-crc64").to_owned();
    assert_eq!(crc, STANDARD.encode(crate::protocol::crc64::checksum(b"567").to_le_bytes()));
    let other = STANDARD.encode([0; 8]);
    for (name, value, expected) in [
        ("x-ms-source-content-crc64", crc.as_str(), (201, "ok")),
        ("x-ms-source-content-crc64", other.as_str(), (400, "Crc64Mismatch")),
        ("x-ms-source-if-match-crc64", other.as_str(), (412, "SourceConditionNotMet")),
        ("x-ms-source-if-none-match-crc64", crc.as_str(), (412, "SourceConditionNotMet")),
        ("x-ms-source-if-none-match-crc64", other.as_str(), (201, "ok")),
        ("x-ms-source-content-crc64", "?", (400, "InvalidHeaderValue")),
    ] {
        assert_eq!(take("bytes=1-3", "bytes=5-7", &[(name, value)]).await.outcome(), expected, "{name}: {value}");
    }
    for (range, source_range, expected) in [
        ("bytes=0-1", "bytes=0-2", (400, "InvalidHeaderValue")),
        ("bytes=0-2", "bytes=8-10", (416, "InvalidRange")),
        ("bytes=8-10", "bytes=0-2", (416, "InvalidRange")),
        ("bytes=0-4194304", "bytes=0-4194304", (413, "RequestBodyTooLarge")),
    ] {
        assert_eq!(take(range, source_range, &[]).await.outcome(), expected, "{range} {source_range}");
    }
    assert_eq!(bench.get("/share/to", &[]).await.text(), ".567......");
}

#[tokio::test]
async fn ranges_changed_since_a_snapshot_are_listed() {
    let bench = Bench::new();
    bench.upload("/share/f", &vec![1; 40 << 10]).await;
    let made = bench.send("PUT", "/share?restype=share&comp=snapshot", &[], "").await;
    let id = made.header("x-ms-snapshot").to_owned();
    bench.upload("/share/new", b"abc").await;
    let write = async |range: &str, how: &str, body: Vec<u8>| {
        let headers = [("x-ms-write", how), ("x-ms-range", range)];
        assert_eq!(bench.send("PUT", "/share/f?comp=range", &headers, body).await.status, 201);
    };
    write("bytes=5000-5001", "update", vec![2; 2]).await;
    write("bytes=8192-8193", "update", vec![1; 2]).await; // unchanged content
    write("bytes=16384-24575", "clear", Vec::new()).await;
    let uri = |name: &str| format!("/share/{name}?comp=rangelist&prevsharesnapshot={id}");
    let changed = bench.get(&uri("f"), &[]).await;
    assert_eq!(
        changed.text().split_once("<Ranges>").expect("a document").1,
        "<Range><Start>4096</Start><End>8191</End></Range>\
         <ClearRange><Start>16384</Start><End>24575</End></ClearRange></Ranges>"
    );
    let part = bench.get(&uri("f"), &[("x-ms-range", "bytes=5000-5001")]).await;
    assert!(part.text().contains("<Ranges><Range><Start>5000</Start><End>5001</End></Range></Ranges>"), "{part:?}");
    let new = bench.get(&uri("new"), &[]).await;
    assert!(new.text().contains("<Range><Start>0</Start>"), "{new:?}");
    let missing = "/share/f?comp=rangelist&prevsharesnapshot=2001-01-01T00:00:00.0000000Z";
    assert_eq!(bench.get(missing, &[]).await.outcome(), (404, "ShareSnapshotNotFound"));
    assert_eq!(bench.get("/share/f?comp=rangelist&prevsharesnapshot=x", &[]).await.status, 400);
    // Cleared ranges free disk space.
    use std::os::unix::fs::MetadataExt;
    let blocks = std::fs::metadata(bench.host().join("f")).expect("there").blocks();
    assert!(blocks * 512 <= 32 << 10, "{blocks} blocks");
}

#[tokio::test]
async fn dots_at_the_end_of_a_name_are_part_of_it_unless_the_caller_says_otherwise() {
    let bench = Bench::new();
    bench.send("PUT", "/share/d.?restype=directory", &[], "").await;
    bench.upload("/share/d./f..", b"dots").await;
    bench.send("PUT", "/share/d?restype=directory", &[], "").await;
    bench.upload("/share/d/f", b"none").await;
    let read = async |allow: Option<&str>| {
        let headers: Vec<_> = allow.iter().map(|value| ("x-ms-allow-trailing-dot", *value)).collect();
        bench.get("/share/d./f..", &headers).await.text().to_owned()
    };
    assert_eq!(read(None).await, "dots");
    assert_eq!(read(Some("true")).await, "dots");
    assert_eq!(read(Some("false")).await, "none");
    let only_dots = bench.get("/share/...", &[("x-ms-allow-trailing-dot", "false")]).await;
    assert_eq!(only_dots.outcome(), (400, "InvalidFileOrDirectoryPathName"));
}
