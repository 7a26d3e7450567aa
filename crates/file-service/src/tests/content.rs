//! Files: every operation, and the edge cases of ranges.

use super::*;

#[tokio::test]
async fn files() {
    let bench = Bench::new();
    bench.send("PUT", "/share/d?restype=directory", &[], "").await;
    let create = &[("x-ms-type", "file"), ("x-ms-content-length", "4")][..];
    let clear = &[("x-ms-write", "clear"), ("x-ms-range", "bytes=0-1")][..];
    for (method, uri, headers, expected) in [
        ("HEAD", "/share/d/f", &[][..], (404, "ResourceNotFound")),
        ("PUT", "/share/d/f", create, (201, "ok")),
        ("PUT", "/share/d/f", create, (201, "ok")),
        ("PUT", "/share/d%2Fg", create, (201, "ok")),
        ("PUT", "/share/no/f", create, (404, "ParentNotFound")),
        ("PUT", "/none/f", create, (404, "ShareNotFound")),
        ("PUT", "/share/d", create, (409, "ResourceTypeMismatch")),
        ("PUT", "/share/x", &[("x-ms-type", "file")], (400, "MissingRequiredHeader")),
        ("PUT", "/share/x", &[("x-ms-content-length", "1")], (400, "MissingRequiredHeader")),
        ("PUT", "/share/x", &[("x-ms-type", "blob"), ("x-ms-content-length", "1")], (400, "InvalidHeaderValue")),
        ("PUT", "/share/x", &[("x-ms-type", "file"), ("x-ms-content-length", "-1")], (400, "InvalidHeaderValue")),
        (
            "PUT",
            "/share/x",
            &[("x-ms-type", "file"), ("x-ms-content-length", "9999999999999")],
            (400, "InvalidHeaderValue"),
        ),
        ("PUT", "/share/x", &[("x-ms-copy-source", "http://localhost/")], (404, "CannotVerifyCopySource")),
        ("HEAD", "/share/d/f", &[], (200, "ok")),
        ("HEAD", "/share/d", &[], (404, "ResourceNotFound")),
        ("GET", "/share/d", &[], (404, "ResourceNotFound")),
        ("GET", "/share/d/f", &[], (200, "ok")),
        ("GET", "/share/d/f?comp=metadata", &[], (200, "ok")),
        ("HEAD", "/share/d/f?comp=metadata", &[], (200, "ok")),
        ("PUT", "/share/d/f?comp=metadata", &[("x-ms-meta-a", "b")], (200, "ok")),
        ("PUT", "/share/no?comp=metadata", &[], (404, "ResourceNotFound")),
        ("PUT", "/share/d/f?comp=range", clear, (201, "ok")),
        ("PUT", "/share/no?comp=range", clear, (404, "ResourceNotFound")),
        ("PUT", "/share/d/f?comp=properties", &[("x-ms-content-length", "7")], (200, "ok")),
        ("PUT", "/share/d/f?comp=properties", &[], (200, "ok")),
        ("PUT", "/share/no?comp=properties", &[("x-ms-content-length", "7")], (404, "ResourceNotFound")),
        ("GET", "/share/d/f?comp=rangelist", &[], (200, "ok")),
        ("GET", "/share/no?comp=rangelist", &[], (404, "ResourceNotFound")),
        ("GET", "/share/d/f?comp=nonsense", &[], (400, "InvalidQueryParameterValue")),
        ("POST", "/share/d/f", &[], (405, "UnsupportedHttpVerb")),
        ("DELETE", "/share/d/f", &[], (202, "ok")),
        ("DELETE", "/share/d/f", &[], (404, "ResourceNotFound")),
        ("DELETE", "/share/d", &[], (404, "ResourceNotFound")),
    ] {
        let answer = bench.send(method, uri, headers, "").await;
        assert_eq!(answer.outcome(), expected, "{method} {uri} {headers:?}");
        if matches!(answer.status, 200 | 201) {
            assert!(answer.header("etag").starts_with("\"0x8D"), "{answer:?}");
            assert!(!answer.header("last-modified").is_empty(), "{answer:?}");
        }
    }
}

