//! Authentication and authorization: no access without a valid signature, and a SAS permits exactly what it lists.

use corro_model::storage::{hmac_base64, sas};
use http::request::Builder;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use super::*;

const METHODS: [&str; 8] = ["GET", "HEAD", "PUT", "DELETE", "POST", "PATCH", "OPTIONS", "TRACE"];
const URIS: [&str; 12] = [
    "/acc?comp=list",
    "/acc/share?restype=share",
    "/acc/share?restype=share&comp=metadata",
    "/acc/share?restype=directory",
    "/acc/share?restype=directory&comp=list",
    "/acc/share/d?restype=directory",
    "/acc/share/d?restype=directory&comp=list",
    "/acc/share/f",
    "/acc/share/f?comp=range",
    "/acc/share/f?comp=rangelist",
    "/acc/share/f?comp=properties",
    "/acc/share/..%2f..%2fx",
];

fn plain(method: &str, uri: &str) -> Builder {
    Request::builder().method(method).uri(uri).header("x-ms-date", DATE)
}

/// A SAS with any parameters, signed with the first key.
fn link(resource: &str, path: &str, permissions: &str, expiry: &str) -> String {
    let text = [permissions, "", expiry, path, "", "", "", "2018-03-28", "", "", "", "", ""].join("\n");
    let signature = hmac_base64(&KEY1, &text);
    let signature = utf8_percent_encode(&signature, NON_ALPHANUMERIC).to_string();
    format!("sv=2018-03-28&sr={resource}&sp={permissions}&se={expiry}&sig={signature}")
}

#[tokio::test]
async fn every_verb_and_place_is_closed_to_strangers() {
    let bench = Bench::new();
    bench.upload("/share/f", b"secret").await;
    for method in METHODS {
        for uri in URIS {
            let anonymous = bench.send_raw(plain(method, uri), AddressStyle::Path, "").await;
            assert_eq!(anonymous.outcome(), (401, "NoAuthenticationInformation"), "{method} {uri}");
            let wrong = bench.send_raw(sign(method, uri, &[], &[9; 64]), AddressStyle::Path, "").await;
            assert_eq!(wrong.outcome(), (403, "AuthenticationFailed"), "{method} {uri}");
            for authorization in ["Bearer abc", "SharedKey acc:", "SharedKeyLite acc:abc", "SharedKey", "\u{e9}"] {
                let request = plain(method, uri).header("authorization", authorization);
                let answer = bench.send_raw(request, AddressStyle::Path, "").await;
                assert_eq!(answer.outcome(), (403, "AuthenticationFailed"), "{method} {uri} {authorization}");
            }
            if method == "HEAD" {
                assert!(anonymous.body.is_empty() && wrong.body.is_empty());
            } else {
                assert!(wrong.text().contains("<Code>AuthenticationFailed</Code>"), "{wrong:?}");
                assert_eq!(wrong.header("content-type"), "application/xml");
            }
        }
    }
    assert_eq!(std::fs::read(bench.host().join("f")).expect("still there"), b"secret");
}

#[tokio::test]
async fn an_unknown_account_answers_like_a_wrong_key() {
    let bench = Bench::new();
    let zeros = [0; 64]; // the decoy key of unknown accounts
    for key in [zeros, KEY1] {
        let headers = [("x-ms-date", DATE)];
        let request = shared_key::Request { method: "GET", path: "/noone/share/f", query: "", account: "noone" };
        let authorization = shared_key::authorization(request, headers, &key);
        let request = plain("GET", "/noone/share/f").header("authorization", authorization);
        let request = request.body(Body::empty()).expect("a good request");
        let unknown = bench.service.handle("noone", AddressStyle::Path, request, None).await;
        let wrong = bench.send_raw(sign("GET", "/acc/share/f", &[], &zeros), AddressStyle::Path, "").await;
        assert_eq!(unknown.status().as_u16(), wrong.status);
        assert_eq!(unknown.headers()["x-ms-error-code"], wrong.header("x-ms-error-code"));
        let body = unknown.into_body().collect().await.expect("a body").to_bytes();
        let cut = |text: &str| text.split("RequestId").next().expect("a part").to_owned();
        assert_eq!(cut(std::str::from_utf8(&body).expect("text")), cut(wrong.text()));
    }
    // The key of one account is not valid for another, even if the header names it.
    let request = sign("GET", "/other/share/f", &[], &KEY1).body(Body::empty()).expect("a good request");
    let answer = bench.service.handle("other", AddressStyle::Path, request, None).await;
    assert_eq!(answer.status(), 403);
}

