//! Path traversal: no spelling of a path reaches anything outside of its share.

use std::{fs, os::unix::fs::symlink};

use super::*;

const CREATE: &[(&str, &str)] = &[("x-ms-type", "file"), ("x-ms-content-length", "1")];

#[tokio::test]
async fn spellings() {
    let bench = Bench::new();
    fs::write(bench.dir.path().join("root/acc/secret"), "secret").expect("written");
    fs::write(bench.dir.path().join("secret"), "secret").expect("written");
    for path in [
        "../secret",
        "..%2fsecret",
        "..%2Fsecret",
        "%2e%2e/secret",
        "%2e%2e%2fsecret",
        "%2E%2E%2F%2E%2E%2F%2E%2E%2Fsecret",
        ".%2e/secret",
        "d/../../secret",
        "d%2f..%2f..%2fsecret",
        "./../secret",
        "..%5csecret",
        "..%5C..%5Csecret",
        "%2fetc%2fpasswd",
        "%2f..%2fsecret",
        "x%00/../secret",
        "..%00",
        "secret%0a",
    ] {
        for (method, query, headers) in [
            ("GET", "", &[][..]),
            ("HEAD", "", &[]),
            ("PUT", "", CREATE),
            ("DELETE", "", &[]),
            ("GET", "?restype=directory&comp=list", &[]),
            ("PUT", "?restype=directory", &[]),
            ("DELETE", "?restype=directory", &[]),
            ("PUT", "?comp=properties", &[("x-ms-content-length", "0")]),
        ] {
            let uri = format!("/share/{path}{query}");
            let answer = bench.send(method, &uri, headers, "").await;
            assert_eq!(answer.outcome(), (400, "InvalidFileOrDirectoryPathName"), "{method} {uri}");
        }
    }
    // Decoded twice these would climb; decoded once they are odd names that do not exist.
    for path in ["%252e%252e/secret", "%252e%252e%252fsecret", "..%252fsecret", "%25%32%65%25%32%65/secret"] {
        let answer = bench.get(&format!("/share/{path}"), &[]).await;
        assert_eq!(answer.outcome(), (404, "ResourceNotFound"), "{path}");
    }
    let made = bench.send("PUT", "/share/%252e%252e?restype=directory", &[], "").await;
    assert_eq!(made.status, 201);
    assert!(bench.host().join("%2e%2e").is_dir());
    // Share names cannot climb either.
    for share in ["..", "%2e%2e", ".", "..%2f..", "acc%2f..", "%2e%2e%5c", "share%5c..", ".trash-1-1"] {
        for query in ["restype=share", "restype=directory&comp=list"] {
            let answer = bench.get(&format!("/{share}?{query}"), &[]).await;
            assert_eq!(answer.status, 400, "{share} {answer:?}");
        }
    }
}

#[tokio::test]
async fn links() {
    let bench = Bench::new();
    let outside = bench.dir.path().join("outside");
    fs::create_dir(&outside).expect("made");
    fs::write(outside.join("secret"), "secret").expect("written");
    symlink(&outside, bench.host().join("absolute")).expect("linked");
    symlink("../../../outside", bench.host().join("relative")).expect("linked");
    symlink(outside.join("secret"), bench.host().join("file")).expect("linked");
    symlink("/proc/self/root", bench.host().join("magic")).expect("linked");
    for path in ["absolute", "relative", "absolute/secret", "relative/secret", "file", "magic/etc/passwd"] {
        for (method, query, headers) in [
            ("PUT", "", CREATE),
            ("GET", "?restype=directory&comp=list", &[][..]),
            ("PUT", "?comp=properties", &[("x-ms-content-length", "0")]),
            ("PUT", "?comp=range", &[("x-ms-write", "clear"), ("x-ms-range", "bytes=0-1")]),
        ] {
            let answer = bench.send(method, &format!("/share/{path}{query}"), headers, "").await;
            assert_eq!(answer.outcome(), (404, "ResourceNotFound"), "{method} {path}{query}");
        }
        // A read of a link that leads out of the share returns its target path; a path through such a link does not
        // exist.
        let read = bench.get(&format!("/share/{path}"), &[]).await;
        match fs::read_link(bench.host().join(path)) {
            Ok(text) => assert_eq!((read.status, read.text()), (200, text.to_str().expect("UTF-8")), "{path}"),
            Err(_) => assert_eq!(read.outcome(), (404, "ResourceNotFound"), "{path}"),
        }
        assert_ne!(read.text(), "secret", "{path}");
        let below = bench.send("PUT", &format!("/share/{path}/new?restype=directory"), &[], "").await;
        assert_eq!(below.status, 404, "{path}");
        assert_eq!(bench.send("DELETE", "/share/absolute/secret", &[], "").await.status, 404);
    }
    let listing = bench.get("/share?restype=directory&comp=list", &[]).await;
    assert!(!listing.text().contains("<Directory>"), "{listing:?}");
    assert_eq!(fs::read_dir(&outside).expect("there").count(), 1);
    assert_eq!(fs::read(outside.join("secret")).expect("there"), b"secret");
    // A link inside the share works like its target.
    bench.upload("/share/real", b"inside").await;
    symlink("real", bench.host().join("inside")).expect("linked");
    assert_eq!(bench.get("/share/inside", &[]).await.text(), "inside");
}
