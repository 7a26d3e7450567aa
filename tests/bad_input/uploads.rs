//! Invalid uploads, and uploads that are interrupted.

use std::io::Write;
use std::net::{Shutdown, TcpStream};
use std::time::SystemTime;

use crate::harness::{Site, http};
use corro_model::storage::shared_key;

#[test]
fn uploads_that_go_nowhere_say_so() {
    let site = Site::start();
    site.prepare(0);
    site.write("data.bin", "x");
    let upload = |more: &str| site.corro(&format!("storage file upload {more}"));
    let mine = "--share-name myshare --account-name mystorageaccount --source data.bin";
    let refused = upload(&format!("{mine} --path nowhere/deeper"));
    let refused = refused.fails(
        1,
        &["The specified parent path does not exist", "/nowhere/deeper/data.bin", "corro storage directory create"],
    );
    assert_eq!(refused.stdout, "");
    assert!(!site.share().join("nowhere").exists(), "nothing was made on the way");
    upload("--share-name other --account-name mystorageaccount --source data.bin").fails(1, &["share does not exist"]);
    upload("--share-name myshare --account-name other --source data.bin")
        .fails(2, &["Cannot find \"other\" storage account"]);
    upload("--share-name myshare --account-name mystorageaccount --source none.bin").fails(1, &["none.bin"]);
    upload(&format!("{mine} --path ../../escaped.bin")).fails(1, &[]);
    assert!(!site.data().join("escaped.bin").exists() && !site.data().join("shares/escaped.bin").exists());
    upload(&format!("{mine} --path cifar")).ok();
    assert_eq!(site.on_share("data.bin"), "x");
    let download = "storage file download --share-name myshare --account-name mystorageaccount --path cifar/none.bin";
    site.corro(download).fails(1, &["does not exist"]);
    assert!(!site.path().join("none.bin").exists(), "a download that fails leaves no file");
}

/// A client declares 4 MiB and hangs up after one.
#[test]
fn a_truncated_upload_writes_nothing() {
    const RANGE: usize = 4 << 20;
    let site = Site::start();
    site.prepare(0);
    let path = "/mystorageaccount/myshare/cifar/broken.bin";
    let length = RANGE.to_string();
    let key = site.raw_key();
    let create = [("x-ms-type", "file"), ("x-ms-content-length", length.as_str())];
    site.signed_request(&key, "PUT", "/myshare/cifar/broken.bin", &create, b"").is(201);

    let date = httpdate::fmt_http_date(SystemTime::now());
    let range = format!("bytes=0-{}", RANGE - 1);
    let mut headers = vec![
        ("x-ms-date", date.as_str()),
        ("x-ms-version", "2018-03-28"),
        ("x-ms-range", &range),
        ("x-ms-write", "update"),
    ];
    let request = shared_key::Request { method: "PUT", path, query: "comp=range", account: "mystorageaccount" };
    headers.push(("Content-Length", &length));
    let authorization = shared_key::authorization(request, headers.iter().copied(), &key);
    headers.push(("Authorization", &authorization));
    let lines: Vec<String> = headers.iter().map(|(name, value)| format!("{name}: {value}")).collect();
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    let head = http::request_head(&site.address(), &format!("PUT {path}?comp=range HTTP/1.1"), &lines);

    let piece = vec![b'X'; RANGE / 4];
    for politely in [true, false] {
        let mut stream = TcpStream::connect(site.address()).expect("the server accepts");
        stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(&piece)).expect("the server reads");
        if politely {
            // Waits until the server has seen the end and responded or hung up.
            stream.shutdown(Shutdown::Write).expect("half closed");
            let _ = std::io::copy(&mut stream, &mut std::io::sink());
        }
    }
    assert_eq!(site.corro("group exists -n batchai.horovod").ok().stdout, "true\n", "the server is well");
    let content = site.signed_request(&key, "GET", "/myshare/cifar/broken.bin", &[], b"").is(200);
    assert_eq!(content.body.len(), RANGE);
    assert!(content.body.iter().all(|byte| *byte == 0), "the range is unwritten");

    // The whole range works, with the very same request.
    let mut whole = head.into_bytes();
    whole.extend(vec![b'X'; RANGE]);
    let mut stream = TcpStream::connect(site.address()).expect("the server accepts");
    stream.write_all(&whole).expect("the server reads");
    let mut response = String::new();
    std::io::Read::read_to_string(&mut stream, &mut response).expect("a response");
    assert!(response.starts_with("HTTP/1.1 201"), "{response}");
    let content = site.signed_request(&key, "GET", "/myshare/cifar/broken.bin", &[], b"").is(200);
    assert!(content.body.iter().all(|byte| *byte == b'X'));
}
