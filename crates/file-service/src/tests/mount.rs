//! Requests that only mounts make.

use std::fs;

use super::*;

fn text(answer: &Answer, header: &str) -> String {
    answer.headers.get(header).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned()
}

#[tokio::test]
async fn one_request_tells_of_files_and_directories() {
    let bench = Bench::new();
    bench.upload("/share/f", b"12345").await;
    let file = bench.get("/share/f?comp=corro-about", &[]).await;
    assert_eq!(
        (file.status, text(&file, "x-corro-kind"), text(&file, "x-corro-length")),
        (200, "file".into(), "5".into())
    );
    assert!(!text(&file, "etag").is_empty() && text(&file, "x-corro-modified").len() >= 19);
    let root = bench.get("/share?comp=corro-about", &[]).await;
    assert_eq!((root.status, text(&root, "x-corro-kind")), (200, "directory".into()));
    assert_eq!(bench.get("/share/nothing?comp=corro-about", &[]).await.status, 404);
    let time = [("x-corro-modified", "1500000000123456789")];
    assert_eq!(bench.send("PUT", "/share/f?comp=corro-modified", &time, "").await.status, 200);
    assert_eq!(text(&bench.get("/share/f?comp=corro-about", &[]).await, "x-corro-modified"), "1500000000123456789");
    assert_eq!(bench.send("PUT", "/share/f?comp=corro-sync", &[], "").await.status, 200);
    let room = bench.get("/share?comp=corro-room", &[]).await;
    assert_eq!((text(&room, "x-corro-used"), text(&room, "x-corro-quota")), ("5".into(), String::new()));
}

#[tokio::test]
async fn lists_are_short_and_have_pages() {
    let bench = Bench::new();
    for name in ["a", "b c", "d"] {
        fs::write(bench.host().join(name), name).expect("written");
    }
    let names = |answer: &Answer| {
        let text = String::from_utf8(answer.body.to_vec()).expect("text");
        let (entries, next) = text.rsplit_once('\0').expect("entries");
        let names: Vec<String> =
            entries.split('\0').map(|line| line.splitn(4, ' ').nth(3).expect(line).to_owned()).collect();
        (names, next.to_owned())
    };
    let first = bench.get("/share?comp=corro-list&maxresults=2", &[]).await;
    assert_eq!(names(&first), (vec!["a".to_owned(), "b c".to_owned()], "d".to_owned()));
    let rest = bench.get("/share?comp=corro-list&marker=d", &[]).await;
    assert_eq!(names(&rest), (vec!["d".to_owned()], String::new()));
}

#[tokio::test]
async fn a_write_may_grow_and_a_file_may_have_to_be_new() {
    let bench = Bench::new();
    let make = [("x-ms-type", "file"), ("x-ms-content-length", "0"), ("x-corro-exclusive", "true")];
    assert_eq!(bench.send("PUT", "/share/f", &make, "").await.status, 201);
    let again = bench.send("PUT", "/share/f", &make, "").await;
    assert_eq!((again.status, text(&again, "x-ms-error-code")), (409, "ResourceAlreadyExists".into()));
    let range = [("x-ms-write", "update"), ("x-ms-range", "bytes=3-5")];
    assert_eq!(bench.send("PUT", "/share/f?comp=range", &range, "abc").await.status, 416);
    let grows = [range[0], range[1], ("x-corro-grow", "true")];
    assert_eq!(bench.send("PUT", "/share/f?comp=range", &grows, "abc").await.status, 201);
    assert_eq!(fs::read(bench.host().join("f")).expect("there"), b"\0\0\0abc");
    // A plain rename does not change the mtime.
    let before = fs::metadata(bench.host().join("f")).expect("there").modified().expect("a time");
    let headers =
        [("x-ms-file-rename-source", "http://localhost/acc/share/f"), ("x-corro-plain", "true"), ("host", "localhost")];
    let renamed = bench.send("PUT", "/share/g?comp=rename", &headers, "").await;
    assert_eq!(renamed.status, 200, "{renamed:?}");
    assert_eq!(fs::metadata(bench.host().join("g")).expect("there").modified().expect("a time"), before);
}

