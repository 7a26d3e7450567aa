//! Output files in a blob container: listed with SAS URLs that read these files and nothing else.

use axum::body::Body;
use axum::extract::Request;
use http_body_util::BodyExt;
use serde_json::{Value, json};

use super::{TestServer, job};

impl TestServer {
    async fn fetch(&self, method: &str, uri: &str, headers: &[(&str, &str)]) -> (u16, Vec<u8>) {
        let builder = Request::builder().method(method).uri(uri);
        let builder = headers.iter().fold(builder, |builder, (name, value)| builder.header(*name, *value));
        let answer = self.api.handle(builder.body(Body::empty()).expect("a request")).await;
        let status = answer.status().as_u16();
        (status, answer.into_body().collect().await.expect("a body").to_bytes().to_vec())
    }
}

#[tokio::test]
async fn output_in_a_container_is_listed_and_read_by_its_links() {
    let test_server = TestServer::new().await;
    let own = test_server.create_workspace_with_cluster("g", "w").await;
    test_server.account("g", "someaccount").await;
    test_server.app.storage.shares.create_container("someaccount", "data").expect("a container");
    test_server.app.storage.shares.create_share("someaccount", "data").expect("a share of the same name");
    let path = format!("{own}/experiments/e/jobs/j");
    let mut wanted = job(&format!("{own}/clusters/c"));
    wanted["properties"]["stdOutErrPathPrefix"] = json!("$AZ_BATCHAI_JOB_MOUNT_ROOT/blobs/logs");
    wanted["properties"]["mountVolumes"] = json!({"azureBlobFileSystems": [{
        "accountName": "someaccount", "containerName": "data", "relativeMountPath": "blobs",
        "credentials": {"accountKey": "x"}
    }]});
    test_server.request("PUT", &path, wanted).await.is(202);
    let list = format!("{path}/listOutputFiles?outputdirectoryid=stdouterr");
    assert_eq!(test_server.request("POST", &list, Value::Null).await.is(200).body["value"], json!([]));

    let segment =
        test_server.request("GET", &path, Value::Null).await.body["properties"]["jobOutputDirectoryPathSegment"]
            .clone();
    let directory = format!("logs/{}/stdouterr", segment.as_str().expect("text"));
    for (host, text) in [
        (test_server.app.storage.shares.container_host_path("someaccount", "data"), "in the container"),
        (test_server.app.storage.shares.host_path("someaccount", "data"), "on the share"),
    ] {
        let directory = host.expect("a path").join(&directory);
        std::fs::create_dir_all(&directory).expect("directories");
        std::fs::write(directory.join("stdout.txt"), text).expect("written");
    }
    let listed = test_server.request("POST", &list, Value::Null).await.is(200).body;
    let link = listed["value"][0]["downloadUrl"].as_str().expect("a link").replace("http://localhost", "");
    assert!(link.starts_with("/someaccount/data/logs/") && link.contains("sr=b"), "{link}");
    let body = b"in the container".to_vec();
    assert_eq!(test_server.fetch("GET", &link, &[]).await, (200, body.clone()));
    assert_eq!(test_server.fetch("HEAD", &link, &[]).await.0, 200);
    let by_host = link.strip_prefix("/someaccount").expect("an account");
    let blob_host = [("host", "someaccount.blob.localhost")];
    assert_eq!(test_server.fetch("GET", by_host, &blob_host).await, (200, body));

    // The SAS URL grants reading of this file only.
    let as_share = link.replace("sr=b", "sr=f");
    assert_eq!(test_server.fetch("GET", &as_share, &[]).await.0, 403);
    assert_eq!(test_server.fetch("GET", &link.replace("stdout.txt", "stderr.txt"), &[]).await.0, 403);
    assert_eq!(test_server.fetch("DELETE", &link, &[]).await.0, 403);
    assert_eq!(test_server.fetch("GET", &format!("{link}&comp=rangelist"), &[]).await.0, 403);
    let keys = test_server.app.raw_account_keys("someaccount").expect("keys");
    let (inside, expires) = (format!("{directory}/stdout.txt"), test_server.app.now().seconds() + 600);
    let of_share = corro_model::storage::sas::read_link_query(&keys[0], "someaccount", "data", &inside, expires);
    let of_share = of_share.expect("a link");
    assert_eq!(test_server.fetch("GET", &format!("/data/{inside}?{of_share}"), &blob_host).await.0, 403);
    let (status, body) = test_server.fetch("GET", &format!("/someaccount/data/{inside}?{of_share}"), &[]).await;
    assert_eq!((status, body), (200, b"on the share".to_vec()));
    // It is not accepted as the source of a copy from the share.
    let source = format!("http://localhost{link}");
    let write = corro_model::storage::sas::Sas {
        version: "2018-03-28".to_owned(),
        resource: corro_model::storage::sas::Resource::Share,
        permissions: "rcw".to_owned(),
        expiry: "2999-01-01".to_owned(),
        ..Default::default()
    };
    let target = format!("/someaccount/data/copy?{}", write.signed_query(&keys[0], "someaccount", "data", ""));
    let copy = [("x-ms-copy-source", source.as_str()), ("host", "localhost"), ("content-length", "0")];
    assert!(test_server.fetch("PUT", &target, &copy).await.0 >= 400);
}
