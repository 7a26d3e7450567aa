//! Blobs: whole uploads, blocks, listing, properties, SAS.

use corro_model::storage::sas::{Resource, Sas};
use http::Request;

use super::{AddressStyle, Answer, Bench, KEY1, md5, sign};

const BLOCK: (&str, &str) = ("x-ms-blob-type", "BlockBlob");

struct Blobs(Bench);

impl Blobs {
    /// With the container `con`.
    async fn new() -> Self {
        let blobs = Blobs(Bench::new());
        assert_eq!(blobs.send("PUT", "/con?restype=container", &[], "").await.status, 201);
        blobs
    }

    /// Path style; `uri` begins after `/acc.blob`.
    async fn send(&self, method: &str, uri: &str, headers: &[(&str, &str)], body: impl Into<bytes::Bytes>) -> Answer {
        let body = body.into();
        let length = body.len().to_string();
        let mut headers = headers.to_vec();
        headers.push(("content-length", &length));
        let request = sign(method, &format!("/acc.blob{uri}"), &headers, &KEY1);
        self.0.send_raw(request, AddressStyle::BlobPath, body).await
    }

    async fn put(&self, name: &str, content: &str) -> Answer {
        self.send("PUT", &format!("/con/{name}"), &[BLOCK], content.to_owned()).await
    }

    async fn names(&self, query: &str) -> String {
        let listed = self.send("GET", &format!("/con?restype=container&comp=list{query}"), &[], "").await;
        assert_eq!(listed.outcome(), (200, "ok"), "{listed:?}");
        let names = listed.text().split("<Name>").skip(1).map(|rest| rest.split("</Name>").next().unwrap_or_default());
        names.collect::<Vec<_>>().join(" ")
    }
}

#[tokio::test]
async fn a_blob_is_put_read_described_and_deleted() {
    let blobs = Blobs::new().await;
    let content = "x".repeat(3 << 20);
    let headers = [BLOCK, ("x-ms-blob-content-type", "text/plain"), ("x-ms-meta-owner", "me")];
    let made = blobs.send("PUT", "/con/deep/er/blob.txt", &headers, content.clone()).await;
    assert_eq!((made.outcome(), made.header("content-md5")), ((201, "ok"), md5(content.as_bytes()).as_str()));
    let tree = blobs.0.dir.path().join("root/acc/.containers/con");
    assert_eq!(std::fs::read_to_string(tree.join("deep/er/blob.txt")).expect("a file"), content);
    let read = blobs.send("GET", "/con/deep/er/blob.txt", &[("x-ms-range", "bytes=1-3")], "").await;
    assert_eq!((read.status, read.text()), (206, "xxx"));
    assert_eq!(read.header("x-ms-blob-content-md5"), md5(content.as_bytes()));
    let shown = blobs.send("HEAD", "/con/deep/er/blob.txt", &[], "").await;
    for (name, expected) in [
        ("x-ms-blob-type", "BlockBlob"),
        ("content-type", "text/plain"),
        ("x-ms-meta-owner", "me"),
        ("content-length", "3145728"),
        ("x-ms-lease-state", "available"),
        ("x-ms-type", ""),
        ("x-ms-file-id", ""),
        ("etag", made.header("etag")),
    ] {
        assert_eq!(shown.header(name), expected, "{name}");
    }
    let set = [("x-ms-blob-content-type", "text/x-python"), ("x-ms-blob-cache-control", "no-cache")];
    assert_eq!(blobs.send("PUT", "/con/deep/er/blob.txt?comp=properties", &set, "").await.status, 200);
    assert_eq!(blobs.send("PUT", "/con/deep/er/blob.txt?comp=metadata", &[("x-ms-meta-a", "b")], "").await.status, 200);
    let shown = blobs.send("GET", "/con/deep/er/blob.txt?comp=metadata", &[], "").await;
    assert_eq!((shown.header("x-ms-meta-a"), shown.header("x-ms-meta-owner")), ("b", ""));
    assert_eq!(shown.header("content-type"), "text/x-python");
    assert_eq!(blobs.send("DELETE", "/con/deep/er/blob.txt", &[], "").await.outcome(), (202, "ok"));
    for method in ["GET", "HEAD", "DELETE"] {
        assert_eq!(blobs.send(method, "/con/deep/er/blob.txt", &[], "").await.outcome(), (404, "BlobNotFound"));
    }
    assert_eq!(
        blobs.send("GET", "/con/deep", &[], "").await.outcome(),
        (404, "BlobNotFound"),
        "a directory is no blob"
    );
}

