//! Symbolic links over REST: no client takes one for a directory, and every operation applies to the link itself.

use std::{fs, os::unix::fs::symlink, path::PathBuf};

use super::*;

const LIST: &str = "?restype=directory&comp=list";

/// `checkpoints/best.h5`, and `old/` with a link to that directory and one to that file.
async fn bench_with_links() -> Bench {
    let bench = Bench::new();
    for directory in ["checkpoints", "old"] {
        fs::create_dir(bench.host().join(directory)).expect("made");
    }
    bench.upload("/share/checkpoints/best.h5", b"weights").await;
    symlink("../checkpoints", bench.host().join("old/latest")).expect("linked");
    symlink("../checkpoints/best.h5", bench.host().join("old/model.h5")).expect("linked");
    bench
}

fn best(bench: &Bench) -> PathBuf {
    bench.host().join("checkpoints/best.h5")
}

fn text(answer: &Answer, header: &str) -> String {
    answer.headers.get(header).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned()
}

/// As an unmodified client deletes a tree: entries listed as files are deleted as files, directories are descended
/// into.
#[tokio::test]
async fn a_recursive_deletion_by_a_client_of_2018_spares_what_links_lead_to() {
    let bench = bench_with_links().await;
    let listing = bench.get(&format!("/share/old{LIST}"), &[]).await;
    let listing = listing.text();
    assert!(!listing.contains("<Directory>"), "{listing}");
    for (name, length, text, to_file) in
        [("latest", 14, "../checkpoints", false), ("model.h5", 7, "../checkpoints/best.h5", true)]
    {
        let entry = format!(
            "<File><Name>{name}</Name><Properties><Content-Length>{length}</Content-Length><FileType>SymLink</FileType>\
             <LinkText>{text}</LinkText><LinksToFile>{to_file}</LinksToFile></Properties></File>"
        );
        assert!(listing.contains(&entry), "{listing}");
        let deleted = bench.send("DELETE", &format!("/share/old/{name}"), &[], "").await;
        assert_eq!(deleted.outcome(), (202, "ok"), "{name}");
    }
    assert_eq!(bench.send("DELETE", "/share/old?restype=directory", &[], "").await.outcome(), (202, "ok"));
    assert_eq!(fs::read(best(&bench)).expect("there"), b"weights");
}

#[tokio::test]
async fn a_link_that_is_deleted_as_a_directory_is_deleted_alone() {
    let bench = bench_with_links().await;
    assert_eq!(bench.send("DELETE", "/share/old/latest?restype=directory", &[], "").await.outcome(), (202, "ok"));
    assert!(best(&bench).exists() && !bench.host().join("old/latest").is_symlink());
}

/// Every listed file can be read with the listed length: a batch download does not stop at a link.
#[tokio::test]
async fn a_link_to_a_directory_reads_as_its_text_and_one_to_a_file_as_the_file() {
    let bench = bench_with_links().await;
    for (name, content, kind) in [("latest", "../checkpoints", "SymLink"), ("model.h5", "weights", "")] {
        let path = format!("/share/old/{name}");
        let read = bench.get(&path, &[]).await;
        assert_eq!((read.status, read.text(), text(&read, "x-ms-file-file-type").as_str()), (200, content, kind));
        let head = bench.send("HEAD", &path, &[], "").await;
        assert_eq!((head.status, text(&head, "content-length")), (200, content.len().to_string()));
        assert_eq!(text(&head, "etag"), text(&read, "etag"));
        let part = bench.get(&path, &[("x-ms-range", "bytes=1-3")]).await;
        assert_eq!((part.status, part.text()), (206, &content[1..4]));
    }
    // A named path is resolved through links that stay in the share, also for a listing.
    assert_eq!(bench.get("/share/old/latest/best.h5", &[]).await.text(), "weights");
    assert!(bench.get(&format!("/share/old/latest{LIST}"), &[]).await.text().contains("best.h5"));
    let source = [("x-ms-copy-source", "http://localhost/acc/share/old/latest"), ("host", "localhost")];
    assert_eq!(bench.send("PUT", "/share/copy", &source, "").await.status, 202);
    assert_eq!(fs::read_to_string(bench.host().join("copy")).expect("there"), "../checkpoints");
}