#[tokio::test]
async fn properties_of_a_file() {
    let bench = Bench::new();
    bench.upload("/share/f", b"hello").await;
    let head = bench.send("HEAD", "/share/f", &[("range", "bytes=1-2")], "").await;
    assert_eq!((head.status, head.body.len()), (200, 0));
    for (name, value) in [
        ("content-length", "5"),
        ("content-type", "application/octet-stream"),
        ("x-ms-type", "File"),
        ("x-ms-server-encrypted", "true"),
        ("accept-ranges", "bytes"),
        ("x-content-type-options", "nosniff"),
    ] {
        assert_eq!(head.header(name), value, "{name}");
    }
    assert!(!head.headers.contains_key("x-ms-file-id"));
    let smb = bench.send("HEAD", "/share/f", &[("x-ms-version", "2019-02-02")], "").await;
    assert_eq!(smb.header("x-ms-file-attributes"), "Archive");
    let root = bench.get("/share?restype=directory", &[("x-ms-version", "2019-02-02")]).await;
    assert_eq!(smb.header("x-ms-file-parent-id"), root.header("x-ms-file-id"));
    // Reading keeps the ETag; writing changes it.
    let read = bench.get("/share/f", &[("x-ms-client-request-id", "abc-1")]).await;
    assert_eq!(read.header("etag"), head.header("etag"));
    assert_eq!(read.header("x-ms-client-request-id"), "abc-1");
    bench.upload("/share/f", b"world").await;
    assert_ne!(bench.get("/share/f", &[]).await.header("etag"), head.header("etag"));
}

#[tokio::test]
async fn ranges_of_a_read() {
    let bench = Bench::new();
    bench.upload("/share/f", b"0123456789").await;
    bench.upload("/share/empty", b"").await;
    let ms = "x-ms-range";
    for (uri, headers, status, content_range, body) in [
        ("/share/f", &[][..], 200, "", "0123456789"),
        ("/share/f", &[(ms, "bytes=0-33554431")], 206, "bytes 0-9/10", "0123456789"),
        ("/share/f", &[(ms, "bytes=2-4")], 206, "bytes 2-4/10", "234"),
        ("/share/f", &[("range", "bytes=2-4")], 206, "bytes 2-4/10", "234"),
        ("/share/f", &[(ms, "bytes=2-4"), ("range", "bytes=5-6")], 206, "bytes 2-4/10", "234"),
        ("/share/f", &[("range", "bytes=9-")], 206, "bytes 9-9/10", "9"),
        ("/share/f", &[("range", "bytes=-2")], 206, "bytes 8-9/10", "89"),
        ("/share/f", &[("range", "bytes=0-1,3-4")], 200, "", "0123456789"),
        ("/share/f", &[("range", "lines=1-2")], 200, "", "0123456789"),
        ("/share/f", &[("range", "bytes=10-")], 416, "bytes */10", ""),
        ("/share/f", &[(ms, "bytes=10-20")], 416, "bytes */10", ""),
        ("/share/f", &[(ms, "bytes=4-2")], 400, "", ""),
        ("/share/empty", &[(ms, "bytes=0-33554431")], 416, "bytes */0", ""),
        ("/share/empty", &[("range", "bytes=0-")], 416, "bytes */0", ""),
        ("/share/empty", &[], 200, "", ""),
    ] {
        let answer = bench.get(uri, headers).await;
        assert_eq!(answer.status, status, "{uri} {headers:?}");
        assert_eq!(answer.header("content-range"), content_range, "{uri} {headers:?}");
        if status < 300 {
            assert_eq!(answer.text(), body, "{uri} {headers:?}");
            assert_eq!(answer.header("content-length"), body.len().to_string());
        }
    }
    let hashed = [(ms, "bytes=2-4"), ("x-ms-range-get-content-md5", "true")];
    let answer = bench.get("/share/f", &hashed).await;
    assert_eq!((answer.status, answer.text(), answer.header("content-md5")), (206, "234", md5(b"234").as_str()));
    assert_eq!(bench.get("/share/f", &hashed[1..]).await.outcome(), (400, "InvalidHeaderValue"));
}

