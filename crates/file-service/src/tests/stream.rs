//! Streamed bodies: many chunks, tiny chunks, interrupted, and of files that change during the read.

use std::{io, sync::Arc};

use futures_util::stream;
use http_body_util::BodyExt;

use super::*;

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|n| (n / 7 + n / 4099) as u8).collect()
}

#[tokio::test]
async fn a_large_file_comes_back_as_it_went() {
    let bench = Bench::new();
    let content = pattern((9 << 20) + 12_345);
    bench.upload("/share/large", &content).await;
    assert!(bench.get("/share/large", &[]).await.body == content);
    let part = bench.get("/share/large", &[("x-ms-range", "bytes=524287-6291457")]).await;
    assert_eq!(part.status, 206);
    assert!(part.body == content[524_287..=6_291_457]);
}

#[tokio::test]
async fn ranges_may_come_in_any_order_at_once_and_in_crumbs() {
    let bench = Arc::new(Bench::new());
    let content = Arc::new(pattern(64 << 10));
    let length = content.len().to_string();
    bench.send("PUT", "/share/f", &[("x-ms-type", "file"), ("x-ms-content-length", &length)], "").await;
    let writes = [3usize, 0, 2, 1].map(|quarter| {
        let (bench, content) = (bench.clone(), content.clone());
        tokio::spawn(async move {
            let start = quarter * (16 << 10);
            let piece = content[start..start + (16 << 10)].to_vec();
            let range = format!("bytes={start}-{}", start + piece.len() - 1);
            let length = piece.len().to_string();
            let headers =
                [("x-ms-write", "update"), ("x-ms-range", range.as_str()), ("content-length", length.as_str())];
            let request = sign("PUT", "/acc/share/f?comp=range", &headers, &KEY1);
            // More chunks than are kept separately.
            let crumbs = piece.chunks(5).map(|crumb| Ok::<_, io::Error>(Bytes::copy_from_slice(crumb)));
            let crumbs: Vec<_> = crumbs.collect();
            assert!(crumbs.len() > 1024);
            bench.send_raw(request, AddressStyle::Path, Body::from_stream(stream::iter(crumbs))).await
        })
    });
    for write in writes {
        assert_eq!(write.await.expect("no panic").outcome(), (201, "ok"));
    }
    assert!(std::fs::read(bench.host().join("f")).expect("there") == *content);
}

#[tokio::test]
async fn a_body_that_breaks_off_writes_nothing() {
    let bench = Bench::new();
    bench.upload("/share/f", b"..........").await;
    let headers = [("x-ms-write", "update"), ("x-ms-range", "bytes=0-9"), ("content-length", "10")];
    let broken = [Ok(Bytes::from_static(b"XXXXX")), Err(io::Error::from(io::ErrorKind::ConnectionReset))];
    let request = sign("PUT", "/acc/share/f?comp=range", &headers, &KEY1);
    let answer = bench.send_raw(request, AddressStyle::Path, Body::from_stream(stream::iter(broken))).await;
    assert_eq!(answer.outcome(), (400, "InvalidInput"));
    assert_eq!(std::fs::read(bench.host().join("f")).expect("there"), b"..........");
}

#[tokio::test]
async fn a_file_that_shrinks_under_its_reader_ends_the_body_with_an_error() {
    let bench = Bench::new();
    bench.upload("/share/f", &pattern(3 << 20)).await;
    let request = sign("GET", "/acc/share/f", &[], &KEY1).body(Body::empty()).expect("a good request");
    let response = bench.service.handle("acc", AddressStyle::Path, request, None).await;
    assert_eq!(response.headers()["content-length"], (3 << 20).to_string());
    let mut body = response.into_body();
    body.frame().await.expect("a first piece").expect("read");
    std::fs::File::options().write(true).open(bench.host().join("f")).expect("there").set_len(10).expect("cut");
    let mut received = 0;
    let error = loop {
        match body.frame().await {
            Some(Ok(frame)) => received += frame.into_data().expect("data").len(),
            Some(Err(error)) => break error,
            None => panic!("ended as if all were well after {received} bytes"),
        }
    };
    assert!(received < 3 << 20, "{error}");
    assert!(body.frame().await.is_none());
}

#[tokio::test]
async fn a_deleted_file_is_read_to_its_end() {
    let bench = Bench::new();
    let content = pattern(2 << 20);
    bench.upload("/share/f", &content).await;
    let request = sign("GET", "/acc/share/f", &[], &KEY1).body(Body::empty()).expect("a good request");
    let response = bench.service.handle("acc", AddressStyle::Path, request, None).await;
    assert_eq!(bench.send("DELETE", "/share/f", &[], "").await.status, 202);
    assert!(response.into_body().collect().await.expect("a whole body").to_bytes() == content);
}

#[tokio::test]
async fn a_reader_that_decodes_each_part_gets_no_half_character_of_a_growing_text() {
    use corro_model::storage::sas::read_link_query;
    let bench = Bench::new();
    bench.upload("/share/log", b"10 \xe2\x82").await;
    let link = format!("/acc/share/log?{}", read_link_query(&KEY1, "acc", "share", "log", NOW + 60).expect("a link"));
    let read = async |agent: &str, range: &str| {
        let request = Request::builder().uri(&link).header("user-agent", agent).header("range", range);
        bench.send_raw(request, AddressStyle::Path, "").await
    };
    let az = "python-requests/2.31.0";
    let part = read(az, "bytes=0-").await;
    assert_eq!((part.status, part.text(), part.header("content-range")), (206, "10 ", "bytes 0-2/5"));
    assert_eq!(read(az, "bytes=3-").await.status, 416);
    // Other clients get all bytes, and so does this one if it asks for a closed range.
    assert_eq!(read("corro/1", "bytes=0-").await.body.len(), 5);
    assert_eq!(read(az, "bytes=0-4").await.body.len(), 5);
    bench.upload("/share/log", "10 €\n".as_bytes()).await;
    assert_eq!(read(az, "bytes=3-").await.text(), "€\n");
    // Without a recent write the file is complete.
    bench.upload("/share/log", b"10 \xe2\x82").await;
    let file = std::fs::File::options().write(true).open(bench.host().join("log")).expect("there");
    file.set_modified(std::time::SystemTime::now() - std::time::Duration::from_secs(60)).expect("set");
    assert_eq!(read(az, "bytes=0-").await.body.len(), 5);
}