#[tokio::test]
async fn invalid_uploads_are_rejected_and_change_nothing() {
    let blobs = Blobs::new().await;
    assert_eq!(blobs.put("a/b", "old").await.status, 201);
    let wrong = md5(b"other");
    for (uri, headers, expected) in [
        ("/con/a/b", &[("content-md5", wrong.as_str()), BLOCK][..], (400, "Md5Mismatch")),
        ("/con/a/b", &[], (400, "MissingRequiredHeader")),
        ("/con/a/b", &[("x-ms-blob-type", "PageBlob")], (409, "InvalidBlobType")),
        ("/con/a/b", &[("if-none-match", "*"), BLOCK], (409, "BlobAlreadyExists")),
        ("/con/a/b", &[("if-match", "\"no\""), BLOCK], (412, "ConditionNotMet")),
        ("/con/none", &[("if-match", "*"), BLOCK], (412, "ConditionNotMet")),
        ("/con/a", &[BLOCK], (409, "BlobPathConflict")),
        ("/con/a/b/c", &[BLOCK], (409, "BlobPathConflict")),
        ("/con/a/", &[BLOCK], (400, "InvalidResourceName")),
        ("/con/a//b", &[BLOCK], (400, "InvalidResourceName")),
        ("/con/%2e%2e/x", &[BLOCK], (400, "InvalidResourceName")),
        ("/none/a", &[BLOCK], (404, "ContainerNotFound")),
        ("/con/a/b?comp=snapshot", &[], (409, "FeatureNotSupported")),
        ("/con/a/b?comp=block&blockid=!!", &[], (400, "InvalidBlockId")),
        ("/con?restype=container&comp=metadata&x=y", &[("x-ms-meta-1", "x")], (400, "InvalidMetadata")),
        ("/open?restype=container", &[("x-ms-blob-public-access", "blob")], (409, "PublicAccessNotPermitted")),
    ] {
        assert_eq!(blobs.send("PUT", uri, headers, "new").await.outcome(), expected, "{uri} {headers:?}");
    }
    assert_eq!(blobs.send("GET", "/con/a/b", &[], "").await.text(), "old");
    assert_eq!(blobs.names("").await, "a/b");
    let drafts = blobs.0.dir.path().join("root/acc/.drafts/con");
    assert_eq!(std::fs::read_dir(drafts).expect("a directory").count(), 0, "nothing is left of what was refused");
    // An empty directory, as jobs leave them, does not block a blob.
    std::fs::create_dir_all(blobs.0.dir.path().join("root/acc/.containers/con/out/deep")).expect("made");
    assert_eq!(blobs.put("out", "a blob").await.outcome(), (201, "ok"));
}

#[tokio::test]
async fn blocks_become_a_blob_when_their_list_says_so() {
    let blobs = Blobs::new().await;
    let put = async |id: &str, content: &str| {
        blobs.send("PUT", &format!("/con/big?comp=block&blockid={id}"), &[], content.to_owned()).await.outcome().0
    };
    assert_eq!((put("QUI%3D", "world").await, put("QUE%3D", "hello ").await), (201, 201));
    assert_eq!(blobs.send("GET", "/con/big", &[], "").await.outcome(), (404, "BlobNotFound"));
    assert_eq!(blobs.names("").await, "", "blocks are no blob");
    let waiting = blobs.send("GET", "/con/big?comp=blocklist&blocklisttype=all", &[], "").await;
    assert!(waiting.text().contains("<UncommittedBlocks><Block><Name>QUE=</Name><Size>6</Size>"), "{waiting:?}");
    let list = |ids: &[(&str, &str)]| {
        let entries: String = ids.iter().map(|(from, id)| format!("<{from}>{id}</{from}>")).collect();
        format!("<?xml version=\"1.0\" encoding=\"utf-8\"?><BlockList>{entries}</BlockList>")
    };
    let commit = async |ids: &[(&str, &str)]| {
        let headers = [("x-ms-blob-content-type", "text/plain"), ("x-ms-meta-a", "b")];
        blobs.send("PUT", "/con/big?comp=blocklist", &headers, list(ids)).await
    };
    assert_eq!(commit(&[("Latest", "QUE="), ("Latest", "Tm9uZQ==")]).await.outcome(), (400, "InvalidBlockList"));
    assert_eq!(commit(&[("Latest", "QUE="), ("Uncommitted", "QUI=")]).await.outcome(), (201, "ok"));
    let read = blobs.send("GET", "/con/big", &[], "").await;
    assert_eq!((read.text(), read.header("x-ms-meta-a")), ("hello world", "b"));
    assert_eq!(put("QUM%3D", "!").await, 201);
    let both = commit(&[("Committed", "QUE="), ("Latest", "QUM="), ("Latest", "QUI=")]).await;
    assert_eq!(both.outcome(), (201, "ok"));
    assert_eq!(blobs.send("GET", "/con/big", &[], "").await.text(), "hello !world");
    assert_eq!(commit(&[("Uncommitted", "QUM=")]).await.outcome(), (400, "InvalidBlockList"), "it waits no more");
    assert_eq!(commit(&[]).await.outcome(), (201, "ok"));
    assert_eq!(blobs.send("GET", "/con/big", &[], "").await.text(), "");
}

