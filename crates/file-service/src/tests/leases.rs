//! Leases of files and shares: the holder may write, others may read.

use super::*;

const ID: &str = "11111111-2222-3333-4444-555555555555";
const OTHER: &str = "99999999-2222-3333-4444-555555555555";
const NEW: (&str, &str) = ("x-ms-version", "2023-11-03");
const CREATE: [(&str, &str); 2] = [("x-ms-type", "file"), ("x-ms-content-length", "3")];
const RANGE: [(&str, &str); 2] = [("x-ms-write", "update"), ("x-ms-range", "bytes=0-2")];

async fn lease(bench: &Bench, uri: &str, action: &str, headers: &[(&str, &str)]) -> Answer {
    let headers = [&[NEW, ("x-ms-lease-action", action)], headers].concat();
    bench.send("PUT", uri, &headers, "").await
}

#[tokio::test]
async fn a_leased_file_is_changed_by_its_holder_alone() {
    let bench = Bench::new();
    bench.upload("/share/f", b"abc").await;
    let before = bench.get("/share/f", &[NEW]).await;
    assert_eq!((before.header("x-ms-lease-status"), before.header("x-ms-lease-state")), ("unlocked", "available"));
    let propose = ("x-ms-proposed-lease-id", ID);
    let taken = lease(&bench, "/share/f?comp=lease", "acquire", &[("x-ms-lease-duration", "-1"), propose]).await;
    assert_eq!((taken.outcome(), taken.header("x-ms-lease-id")), ((201, "ok"), ID));
    assert_eq!(taken.header("etag"), before.header("etag"), "nothing was written");
    let head = bench.send("HEAD", "/share/f", &[NEW], "").await;
    assert_eq!((head.header("x-ms-lease-status"), head.header("x-ms-lease-state")), ("locked", "leased"));
    assert_eq!(head.header("x-ms-lease-duration"), "infinite");
    assert!(!format!("{head:?}").contains(ID), "the id is told to nobody");
    let old = bench.send("HEAD", "/share/f", &[("x-ms-version", "2018-03-28")], "").await;
    assert!(!old.headers.contains_key("x-ms-lease-state"), "older clients do not know of leases");

    let host = ("host", "h");
    let copy = [host, ("x-ms-copy-source", "http://h/acc/share/g")];
    let rename = [NEW, host, ("x-ms-file-rename-source", "http://h/acc/share/f")];
    bench.upload("/share/g", b"xyz").await;
    type Change<'a> = (&'static str, &'static str, &'a [(&'static str, &'static str)], &'static str);
    let changes: [Change<'_>; 7] = [
        ("PUT", "/share/f", &CREATE, ""),
        ("PUT", "/share/f?comp=range", &RANGE, "new"),
        ("PUT", "/share/f?comp=metadata", &[("x-ms-meta-a", "1")], ""),
        ("PUT", "/share/f?comp=properties", &[("x-ms-content-length", "3")], ""),
        ("PUT", "/share/f", &copy, ""),
        ("PUT", "/share/h?comp=rename", &rename, ""),
        ("DELETE", "/share/f", &[], ""),
    ];
    for (method, uri, headers, body) in changes {
        let (own, source) = (("x-ms-lease-id", ID), ("x-ms-source-lease-id", ID));
        let missing = bench.send(method, uri, headers, body).await;
        assert_eq!(missing.outcome(), (412, "LeaseIdMissing"), "{method} {uri}");
        let wrong = [headers, &[("x-ms-lease-id", OTHER), ("x-ms-source-lease-id", OTHER)]].concat();
        let wrong = bench.send(method, uri, &wrong, body).await;
        assert_eq!(wrong.outcome(), (412, "LeaseIdMismatchWithFileOperation"), "{method} {uri}");
        let held = bench.send(method, uri, &[headers, &[own, source]].concat(), body).await;
        assert!(held.status < 300, "{method} {uri} {held:?}");
        if uri.ends_with("rename") {
            // The lease moved with the file; rename it back.
            let back = [NEW, host, ("x-ms-file-rename-source", "http://h/acc/share/h"), source];
            assert_eq!(bench.send("PUT", "/share/f?comp=rename", &back, "").await.outcome(), (200, "ok"));
        }
    }
    assert_eq!(bench.send("HEAD", "/share/f", &[], "").await.status, 404, "its holder has deleted it");
    bench.upload("/share/f", b"abc").await;
    let gone = bench.send("PUT", "/share/f?comp=metadata", &[("x-ms-lease-id", ID)], "").await;
    assert_eq!(gone.outcome(), (412, "LeaseNotPresentWithFileOperation"), "a new file is nobody's");
    let read = bench.get("/share/f", &[("x-ms-lease-id", ID)]).await;
    assert_eq!(read.outcome(), (412, "LeaseNotPresentWithFileOperation"));
}

