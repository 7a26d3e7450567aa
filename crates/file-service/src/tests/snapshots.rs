//! Snapshots of shares, and copies of files.

use super::{AddressStyle, Bench, KEY1, sign};
use corro_model::storage::sas::read_link_query;

#[tokio::test]
async fn a_snapshot_is_read_by_its_time_and_never_written() {
    let bench = Bench::new();
    bench.send("PUT", "/share?restype=share&comp=metadata", &[("x-ms-meta-a", "1")], "").await;
    bench.upload("/share/f", b"old").await;
    let made = bench.send("PUT", "/share?restype=share&comp=snapshot", &[], "").await;
    assert_eq!(made.status, 201, "{made:?}");
    let id = made.header("x-ms-snapshot").to_owned();
    assert_eq!(id, "2018-06-07T22:21:55.0000000Z");
    let other = bench.send("PUT", "/share?restype=share&comp=snapshot", &[("x-ms-meta-b", "2")], "").await;
    bench.upload("/share/f", b"new one").await;

    let at = |uri: &str| format!("{uri}{}sharesnapshot={id}", if uri.contains('?') { '&' } else { '?' });
    assert_eq!(bench.get(&at("/share/f"), &[]).await.text(), "old");
    assert_eq!(bench.get("/share/f", &[]).await.text(), "new one");
    let properties = bench.get(&at("/share?restype=share"), &[]).await;
    assert_eq!(properties.header("x-ms-meta-a"), "1");
    let second = format!("/share?restype=share&sharesnapshot={}", other.header("x-ms-snapshot"));
    assert_eq!(bench.get(&second, &[]).await.header("x-ms-meta-b"), "2");
    let listing = bench.get(&at("/share?restype=directory&comp=list"), &[]).await;
    assert!(listing.text().contains("<Content-Length>3</Content-Length>"));

    let create = [("x-ms-type", "file"), ("x-ms-content-length", "1")];
    for (method, uri, headers) in [
        ("PUT", "/share/g", &create[..]),
        ("DELETE", "/share/f", &[]),
        ("PUT", "/share/f?comp=metadata", &[]),
        ("PUT", "/share/d?restype=directory", &[]),
        ("PUT", "/share?restype=share&comp=snapshot", &[]),
    ] {
        let refused = bench.send(method, &at(uri), headers, "").await;
        assert_eq!(refused.outcome(), (409, "ShareSnapshotOperationNotSupported"), "{method} {uri}");
    }
    for (time, status) in [("2001-01-01T00:00:00.0000000Z", 404), ("..", 400), ("../share", 400)] {
        assert_eq!(bench.get(&format!("/share/f?sharesnapshot={time}"), &[]).await.status, status, "{time}");
    }

    let listed = bench.get("/?comp=list&include=snapshots,metadata", &[]).await;
    assert_eq!(listed.text().matches("<Name>share</Name>").count(), 3, "{listed:?}");
    assert!(listed.text().contains(&format!("<Snapshot>{id}</Snapshot>")));
    assert_eq!(bench.send("DELETE", "/share?restype=share", &[], "").await.outcome(), (409, "ShareHasSnapshots"));
    assert_eq!(bench.send("DELETE", &at("/share?restype=share"), &[], "").await.status, 202);
    assert_eq!(bench.get(&at("/share/f"), &[]).await.outcome(), (404, "ShareSnapshotNotFound"));
    let whole = bench.send("DELETE", "/share?restype=share", &[("x-ms-delete-snapshots", "include")], "").await;
    assert_eq!(whole.status, 202);
    bench.send("PUT", "/share?restype=share", &[], "").await;
    assert_eq!(bench.get(&second, &[]).await.status, 404, "a new share has no old snapshots");
}