#[tokio::test]
async fn listings_are_sorted_by_whole_names_and_come_in_pages() {
    let blobs = Blobs::new().await;
    for name in ["b", "a/x", "a-b", "a/y/z", "a0", "a/y/deep/er"] {
        assert_eq!(blobs.put(name, name).await.status, 201, "{name}");
    }
    let tree = blobs.0.dir.path().join("root/acc/.containers/con");
    std::fs::create_dir_all(tree.join("hollow/deep")).expect("made");
    // A symbolic link is listed as one blob, whatever its target.
    std::os::unix::fs::symlink("..", tree.join("a/circle")).expect("a link");
    assert_eq!(blobs.names("").await, "a-b a/circle a/x a/y/deep/er a/y/z a0 b");
    assert_eq!(blobs.names("&prefix=a/circle/").await, "");
    assert_eq!(blobs.send("GET", "/con/a/circle", &[], "").await.text(), "..");
    assert_eq!(blobs.send("DELETE", "/con/a/circle", &[], "").await.status, 202);
    assert_eq!(blobs.names("").await, "a-b a/x a/y/deep/er a/y/z a0 b");
    assert_eq!(blobs.names("&delimiter=/").await, "a-b a/ a0 b");
    assert_eq!(blobs.names("&prefix=a/&delimiter=/").await, "a/x a/y/");
    assert_eq!(blobs.names("&prefix=a/y").await, "a/y/deep/er a/y/z");
    assert_eq!(blobs.names("&prefix=a&delimiter=-").await, "a- a/x a/y/deep/er a/y/z a0");
    assert_eq!(blobs.names("&prefix=none").await, "");
    for (query, expected) in [("", "a-b a/x a/y/deep/er a/y/z a0 b"), ("&delimiter=/", "a-b a/ a0 b")] {
        let (mut found, mut marker) = (Vec::new(), String::new());
        loop {
            let uri = format!("/con?restype=container&comp=list&maxresults=1&marker={marker}{query}");
            let page = blobs.send("GET", &uri, &[], "").await;
            let text = page.text().to_owned();
            let between = |from: &str, to: &str| {
                text.split_once(from).and_then(|(_, rest)| rest.split_once(to)).map(|(inner, _)| inner.to_owned())
            };
            found.extend(between("<Name>", "</Name>"));
            match between("<NextMarker>", "</NextMarker>") {
                Some(next) => marker = next.replace('%', "%25").replace('/', "%2F"),
                None => break,
            }
        }
        assert_eq!(found.join(" "), expected);
    }
    let described = blobs.send("GET", "/con?restype=container&comp=list&include=metadata&prefix=b", &[], "").await;
    for part in ["<Content-Length>1</Content-Length>", "<BlobType>BlockBlob</BlobType>", "<Metadata></Metadata>"] {
        assert!(described.text().contains(part), "{part} {described:?}");
    }
}

#[tokio::test]
async fn links_open_a_blob_or_a_container_and_nothing_else() {
    let blobs = Blobs::new().await;
    for name in ["open", "closed"] {
        assert_eq!(blobs.put(name, name).await.status, 201);
    }
    let link = |resource, version: &str, permissions: &str, path: &str| {
        let sas = Sas {
            version: version.to_owned(),
            resource,
            permissions: permissions.to_owned(),
            expiry: "2018-06-08T00:00:00Z".to_owned(),
            ..Sas::default()
        };
        sas.signed_query(&KEY1, "acc", "con", path)
    };
    let ask = async |method: &str, uri: &str, link: &str| {
        let joint = if uri.contains('?') { '&' } else { '?' };
        let request = Request::builder().method(method).uri(format!("/acc.blob{uri}{joint}{link}"));
        let request = request.header("x-ms-blob-type", "BlockBlob").header("content-length", "0");
        blobs.0.send_raw(request, AddressStyle::BlobPath, "").await.outcome().0
    };
    for version in ["2018-03-28", "2018-11-09", "2023-11-03"] {
        let one = link(Resource::Blob, version, "r", "open");
        assert_eq!(ask("GET", "/con/open", &one).await, 200, "{version}");
        assert_eq!(ask("GET", "/con/closed", &one).await, 403);
        assert_eq!(ask("PUT", "/con/open", &one).await, 403);
        let all = link(Resource::Container, version, "rl", "");
        assert_eq!(ask("GET", "/con/closed", &all).await, 200, "{version}");
        assert_eq!(ask("GET", "/con?restype=container&comp=list", &all).await, 200);
        assert_eq!(ask("DELETE", "/con/closed", &all).await, 403);
        assert_eq!(ask("DELETE", "/con?restype=container", &all).await, 403);
    }
    let add = link(Resource::Container, "2018-11-09", "c", "");
    assert_eq!((ask("PUT", "/con/new", &add).await, ask("PUT", "/con/open", &add).await), (201, 403));
    let of_files = link(Resource::Share, "2018-11-09", "rl", "");
    assert_eq!(ask("GET", "/con/open", &of_files).await, 403, "a link to a share opens no container");
}
