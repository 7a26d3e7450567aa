//! The file client against an in-memory share: signatures, listings, uploads and downloads in ranges, SAS.

mod fake_share;

use std::path::Path;
use std::sync::Mutex;

use corro_client::files::{ContentSettings, Destination, DownloadRange, Entry, FileSettings, Metadata};
use corro_client::sas_url::Reading;
use corro_client::{ClientError, Credential, FileLink, FileService};
use corro_model::Secret;
use fake_share::{MIB, serve};

/// Content in which no two ranges are equal.
fn content(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at / 4096 + at) as u8).collect()
}

fn to(path: &Path) -> Destination<'_> {
    Destination { path, append: false }
}

fn no_progress(_: u64, _: u64) {}

#[tokio::test]
async fn trees() {
    let (share, files, _) = serve().await;
    assert!(files.create_share("new", Some(5), &Metadata::new()).await.expect("made"));
    assert!(!files.create_share("old", None, &Metadata::new()).await.expect("there already"));
    assert!(files.create_directory("new", "a b/c", &Metadata::new()).await.expect("made"));
    let entries = files.list("new", "").await.expect("listed");
    assert_eq!(entries, [Entry::Directory { name: "d & e".into() }, Entry::File { name: "f".into(), length: 7 }]);
    files.delete_file("new", "f").await.expect("deleted");
    let seen = share.lock().expect("not poisoned").seen.clone();
    assert_eq!(seen[2], "PUT /acc/new/a%20b/c?restype=directory");
    let error = files.delete_file("new", "../f").await.expect_err("escapes");
    assert!(matches!(error, ClientError::InvalidPath { .. }), "{error:?}");
}

#[tokio::test]
async fn a_wrong_key_is_an_error_of_the_service() {
    let (_, _, base) = serve().await;
    let files =
        FileService::new(&format!("{base}/acc"), "acc", Credential::Key(Secret::new("b3RoZXI="))).expect("fine");
    let error = files.create_share("new", None, &Metadata::new()).await.expect_err("refused");
    let api = error.api().expect("the server's own");
    assert_eq!(
        (api.status, api.code.as_str(), api.message.as_str()),
        (
            403,
            "AuthenticationFailed",
            "Server failed to authenticate the request: the key is not one of the account acc, the signature is wrong or has expired, or there is no such account"
        )
    );
    let invalid = FileService::new(&base, "acc", Credential::Key(Secret::new("not base64!")));
    assert!(matches!(invalid, Err(ClientError::InvalidAccountKey)));
    let sas =
        FileService::new(&format!("{base}/acc"), "acc", Credential::Sas(Secret::new("?sv=1&sig=x%2B"))).expect("fine");
    sas.delete_file("new", "f").await.expect("the signature is in the query");
}

#[tokio::test]
async fn files_travel_in_pieces_and_come_back_the_same() {
    let (share, files, _) = serve().await;
    let dir = tempfile::tempdir().expect("temp dir");
    // Empty, small, exactly one range, and more than the first 32 MiB of a download.
    for length in [0, 10, 4 * MIB, 45 * MIB + 123] {
        let (source, destination) = (dir.path().join("source.bin"), dir.path().join("back.bin"));
        std::fs::write(&source, content(length)).expect("written");
        share.lock().expect("not poisoned").flaky =
            vec!["bytes=4194304-8388607".into(), "bytes=0-33554431".into(), "bytes=33554432-41943039".into()];
        let largest = Mutex::new(0);
        let progress = |done: u64, total: u64| {
            assert!(done <= total && total == length as u64);
            let mut largest = largest.lock().expect("not poisoned");
            *largest = done.max(*largest);
        };
        let sent =
            files.upload("s", "d/é f.bin", &source, &FileSettings::default(), 3, &progress).await.expect("uploaded");
        assert_eq!((sent, *largest.lock().expect("not poisoned")), (length as u64, length as u64));
        assert!(share.lock().expect("not poisoned").files["/acc/s/d/%C3%A9%20f.bin"] == content(length), "{length}");

        let whole = DownloadRange::default();
        let got = files.download("s", "d/é f.bin", whole, to(&destination), 3, &progress).await.expect("downloaded");
        assert_eq!((got.bytes, got.properties.length), (length as u64, length as u64));
        assert_eq!(
            got.properties.properties.last_modified.map(|time| time.to_string()).as_deref(),
            Some("2018-06-07T22:21:55Z")
        );
        assert!(std::fs::read(&destination).expect("there") == content(length), "{length}");
        std::fs::remove_file(&destination).expect("removed");
    }
    assert_eq!(std::fs::read_dir(dir.path()).expect("listed").count(), 1, "only the source is left");
}