#[tokio::test]
async fn a_file_is_copied_with_its_properties() {
    let bench = Bench::new();
    let create = [("x-ms-type", "file"), ("x-ms-content-length", "3")];
    bench
        .send("PUT", "/share/a%20b", &[&create[..], &[("x-ms-content-type", "a/b"), ("x-ms-meta-a", "1")]].concat(), "")
        .await;
    let range = [("x-ms-write", "update"), ("x-ms-range", "bytes=0-2")];
    bench.send("PUT", "/share/a%20b?comp=range", &range, "abc").await;
    bench.send("PUT", "/other?restype=share", &[], "").await;
    let host = ("host", "127.0.0.1:8470");
    let copy = async |uri: &str, source: &str, more: &[(&str, &str)]| {
        bench.send("PUT", uri, &[&[host, ("x-ms-copy-source", source)], more].concat(), "").await
    };
    let source = "http://127.0.0.1:8470/acc/share/a%20b";
    let copied = copy("/other/c", source, &[]).await;
    assert_eq!((copied.status, copied.header("x-ms-copy-status")), (202, "success"), "{copied:?}");
    let head = bench.send("HEAD", "/other/c", &[], "").await;
    for (name, value) in [
        ("x-ms-copy-id", copied.header("x-ms-copy-id")),
        ("x-ms-copy-status", "success"),
        ("x-ms-copy-source", source),
        ("x-ms-copy-progress", "3/3"),
        ("content-type", "a/b"),
        ("x-ms-meta-a", "1"),
    ] {
        assert_eq!(head.header(name), value, "{name}");
    }
    assert_eq!(bench.get("/other/c", &[]).await.text(), "abc");
    let named = copy("/other/d", "https://acc.file.core.windows.net/share/a%20b", &[("x-ms-meta-b", "2")]).await;
    assert_eq!(named.status, 202, "{named:?}");
    let head = bench.send("HEAD", "/other/d", &[], "").await;
    assert_eq!((head.header("x-ms-meta-a"), head.header("x-ms-meta-b")), ("", "2"));

    for (uri, source, expected) in [
        ("/other/x", "http://127.0.0.1:8470/acc/share/none", (404, "ResourceNotFound")),
        ("/other/x", "http://127.0.0.1:8470/acc/none/f", (404, "ShareNotFound")),
        ("/other/no/x", source, (404, "ParentNotFound")),
        ("/other/x", "http://example.com/acc/share/f", (404, "CannotVerifyCopySource")),
        ("/other/x", "http://other.file.core.windows.net/share/f", (404, "CannotVerifyCopySource")),
        ("/other/x", "file:///etc/passwd", (404, "CannotVerifyCopySource")),
        ("/other/x", "http://127.0.0.1:8470/acc/share/../../etc/passwd", (400, "InvalidHeaderValue")),
        ("/other/x", "http://127.0.0.1:8470/acc/share", (400, "InvalidHeaderValue")),
    ] {
        let refused = copy(uri, source, &[]).await;
        assert_eq!(refused.outcome(), expected, "{source}");
        assert_eq!(bench.send("HEAD", uri, &[], "").await.status, 404, "nothing is half-done: {source}");
    }
    let abort = bench.send("PUT", "/other/c?comp=copy&copyid=x", &[("x-ms-copy-action", "abort")], "").await;
    assert_eq!(abort.outcome(), (409, "NoPendingCopyOperation"));
}

#[tokio::test]
async fn a_sas_copies_only_sources_with_a_read_sas() {
    let bench = Bench::new();
    bench.upload("/share/f", b"abc").await;
    bench.upload("/share/to", b"").await;
    // A SAS with write permission on one file, made as the SDKs make them.
    let expiry = "2018-06-08T00:00:00Z";
    let text = format!("w\n\n{expiry}\n/file/acc/share/to\n\n\n\n2018-03-28\n\n\n\n\n");
    let signature = corro_model::storage::hmac_base64(&KEY1, &text).replace('+', "%2B").replace('=', "%3D");
    let uri = format!("/acc/share/to?sv=2018-03-28&sr=f&sp=w&se={expiry}&sig={signature}");
    let copy = async |source: &str| {
        let request = axum::extract::Request::builder().method("PUT").uri(&uri).header("host", "h");
        bench.send_raw(request.header("x-ms-copy-source", source), AddressStyle::Path, "").await
    };
    assert_eq!(copy("http://h/acc/share/f").await.outcome(), (404, "CannotVerifyCopySource"));
    let link = read_link_query(&KEY1, "acc", "share", "f", super::NOW + 60).expect("a time");
    let copied = copy(&format!("http://h/acc/share/f?{link}")).await;
    assert_eq!(copied.status, 202, "{copied:?}");
    let head = bench.send("HEAD", "/share/to", &[], "").await;
    assert_eq!(head.header("x-ms-copy-source"), "http://h/acc/share/f", "no signature is kept");
    let of_other = read_link_query(&KEY1, "acc", "share", "to", super::NOW + 60).expect("a time");
    assert_eq!(copy(&format!("http://h/acc/share/f?{of_other}")).await.outcome(), (404, "CannotVerifyCopySource"));
    let unsigned =
        bench.send_raw(sign("PUT", "/acc/share/to", &[("x-ms-copy-source", "x")], b"no"), AddressStyle::Path, "");
    assert_eq!(unsigned.await.outcome(), (403, "AuthenticationFailed"));
}

#[tokio::test]
async fn a_copy_that_a_crash_cut_off_has_failed() {
    let bench = Bench::new();
    bench.upload("/share/f", b"abc").await;
    let file = std::fs::File::open(bench.host().join("f")).expect("opened");
    let left = b"x-ms-copy-id: 7\nx-ms-copy-status: pending\n";
    rustix::fs::fsetxattr(&file, "user.corro.properties", left, rustix::fs::XattrFlags::empty()).expect("kept");
    let head = bench.send("HEAD", "/share/f", &[], "").await;
    assert_eq!(head.header("x-ms-copy-status"), "failed");
    assert!(head.header("x-ms-copy-status-description").contains("stopped in the middle"), "{head:?}");
}