#[tokio::test]
async fn ranges_of_a_write() {
    let bench = Bench::new();
    bench.upload("/share/f", b"..........").await;
    let content = || std::fs::read_to_string(bench.host().join("f")).expect("there");
    let write = async |headers: &[(&str, &str)], body: &'static [u8]| {
        let headers: Vec<_> = [("x-ms-write", "update")].into_iter().chain(headers.iter().copied()).collect();
        bench.send("PUT", "/share/f?comp=range", &headers, body).await
    };
    let done = write(&[("x-ms-range", "bytes=2-4")], b"abc").await;
    assert_eq!((done.outcome(), done.header("content-md5")), ((201, "ok"), ""));
    let done = write(&[("range", "bytes=8-9"), ("content-md5", &md5(b"yz"))], b"yz").await;
    assert_eq!((done.outcome(), done.header("content-md5")), ((201, "ok"), md5(b"yz").as_str()));
    assert_eq!(content(), "..abc...yz");

    for (headers, body, expected) in [
        (&[("x-ms-range", "bytes=8-10")][..], &b"XYZ"[..], (416, "InvalidRange")),
        (&[("x-ms-range", "bytes=0-2")], b"XY", (400, "InvalidHeaderValue")),
        (&[("x-ms-range", "bytes=0-2")], b"XYZW", (400, "InvalidHeaderValue")),
        (&[("x-ms-range", "bytes=0-")], b"XYZ", (400, "InvalidHeaderValue")),
        (&[("x-ms-range", "bytes=2-0")], b"XYZ", (400, "InvalidHeaderValue")),
        (&[("x-ms-range", "bytes=0-18446744073709551615")], b"XYZ", (400, "InvalidHeaderValue")),
        (&[], b"XYZ", (400, "MissingRequiredHeader")),
        (&[("x-ms-range", "bytes=0-2"), ("content-md5", "not a hash")], b"XYZ", (400, "InvalidHeaderValue")),
        (&[("x-ms-range", "bytes=0-2"), ("content-md5", "AAAAAAAAAAAAAAAAAAAAAA==")], b"XYZ", (400, "Md5Mismatch")),
        // Truncated, and longer than announced.
        (&[("x-ms-range", "bytes=0-2"), ("content-length", "3")], b"XY", (400, "InvalidInput")),
        (&[("x-ms-range", "bytes=0-2"), ("content-length", "3")], b"XYZW", (400, "InvalidInput")),
    ] {
        let answer = write(headers, body).await;
        assert_eq!(answer.outcome(), expected, "{headers:?}");
        assert_eq!(content(), "..abc...yz", "{headers:?}");
    }

    let headers = [("x-ms-write", "clear"), ("x-ms-range", "bytes=3-3")];
    assert_eq!(bench.send("PUT", "/share/f?comp=range", &headers, "").await.outcome(), (201, "ok"));
    assert_eq!(content(), "..a\0c...yz");
    assert_eq!(bench.send("PUT", "/share/f?comp=range", &headers, "x").await.outcome(), (400, "InvalidHeaderValue"));
    let headers = [("x-ms-write", "clear"), ("x-ms-range", "bytes=3-10")];
    assert_eq!(bench.send("PUT", "/share/f?comp=range", &headers, "").await.outcome(), (416, "InvalidRange"));
    for write in ["", "append"] {
        let headers = [("x-ms-write", write), ("x-ms-range", "bytes=3-3")];
        assert_eq!(
            bench.send("PUT", "/share/f?comp=range", &headers, "x").await.outcome(),
            (400, "InvalidHeaderValue")
        );
    }
    // Without a Content-Length.
    let headers = [("x-ms-write", "update"), ("x-ms-range", "bytes=3-3")];
    let request = sign("PUT", "/acc/share/f?comp=range", &headers, &KEY1);
    let answer = bench.send_raw(request, AddressStyle::Path, "x").await;
    assert_eq!(answer.outcome(), (411, "MissingContentLengthHeader"));
}

#[tokio::test]
async fn a_range_of_more_than_four_mebibytes_is_too_large() {
    let bench = Bench::new();
    let five = 5 << 20;
    let size = five.to_string();
    bench.send("PUT", "/share/f", &[("x-ms-type", "file"), ("x-ms-content-length", &size)], "").await;
    let write = async |len: usize| {
        let range = format!("bytes=0-{}", len - 1);
        let headers = [("x-ms-write", "update"), ("x-ms-range", range.as_str())];
        bench.send("PUT", "/share/f?comp=range", &headers, vec![7; len]).await
    };
    assert_eq!(write((4 << 20) + 1).await.outcome(), (413, "RequestBodyTooLarge"));
    assert_eq!(std::fs::read(bench.host().join("f")).expect("there")[0], 0);
    assert_eq!(write(4 << 20).await.outcome(), (201, "ok"));
}

#[tokio::test]
async fn range_lists_and_resizing() {
    let bench = Bench::new();
    let mib = 1 << 20;
    bench.upload("/share/f", &vec![1; 2 * mib]).await;
    let resize = async |len: usize| {
        let len = len.to_string();
        bench.send("PUT", "/share/f?comp=properties", &[("x-ms-content-length", &len)], "").await
    };
    assert_eq!(resize(8 * mib).await.outcome(), (200, "ok"));
    let ranges = async |headers: &[(&str, &str)]| bench.get("/share/f?comp=rangelist", headers).await;
    let all = ranges(&[]).await;
    assert_eq!(all.header("x-ms-content-length"), (8 * mib).to_string());
    assert!(all.text().ends_with("<Ranges><Range><Start>0</Start><End>2097151</End></Range></Ranges>"), "{all:?}");
    let some = ranges(&[("x-ms-range", "bytes=1048576-1048599")]).await;
    assert!(some.text().contains("<Start>1048576</Start><End>1048599</End>"), "{some:?}");
    let none = ranges(&[("x-ms-range", "bytes=4194304-")]).await;
    assert!(none.text().ends_with("<Ranges></Ranges>"), "{none:?}");
    assert_eq!(ranges(&[("x-ms-range", "bytes=8388608-")]).await.status, 416);
    resize(3).await;
    assert_eq!(bench.get("/share/f", &[]).await.body.as_ref(), [1, 1, 1]);
}