#[tokio::test]
async fn properties_of_files_and_directories_are_sent() {
    let (share, files, _) = serve().await;
    let property_headers = || share.lock().expect("not poisoned").property_headers.join(", ");
    let metadata = Metadata::from([("Owner".to_owned(), "me".to_owned()), ("b".to_owned(), "2".to_owned())]);
    files.create_share("new", None, &metadata).await.expect("made");
    assert_eq!(property_headers(), "x-ms-meta-b: 2, x-ms-meta-owner: me");
    files.create_directory("new", "d", &Metadata::from([("a".into(), "1".into())])).await.expect("made");
    assert_eq!(property_headers(), "x-ms-meta-a: 1");

    let dir = tempfile::tempdir().expect("temp dir");
    let source = dir.path().join("a.py");
    std::fs::write(&source, "x").expect("written");
    let send = async |settings: &FileSettings| {
        files.upload("new", "d/a.py", &source, settings, 1, &no_progress).await.map(|_| property_headers())
    };
    assert_eq!(send(&FileSettings::default()).await.expect("sent"), "x-ms-content-type: text/x-python");
    let content = ContentSettings {
        content_type: Some("text/plain".into()),
        encoding: Some("gzip".into()),
        language: Some("en".into()),
        disposition: Some("inline".into()),
        cache_control: Some("no-cache".into()),
        md5: Some("bWQ1".into()),
    };
    let settings = FileSettings { content, metadata };
    assert_eq!(
        send(&settings).await.expect("sent"),
        "x-ms-cache-control: no-cache, x-ms-content-disposition: inline, x-ms-content-encoding: gzip, \
         x-ms-content-language: en, x-ms-content-md5: bWQ1, x-ms-content-type: text/plain, x-ms-meta-b: 2, \
         x-ms-meta-owner: me"
    );
    let wrong = FileSettings { metadata: Metadata::from([("not a name".into(), "x".into())]), ..Default::default() };
    let error = send(&wrong).await.expect_err("no header has such a name");
    assert!(matches!(&error, ClientError::InvalidHeader { name } if name == "x-ms-meta-not a name"), "{error:?}");
}

#[tokio::test]
async fn a_part_of_a_file() {
    let (share, files, _) = serve().await;
    share.lock().expect("not poisoned").files.insert("/acc/s/f".into(), content(100));
    let dir = tempfile::tempdir().expect("temp dir");
    let destination = dir.path().join("f");
    let range = DownloadRange { start: 10, end: Some(19) };
    let got = files.download("s", "f", range, to(&destination), 2, &no_progress).await.expect("downloaded");
    assert_eq!((got.bytes, got.content_range.as_deref()), (10, Some("bytes 10-19/100")));
    assert_eq!(std::fs::read(&destination).expect("there"), content(100)[10..20]);
}

#[tokio::test]
async fn a_failed_download_leaves_the_destination_alone() {
    let (share, files, _) = serve().await;
    let dir = tempfile::tempdir().expect("temp dir");
    let destination = dir.path().join("model.h5");
    std::fs::write(&destination, "old").expect("written");
    let whole = DownloadRange::default();
    let error = files.download("s", "missing", whole, to(&destination), 2, &no_progress).await.expect_err("missing");
    assert_eq!(error.api().map(|api| api.code.as_str()), Some("ResourceNotFound"));

    share.lock().expect("not poisoned").files.insert("/acc/s/f".into(), content(50 * MIB));
    share.lock().expect("not poisoned").changing = true;
    let error = files.download("s", "f", whole, to(&destination), 2, &no_progress).await.expect_err("changed");
    assert!(matches!(error, ClientError::ChangedDuringDownload { .. }), "{error:?}");
    assert_eq!(std::fs::read_to_string(&destination).expect("there"), "old");
    assert_eq!(std::fs::read_dir(dir.path()).expect("listed").count(), 1);
}

#[tokio::test]
async fn a_dropped_download_leaves_nothing() {
    let (share, files, _) = serve().await;
    share.lock().expect("not poisoned").files.insert("/acc/s/f".into(), content(20 * MIB));
    let dir = tempfile::tempdir().expect("temp dir");
    let destination = dir.path().join("f");
    let (begun, mut has_begun) = tokio::sync::watch::channel(false);
    let progress = |_, _| {
        begun.send_replace(true);
    };
    let whole = DownloadRange::default();
    tokio::select! {
        biased;
        _ = has_begun.wait_for(|begun| *begun) => {}
        result = files.download("s", "f", whole, to(&destination), 2, &progress) => panic!("too early: {result:?}"),
    }
    assert_eq!(std::fs::read_dir(dir.path()).expect("listed").count(), 0);
}

#[tokio::test]
async fn a_file_is_followed_by_its_link() {
    let (share, _, base) = serve().await;
    share.lock().expect("not poisoned").files.insert("/link/f".into(), b"hello ".to_vec());
    let link = FileLink::new(&format!("{base}/link/f?sig=1")).expect("a link");
    assert_eq!(bytes_from(&link, 0).await, b"hello ");
    assert!(matches!(link.read_from(6).await, Ok(Reading::AtEnd)));
    share.lock().expect("not poisoned").files.get_mut("/link/f").expect("there").extend(b"world\xff");
    assert_eq!(bytes_from(&link, 6).await, b"world\xff");
    let gone = FileLink::new(&format!("{base}/link/none")).expect("a link");
    assert!(gone.read_from(0).await.expect_err("gone").is_not_found());
}

async fn bytes_from(link: &FileLink, offset: u64) -> Vec<u8> {
    let Ok(Reading::Bytes(mut body)) = link.read_from(offset).await else { panic!("nothing at {offset}") };
    let mut read = Vec::new();
    while let Some(bytes) = body.next().await.expect("unbroken") {
        read.extend_from_slice(&bytes);
    }
    read
}