#[tokio::test]
async fn a_lease_moves_on_as_the_service_says_and_outlives_the_server() {
    let bench = Bench::new();
    bench.upload("/share/f", b"abc").await;
    let uri = "/share/f?comp=lease";
    let taken = lease(&bench, uri, "acquire", &[("x-ms-lease-duration", "-1")]).await;
    let id = taken.header("x-ms-lease-id").to_owned();
    assert_eq!(id.len(), 36);
    let again = lease(&bench, uri, "acquire", &[("x-ms-lease-duration", "-1")]).await;
    assert_eq!(again.outcome(), (409, "LeaseAlreadyPresent"));
    for (action, headers, expected) in [
        ("acquire", &[("x-ms-lease-duration", "30")][..], (400, "InvalidHeaderValue")),
        ("renew", &[("x-ms-lease-id", ID)], (400, "InvalidHeaderValue")),
        ("release", &[], (400, "MissingRequiredHeader")),
        ("release", &[("x-ms-lease-id", ID)], (409, "LeaseIdMismatchWithLeaseOperation")),
        ("release", &[("x-ms-lease-id", "no guid")], (400, "InvalidHeaderValue")),
        ("change", &[("x-ms-lease-id", id.as_str())], (400, "MissingRequiredHeader")),
        ("change", &[("x-ms-lease-id", id.as_str()), ("x-ms-proposed-lease-id", ID)], (200, "ok")),
        ("steal", &[], (400, "InvalidHeaderValue")),
    ] {
        assert_eq!(lease(&bench, uri, action, headers).await.outcome(), expected, "{action} {headers:?}");
    }
    // Another server on the same disk.
    let shares = Arc::new(Shares::open(bench.dir.path().join("root")).expect("a root"));
    let limits = Arc::new(FixedBudget::new(u32::MAX));
    let service = FileService::new(shares, Arc::new(OneAccount), limits, || NOW + 1_000_000);
    let bench = Bench { dir: bench.dir, service };
    let date = [("x-ms-date", "Tue, 19 Jun 2018 12:08:35 GMT")];
    let held = bench.send("DELETE", "/share/f", &date, "").await;
    assert_eq!(held.outcome(), (412, "LeaseIdMissing"));
    let broken = lease(&bench, uri, "break", &date).await;
    assert_eq!((broken.outcome(), broken.header("x-ms-lease-time")), ((202, "ok"), "0"));
    let lost = bench.send("DELETE", "/share/f", &[date[0], ("x-ms-lease-id", ID)], "").await;
    assert_eq!(lost.outcome(), (412, "LeaseLost"));
    assert_eq!(bench.send("DELETE", "/share/f", &date, "").await.status, 202);
}