#[tokio::test]
async fn both_keys_and_both_styles_work_and_dates_must_be_near() {
    let bench = Bench::new();
    bench.upload("/share/a%20b", b"x").await;
    let path = bench.send_raw(sign("GET", "/acc/share/a%20b", &[], &KEY2), AddressStyle::Path, "").await;
    assert_eq!(path.outcome(), (200, "ok"));
    let host = bench.send_raw(sign("GET", "/share/a%20b", &[], &KEY1), AddressStyle::Host, "").await;
    assert_eq!(host.outcome(), (200, "ok"));
    // Signed for another encoding of the same path.
    let other = sign("GET", "/acc/share/a%20%62", &[], &KEY1).uri("/acc/share/a%20b");
    assert_eq!(bench.send_raw(other, AddressStyle::Path, "").await.status, 403);

    for (date, expected) in [
        ("Thu, 07 Jun 2018 22:36:55 GMT", (200, "ok")),
        ("Thu, 07 Jun 2018 22:06:55 GMT", (200, "ok")),
        ("Thu, 07 Jun 2018 22:36:56 GMT", (403, "AuthenticationFailed")),
        ("Thu, 07 Jun 2018 22:06:54 GMT", (403, "AuthenticationFailed")),
        ("yesterday", (403, "AuthenticationFailed")),
        ("", (403, "AuthenticationFailed")),
    ] {
        let request = sign("GET", "/acc/share/a%20b", &[("x-ms-date", date)], &KEY1);
        assert_eq!(bench.send_raw(request, AddressStyle::Path, "").await.outcome(), expected, "{date}");
    }
}

#[tokio::test]
async fn a_download_link_reads_one_file_until_it_expires() {
    let bench = Bench::new();
    bench.send("PUT", "/share/d%20d?restype=directory", &[], "").await;
    bench.upload("/share/d%20d/f", b"0123456789").await;
    bench.upload("/share/d%20d/g", b"other").await;
    let query = |expires| sas::read_link_query(&KEY2, "acc", "share", "d d/f", expires).expect("a time");
    let good = query(NOW + 60);
    let send = async |method: &str, uri: String, headers: &[(&str, &str)]| {
        let builder = Request::builder().method(method).uri(uri);
        let builder = headers.iter().fold(builder, |b, (name, value)| b.header(*name, *value));
        bench.send_raw(builder, AddressStyle::Path, "").await
    };

    let tail = send("GET", format!("/acc/share/d%20d/f?{good}"), &[("range", "bytes=7-")]).await;
    assert_eq!((tail.outcome(), tail.text()), ((206, "ok"), "789"));
    let end = send("GET", format!("/acc/share/d%20d/f?{good}"), &[("range", "bytes=10-")]).await;
    assert_eq!((end.outcome(), end.header("content-range")), ((416, "InvalidRange"), "bytes */10"));
    assert_eq!(send("HEAD", format!("/acc/share/d%20d%2Ff?{good}"), &[]).await.outcome(), (200, "ok"));

    let refused = (403, "AuthenticationFailed");
    assert_eq!(send("GET", format!("/acc/share/d%20d/g?{good}"), &[]).await.outcome(), refused);
    assert_eq!(send("GET", format!("/acc/share/d%20d/f?{}", query(NOW)), &[]).await.outcome(), refused);
    assert_eq!(send("GET", format!("/acc/share/d%20d/../d%20d/f?{good}"), &[]).await.outcome(), refused);
    assert_eq!(send("GET", format!("/acc?comp=list&{good}"), &[]).await.outcome(), refused);
    let forged = good.replace("sp=rl", "sp=rwdl");
    assert_eq!(send("DELETE", format!("/acc/share/d%20d/f?{forged}"), &[]).await.outcome(), refused);

    let only_reads = (403, "AuthorizationPermissionMismatch");
    let write = [("x-ms-write", "clear"), ("x-ms-range", "bytes=0-1")];
    let create = [("x-ms-type", "file"), ("x-ms-content-length", "0")];
    assert_eq!(send("DELETE", format!("/acc/share/d%20d/f?{good}"), &[]).await.outcome(), only_reads);
    assert_eq!(send("PUT", format!("/acc/share/d%20d/f?{good}"), &create).await.outcome(), only_reads);
    assert_eq!(send("PUT", format!("/acc/share/d%20d/f?comp=range&{good}"), &write).await.outcome(), only_reads);
    let uri = format!("/acc/share/d%20d/f?comp=properties&{good}");
    assert_eq!(send("PUT", uri, &[("x-ms-content-length", "0")]).await.outcome(), only_reads);
    assert_eq!(std::fs::read(bench.host().join("d d/f")).expect("there"), b"0123456789");
}