#[tokio::test]
async fn many_ranges_are_written_at_once() {
    let bench = Bench::new();
    bench.upload("/share/f", b"0123456789").await;
    let body = |ranges: &[(u64, &str)]| -> Vec<u8> {
        let table = ranges.iter().flat_map(|(at, text)| [at.to_be_bytes(), (text.len() as u64).to_be_bytes()].concat());
        table.chain(ranges.iter().flat_map(|(_, text)| text.bytes())).collect()
    };
    let write = |path: &'static str, count: &'static str, body: Vec<u8>| {
        let (path, bench) = (format!("/share/{path}?comp=corro-ranges"), &bench);
        async move { bench.send("PUT", &path, &[("x-corro-ranges", count)], body).await.status }
    };
    let ranges = body(&[(1, "ab"), (12, "!"), (5, "c")]);
    for _ in 0..2 {
        assert_eq!(write("f", "3", ranges.clone()).await, 201);
        assert_eq!(fs::read(bench.host().join("f")).expect("there"), b"0ab34c6789\0\0!");
    }
    assert_eq!(write("none", "3", ranges.clone()).await, 404);
    for count in ["0", "2", "4", "1025", "x", ""] {
        assert_eq!(write("f", count, ranges.clone()).await, 400, "{count}");
    }
    // Creates a new file, and never replaces one.
    let make = |path: &'static str, count: &'static str| {
        let (path, ranges, bench) = (format!("/share/{path}?comp=corro-ranges"), ranges.clone(), &bench);
        let headers = [("x-corro-ranges", count), ("x-corro-exclusive", "true")];
        async move { bench.send("PUT", &path, &headers, ranges).await.status }
    };
    assert_eq!(make("bad", "2").await, 400);
    assert!(!bench.host().join("bad").exists(), "what is refused makes nothing");
    for (path, expected) in [("new", 201), ("new", 409), ("f", 409), ("nowhere/new", 404)] {
        assert_eq!(make(path, "3").await, expected, "{path}");
    }
    assert_eq!(fs::read(bench.host().join("new")).expect("there"), b"\0ab\0\0c\0\0\0\0\0\0!");
    assert_eq!(bench.send("PUT", "/share/f?comp=corro-ranges", &[], "x").await.status, 400);
    assert_eq!(fs::read(bench.host().join("f")).expect("there"), b"0ab34c6789\0\0!", "what is refused writes nothing");
}

#[tokio::test]
async fn a_block_is_appended_once() {
    let bench = Bench::new();
    bench.upload("/share/log", b"start\n").await;
    let append = |number: &'static str, again: Option<&'static str>, block: &'static str| {
        let mut headers = vec![("x-corro-writer", "w-1"), ("x-corro-block", number)];
        headers.extend(again.map(|after| ("x-corro-again", after)));
        let bench = &bench;
        async move { bench.send("PUT", "/share/log?comp=corro-append", &headers, block).await }
    };
    let one = append("1", None, "one\n").await;
    assert_eq!(
        (one.status, text(&one, "x-corro-offset"), text(&one, "x-corro-length")),
        (201, "6".into(), "10".into())
    );
    // The response was lost; the client retries.
    assert_eq!(text(&append("1", Some("6"), "one\n").await, "x-corro-offset"), "6");
    assert_eq!(text(&append("2", None, "two\n").await, "x-corro-offset"), "10");
    assert_eq!(
        text(&append("3", Some("14"), "two\n").await, "x-corro-offset"),
        "14",
        "the same again is another block"
    );
    assert_eq!(fs::read_to_string(bench.host().join("log")).expect("there"), "start\none\ntwo\ntwo\n");
    // A server without a record of the writer searches the file.
    let headers = [("x-corro-writer", "w-2"), ("x-corro-block", "9"), ("x-corro-again", "6")];
    let found = bench.send("PUT", "/share/log?comp=corro-append", &headers, "one\n").await;
    assert_eq!(text(&found, "x-corro-offset"), "6");
    let headers = [("x-corro-writer", "w-3"), ("x-corro-block", "9"), ("x-corro-again", "10")];
    let found = bench.send("PUT", "/share/log?comp=corro-append", &headers, "one\n").await;
    assert_eq!(text(&found, "x-corro-offset"), "18", "before that it cannot be ours");
    for headers in [&[][..], &[("x-corro-writer", "w")], &[("x-corro-writer", ""), ("x-corro-block", "1")]] {
        assert_eq!(bench.send("PUT", "/share/log?comp=corro-append", headers, "x").await.status, 400);
    }
    let missing = [("x-corro-writer", "w"), ("x-corro-block", "1")];
    assert_eq!(bench.send("PUT", "/share/none?comp=corro-append", &missing, "x").await.status, 404);
}