#[tokio::test]
async fn a_leased_share_is_deleted_by_its_holder_alone() {
    let bench = Bench::new();
    let uri = "/share?restype=share&comp=lease";
    for duration in ["14", "61", "0", "-2", "x"] {
        let refused = lease(&bench, uri, "acquire", &[("x-ms-lease-duration", duration)]).await;
        assert_eq!(refused.outcome(), (400, "InvalidHeaderValue"), "{duration}");
    }
    let taken = [("x-ms-lease-duration", "15"), ("x-ms-proposed-lease-id", ID)];
    assert_eq!(lease(&bench, uri, "acquire", &taken).await.outcome(), (201, "ok"));
    assert_eq!(lease(&bench, uri, "renew", &[("x-ms-lease-id", ID)]).await.outcome(), (200, "ok"));
    let found = bench.get("/share?restype=share", &[NEW]).await;
    assert_eq!((found.header("x-ms-lease-state"), found.header("x-ms-lease-duration")), ("leased", "fixed"));
    let old = bench.get("/share?restype=share", &[("x-ms-version", "2019-02-02")]).await;
    assert!(!old.headers.contains_key("x-ms-lease-state"), "an SDK of that version fails on it");
    let listed = bench.get("/?comp=list", &[NEW]).await;
    assert!(listed.text().contains("<LeaseStatus>locked</LeaseStatus><LeaseState>leased</LeaseState>"), "{listed:?}");

    let delete = async |id: Option<&str>| {
        let headers: Vec<(&str, &str)> = id.iter().map(|id| ("x-ms-lease-id", *id)).collect();
        bench.send("DELETE", "/share?restype=share", &headers, "").await.outcome().1.to_owned()
    };
    assert_eq!(delete(None).await, "LeaseIdMissing");
    assert_eq!(delete(Some(OTHER)).await, "LeaseIdMismatchWithContainerOperation");
    // A lease of the share does not protect its files.
    bench.upload("/share/f", b"abc").await;
    let set = bench.send("PUT", "/share?restype=share&comp=metadata", &[("x-ms-lease-id", OTHER)], "").await;
    assert_eq!(set.outcome(), (412, "LeaseIdMismatchWithContainerOperation"));
    let broken = lease(&bench, uri, "break", &[("x-ms-lease-break-period", "7")]).await;
    assert_eq!((broken.outcome(), broken.header("x-ms-lease-time")), ((202, "ok"), "7"));
    assert_eq!(delete(None).await, "LeaseIdMissing", "it is held until it is broken");
    assert_eq!(lease(&bench, uri, "release", &[("x-ms-lease-id", ID)]).await.outcome(), (200, "ok"));
    // A snapshot is not leased, even if the share is.
    lease(&bench, uri, "acquire", &taken).await;
    let made = bench.send("PUT", "/share?restype=share&comp=snapshot", &[], "").await;
    let snapshot = format!("/share?restype=share&sharesnapshot={}", made.header("x-ms-snapshot"));
    assert_eq!(bench.get(&snapshot, &[NEW]).await.header("x-ms-lease-state"), "available");
    assert_eq!(bench.send("DELETE", &snapshot, &[], "").await.status, 202);
    assert_eq!(delete(Some(ID)).await, "ok");
}

#[tokio::test]
async fn writes_keep_their_conditions() {
    let bench = Bench::new();
    bench.upload("/share/f", b"abc").await;
    let etag = bench.get("/share/f", &[]).await.header("etag").to_owned();
    for (name, value, uri, expected) in [
        ("if-match", "\"0x8D1\"", "/share/f?comp=metadata", (412, "ConditionNotMet")),
        ("if-none-match", "*", "/share/f?comp=metadata", (412, "ConditionNotMet")),
        ("if-match", "*", "/share/none?comp=metadata", (404, "ResourceNotFound")),
        ("if-match", etag.as_str(), "/share/f?comp=metadata", (200, "ok")),
    ] {
        assert_eq!(bench.send("PUT", uri, &[(name, value)], "").await.outcome(), expected, "{name}: {value}");
    }
    let create = |name, value| [CREATE[0], CREATE[1], (name, value)];
    let replaced = bench.send("PUT", "/share/f", &create("if-none-match", "*"), "").await;
    assert_eq!(replaced.outcome(), (412, "ConditionNotMet"));
    let made = bench.send("PUT", "/share/g", &create("if-match", "*"), "").await;
    assert_eq!(made.outcome(), (412, "ConditionNotMet"));
    assert_eq!(bench.send("PUT", "/share/g", &create("if-none-match", "*"), "").await.outcome(), (201, "ok"));
    assert_eq!(bench.send("DELETE", "/share/f", &[("if-match", etag.as_str())], "").await.status, 412);
    assert_eq!(bench.get("/share/f", &[]).await.text(), "abc");
}