#[tokio::test]
async fn a_share_link_opens_the_share_as_far_as_it_permits() {
    let bench = Bench::new();
    bench.upload("/share/f", b"x").await;
    let day = "2018-06-08";
    let create = [("x-ms-type", "file"), ("x-ms-content-length", "3")];
    let (ok, no) = ("ok", "AuthorizationPermissionMismatch");
    for (permissions, method, uri, headers, expected) in [
        ("rl", "GET", "/acc/share?restype=directory&comp=list", &[][..], ok),
        ("r", "GET", "/acc/share?restype=directory&comp=list", &[], no),
        ("rl", "GET", "/acc/share/f?a=b", &[], ok),
        ("l", "GET", "/acc/share/f?a=b", &[], no),
        ("rl", "PUT", "/acc/share/new?a=b", &create, no),
        ("c", "PUT", "/acc/share/f?a=b", &create, no),
        ("w", "PUT", "/acc/share/new?a=b", &create, ok),
        ("rwl", "PUT", "/acc/share/dir?restype=directory", &[], ok),
        ("rwl", "DELETE", "/acc/share/dir?restype=directory", &[], no),
        ("d", "DELETE", "/acc/share/dir?restype=directory", &[], ok),
        ("d", "DELETE", "/acc/share/new?a=b", &[], ok),
        // No SAS for a share permits operations on the share itself.
        ("rcwdl", "DELETE", "/acc/share?restype=share", &[], no),
        ("rcwdl", "GET", "/acc/share?restype=share", &[], no),
    ] {
        let query = link("s", "/file/acc/share", permissions, day);
        let builder = Request::builder().method(method).uri(format!("{uri}&{query}"));
        let builder = headers.iter().fold(builder, |b, (name, value)| b.header(*name, *value));
        let answer = bench.send_raw(builder, AddressStyle::Path, "").await;
        assert_eq!(answer.outcome().1, expected, "{permissions} {method} {uri}");
    }
    // A SAS for a file does not list a directory of the same name.
    bench.send("PUT", "/share/d?restype=directory", &[], "").await;
    let query = link("f", "/file/acc/share/d", "rl", day);
    let builder = Request::builder().uri(format!("/acc/share/d?restype=directory&comp=list&{query}"));
    assert_eq!(bench.send_raw(builder, AddressStyle::Path, "").await.outcome().1, no);
}

#[tokio::test]
async fn rate_limited_requests_get_503_with_retry_after() {
    let bench = Bench::limited(10);
    // Unauthenticated requests use up the limit of their address only.
    let mut strangers = Vec::new();
    for _ in 0..30 {
        let wrong = sign("GET", "/acc?comp=list", &[], &[9; 64]);
        strangers.push(bench.send_raw(wrong, AddressStyle::Path, "").await.outcome().0);
    }
    assert_eq!(strangers[..10], [403; 10]);
    assert_eq!(strangers[10..], [503; 20]);
    let mut granted = 0;
    let busy = loop {
        let body = vec![0; 1 << 20];
        let headers = [("x-ms-write", "update"), ("x-ms-range", "bytes=0-1048575")];
        match bench.send("PUT", "/share/f?comp=range", &headers, body).await {
            answer if answer.status == 503 => break answer,
            answer => assert_eq!(answer.outcome(), (404, "ResourceNotFound"), "{answer:?}"),
        }
        granted += 1;
        assert!(granted < 1_000, "the limit is reached");
    };
    assert_eq!(granted, 10);
    assert_eq!(busy.outcome(), (503, "ServerBusy"));
    assert_eq!(busy.header("retry-after"), "1");
    assert!(
        busy.text().contains("<Error><Code>ServerBusy</Code><Message>Too many requests for this account"),
        "{busy:?}"
    );
}