#[tokio::test]
async fn a_link_is_renamed_alone_whatever_protects_its_target() {
    let bench = bench_with_links().await;
    let read_only = [("x-ms-file-attributes", "ReadOnly"), ("x-ms-version", "2019-07-07")];
    let protected = bench.send("PUT", "/share/checkpoints/best.h5?comp=properties", &read_only, "").await;
    assert_eq!(protected.status, 200, "{protected:?}");
    for (from, to) in [("old/latest", "latest"), ("old/model.h5", "model.h5")] {
        let source = format!("http://localhost/acc/share/{from}");
        let headers = [("x-ms-file-rename-source", source.as_str()), ("host", "localhost"), ("x-ms-meta-a", "b")];
        let renamed = bench.send("PUT", &format!("/share/{to}?comp=rename"), &headers, "").await;
        assert_eq!(renamed.outcome(), (200, "ok"), "{renamed:?}");
        assert!(bench.host().join(to).is_symlink() && !bench.host().join(from).is_symlink());
    }
    assert_eq!(text(&bench.send("HEAD", "/share/checkpoints/best.h5", &[], "").await, "x-ms-meta-a"), "");
    assert_eq!(bench.send("DELETE", "/share/model.h5", &[], "").await.status, 202);
    assert!(best(&bench).exists());
}

#[tokio::test]
async fn links_are_made_and_read_as_later_versions_of_the_service_do() {
    let bench = bench_with_links().await;
    let make =
        async |text: &str| bench.send("PUT", "/share/new?restype=symboliclink", &[("x-ms-link-text", text)], "").await;
    assert_eq!(make("").await.outcome(), (400, "InvalidHeaderValue"));
    assert_eq!(make("checkpoints%2Fbest%2Eh5").await.outcome(), (201, "ok"));
    assert_eq!(make("x").await.outcome(), (409, "ResourceAlreadyExists"));
    assert_eq!(bench.get("/share/new", &[]).await.text(), "weights");
    let read = bench.get("/share/new?restype=symboliclink", &[]).await;
    assert_eq!((read.status, text(&read, "x-ms-link-text")), (200, "checkpoints/best.h5".into()));
    symlink("a b%ü\n", bench.host().join("odd")).expect("linked");
    let odd = bench.get("/share/odd?restype=symboliclink", &[]).await;
    assert_eq!((odd.status, text(&odd, "x-ms-link-text")), (200, "a%20b%25%C3%BC%0A".into()));
    assert_eq!(bench.get("/share/checkpoints?restype=symboliclink", &[]).await.status, 409);
    assert_eq!(
        bench.send("PUT", "/share/none/new?restype=symboliclink", &[("x-ms-link-text", "x")], "").await.status,
        404
    );
}

/// A mount that supports links says so; earlier mounts see files.
#[tokio::test]
async fn mounts_are_shown_links_if_they_know_them() {
    let bench = bench_with_links().await;
    let knows = [("x-corro-links", "true")];
    for (name, headers, kind, length) in [
        ("latest", &knows[..], "link", "14"),
        ("model.h5", &knows, "link", "22"),
        ("latest", &[("x-corro-links", "false")], "directory", "0"),
        ("model.h5", &[("x-corro-links", "false")], "file", "7"),
        ("latest", &[], "file", "14"),
        ("model.h5", &[], "file", "7"),
    ] {
        let about = bench.get(&format!("/share/old/{name}?comp=corro-about"), headers).await;
        assert_eq!((text(&about, "x-corro-kind"), text(&about, "x-corro-length")), (kind.into(), length.into()));
        if kind == "directory" {
            continue; // only for the root of a mount, which is never listed this way
        }
        let listing = bench.get("/share/old?comp=corro-list", headers).await;
        let line = listing.text().split('\0').find(|line| line.ends_with(&format!(" {name}"))).map(str::to_owned);
        assert!(line.is_some_and(|line| line.starts_with(&format!("{kind} {length} "))), "{listing:?}");
    }
    let time = [("x-corro-modified", "1500000000123456789"), knows[0]];
    assert_eq!(bench.send("PUT", "/share/old/model.h5?comp=corro-modified", &time, "").await.status, 200);
    let about = bench.get("/share/old/model.h5?comp=corro-about", &knows).await;
    assert_eq!(text(&about, "x-corro-modified"), "1500000000123456789");
    assert!(
        fs::metadata(best(&bench))
            .expect("there")
            .modified()
            .is_ok_and(|time| time.elapsed().is_ok_and(|age| age.as_secs() < 3600))
    );
}
