//! Containers of the blob service, also with the same name as a share.

use super::{AddressStyle, Bench, KEY2, sign};

#[tokio::test]
async fn a_container_is_made_found_and_deleted_beside_a_share_of_the_same_name() {
    let bench = Bench::new();
    for (method, uri, expected) in [
        ("HEAD", "/share?restype=container", (404, "ContainerNotFound")),
        ("DELETE", "/share?restype=container", (404, "ContainerNotFound")),
        ("PUT", "/share?restype=container", (201, "ok")),
        ("PUT", "/share?restype=container", (409, "ContainerAlreadyExists")),
        ("GET", "/share?restype=container", (200, "ok")),
        ("HEAD", "/share?restype=container&comp=metadata", (200, "ok")),
        ("PUT", "/batchaicontainer?restype=container", (201, "ok")),
        ("PUT", "/Bad?restype=container", (400, "InvalidResourceName")),
        ("PUT", "/.containers?restype=share", (400, "InvalidResourceName")),
        ("PUT", "/share/x?restype=container", (400, "InvalidQueryParameterValue")),
    ] {
        let answer = bench.send(method, uri, &[], "").await;
        assert_eq!(answer.outcome(), expected, "{method} {uri}");
        if matches!(answer.status, 200 | 201) {
            assert!(answer.header("etag").starts_with("\"0x8D"), "{answer:?}");
        }
    }
    bench.upload("/share/f", b"in the share").await;
    let tree = bench.dir.path().join("root/acc/.containers/share");
    assert!(tree.is_dir() && !tree.join("f").exists());
    let deleted = bench.send("DELETE", "/share?restype=container", &[], "").await;
    assert_eq!((deleted.status, tree.exists()), (202, false));
    assert_eq!(bench.get("/share/f", &[]).await.text(), "in the share");
    let shares = bench.get("/?comp=list", &[]).await;
    assert!(shares.text().contains("<Name>share</Name>") && !shares.text().contains("container"), "{shares:?}");
}

#[tokio::test]
async fn the_blob_host_has_containers_and_blobs() {
    let bench = Bench::new();
    let send =
        async |method: &str, uri: &str| bench.send_raw(sign(method, uri, &[], &KEY2), AddressStyle::BlobHost, "").await;
    for name in ["bbb", "aaa", "aab"] {
        assert_eq!(send("PUT", &format!("/{name}?restype=container")).await.status, 201);
    }
    let all = send("GET", "/?comp=list").await;
    assert_eq!(all.text().matches("<Container>").count(), 3, "{all:?}");
    let page = send("GET", "/?comp=list&prefix=aa&maxresults=1").await;
    assert!(page.text().contains("<Name>aaa</Name>") && page.text().contains("<NextMarker>aab</NextMarker>"));
    assert_eq!(send("GET", "/share?restype=share").await.outcome(), (400, "InvalidQueryParameterValue"));
    let host = bench.service.0.shares.container_host_path("acc", "aaa").expect("a path");
    std::fs::write(host.join("blob.txt"), "in the container").expect("written");
    assert_eq!(send("GET", "/aaa/blob.txt").await.text(), "in the container");
    assert_eq!(send("GET", "/aaa/none").await.outcome(), (404, "BlobNotFound"));
    assert_eq!(send("PUT", "/aaa/blob.txt?comp=range").await.outcome(), (400, "InvalidQueryParameterValue"));
    assert_eq!(send("DELETE", "/aaa/blob.txt").await.outcome(), (202, "ok"));
}
