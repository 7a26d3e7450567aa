//! Responses as the service's clients expect them: headers, operations, repeated requests.

use serde_json::{Value, json};

use super::{TestServer, cluster, job};

#[tokio::test]
async fn rate_limit_headers_for_reads_writes_and_deletes() {
    let test_server = TestServer::new().await;
    let own = test_server.create_workspace_with_cluster("g", "w").await;
    for (method, path, body, word) in [
        ("GET", own.clone(), Value::Null, "reads"),
        ("PUT", own.clone(), json!({"location": "eastus"}), "writes"),
        ("DELETE", format!("{own}/clusters/c"), Value::Null, "deletes"),
    ] {
        let answer = test_server.request(method, &path, body).await;
        let header = format!("x-ms-ratelimit-remaining-subscription-{word}");
        assert!(answer.headers.contains_key(&header), "{method}: {answer:?}");
    }
}

#[tokio::test]
async fn unknown_operations_are_not_found() {
    let test_server = TestServer::new().await;
    let own = test_server.create_workspace_with_cluster("g", "w").await;
    let begun = test_server
        .request("PUT", &format!("{own}/experiments/e/jobs/j"), job(&format!("{own}/clusters/c")))
        .await
        .is(202);
    let url = begun.headers["azure-asyncoperation"].to_str().expect("text").replace("http://localhost", "");
    let path = url.split('?').next().expect("a path");
    let ended = test_server.request("GET", path, Value::Null).await.is(200).body;
    assert_eq!((&ended["status"], ended["properties"]["resourceId"].is_string()), (&json!("Succeeded"), true));
    let (before, id) = path.rsplit_once('/').expect("a path");
    let (text, _) = id.rsplit_once('.').expect("a seal");
    for id in [text.to_owned(), format!("{text}.0123456789abcdef"), format!("{}0", id), "x".to_owned()] {
        test_server.request("GET", &format!("{before}/{id}"), Value::Null).await.refused(404, "OperationNotFound");
    }
}

#[tokio::test]
async fn a_cancelled_creation_fails_for_its_pollers() {
    let test_server = TestServer::new().await;
    let own = test_server.create_workspace_with_cluster("g", "w").await;
    let path = format!("{own}/clusters/undone");
    let begun = test_server.request("PUT", &path, cluster()).await.is(202);
    let address = |name: &str| {
        let url = begun.headers[name].to_str().expect("text").replace("http://localhost", "");
        url.split('?').next().expect("a path").to_owned()
    };
    let (result, status) = (address("azure-asyncoperation"), address("location"));
    assert_eq!(test_server.request("GET", &result, Value::Null).await.is(200).body["status"], "InProgress");
    test_server.request("DELETE", &path, Value::Null).await.is(202);
    let response = test_server.request("GET", &result, Value::Null).await.is(200).body;
    assert_eq!((&response["status"], &response["error"]["code"]), (&json!("Failed"), &json!("OperationPreempted")));
    assert!(response["properties"].is_null(), "{response}");
    test_server.request("GET", &status, Value::Null).await.refused(409, "OperationPreempted");
}

#[tokio::test]
async fn nulls_count_as_absent() {
    let test_server = TestServer::new().await;
    let own = test_server.create_workspace_with_cluster("g", "w").await;
    let with_nulls = json!({"location": "eastus", "tags": null});
    test_server.request("PUT", &test_server.workspace("g", "nulls"), with_nulls).await.is(200);
    test_server.request("PATCH", &format!("{own}/clusters/c"), json!({"properties": null})).await.is(200);
    test_server.request("PATCH", &format!("{own}/clusters/c"), json!({})).await.is(200);
    let message = test_server.request("PUT", &own, json!({"location": null})).await.refused(400, "InvalidRequestBody");
    assert!(message.contains("location"), "{message}");
}

#[tokio::test]
async fn updates_change_named_fields_only() {
    let test_server = TestServer::new().await;
    let group = test_server.group("g");
    test_server.request("PUT", &group, json!({"location": "eastus", "tags": {"a": "1"}})).await.is(201);
    assert_eq!(test_server.request("PATCH", &group, json!({})).await.is(200).body["tags"], json!({"a": "1"}));
    assert_eq!(
        test_server.request("PATCH", &group, json!({"tags": {"b": "2"}})).await.is(200).body["tags"],
        json!({"b": "2"})
    );
    test_server.request("PATCH", &test_server.group("absent"), json!({})).await.refused(404, "ResourceGroupNotFound");

    let path = test_server.account("g", "acc").await;
    let changed =
        test_server.request("PATCH", &path, json!({"kind": "StorageV2", "tags": {"x": "y"}})).await.is(200).body;
    assert_eq!((&changed["kind"], &changed["properties"]["accessTier"]), (&json!("StorageV2"), &json!("Hot")));
    let changed = test_server.request("PATCH", &path, json!({"properties": {"accessTier": "cool"}})).await.is(200).body;
    assert_eq!((&changed["tags"], &changed["properties"]["accessTier"]), (&json!({"x": "y"}), &json!("Cool")));
    let closed = json!({"properties": {"networkAcls": {"defaultAction": "Deny"}}});
    test_server.request("PATCH", &path, closed).await.refused(400, "InvalidPropertyValue");
    test_server.request("PATCH", &path, json!({"sku": {"name": "Gold"}})).await.refused(400, "InvalidPropertyValue");
    let usages = format!("{}/providers/Microsoft.Storage/locations/East%20US/usages", test_server.subscription());
    assert_eq!(test_server.request("GET", &usages, Value::Null).await.is(200).body["value"][0]["currentValue"], 1);
    let usages = usages.replace("East%20US", "westus");
    assert_eq!(test_server.request("GET", &usages, Value::Null).await.is(200).body["value"][0]["currentValue"], 0);
}

#[tokio::test]
async fn a_put_after_a_resize_is_a_conflict() {
    let test_server = TestServer::new().await;
    let own = test_server.create_workspace_with_cluster("g", "w").await;
    let path = format!("{own}/clusters/c");
    test_server.request("PUT", &path, cluster()).await.is(200);
    let automatic = json!({"autoScale": {"minimumNodeCount": 0, "maximumNodeCount": 2}});
    test_server.request("PATCH", &path, json!({"properties": {"scaleSettings": automatic}})).await.is(200);
    let answer = test_server.request("PUT", &path, cluster()).await;
    assert!(answer.body["error"]["target"].to_string().contains("scaleSettings"), "{answer:?}");
    answer.refused(409, "ClusterAlreadyExists");
    let mut same = cluster();
    same["properties"]["scaleSettings"] = automatic;
    test_server.request("PUT", &path, same).await.is(200);
}

#[tokio::test]
async fn providers_are_registered() {
    let test_server = TestServer::new().await;
    let register = |name: &str| format!("{}/providers/{name}/register", test_server.subscription());
    for name in ["Microsoft.BatchAI", "microsoft.batchai", "Microsoft.Batch"] {
        let answer = test_server.request("POST", &register(name), Value::Null).await.is(200).body;
        assert_eq!(answer["registrationState"], "Registered");
    }
    test_server
        .request("POST", &register("Microsoft.Nothing"), Value::Null)
        .await
        .refused(404, "InvalidResourceNamespace");
}

#[tokio::test]
async fn a_file_server_goes_through_its_provisioning_states() {
    let test_server = TestServer::new().await;
    let own = test_server.create_workspace_with_cluster("g", "w").await;
    let path = format!("{own}/fileServers/f");
    let server = json!({"properties": {
        "vmSize": "Standard_D1", "dataDisks": {"diskSizeInGB": 1, "diskCount": 1, "storageAccountType": "Standard_LRS"},
        "sshConfiguration": {"userAccountSettings": {"adminUserName": "me", "adminUserPassword": "secret"}}
    }});
    let begun = test_server.request("PUT", &path, server).await.is(202);
    let url = begun.headers["azure-asyncoperation"].to_str().expect("text").replace("http://localhost", "");
    let poll = url.split('?').next().expect("a path").to_owned();
    let mut seen = Vec::new();
    for _ in 0..3 {
        let shown = test_server.request("GET", &path, Value::Null).await.is(200).body["properties"].clone();
        let operation = test_server.request("GET", &poll, Value::Null).await.is(200).body["status"].clone();
        seen.push((shown["provisioningState"].clone(), operation, shown["mountSettings"].is_object()));
        assert_eq!(shown["sshConfiguration"]["publicIPsToAllow"], json!(["*"]));
        let (key, now) = (corro_model::GroupKey::new("g").workspace("w").file_server("f"), test_server.app.now());
        let step = test_server.app.store.commit(move |txn| {
            crate::reconcile::steps::apply(txn, vec![crate::reconcile::steps::Step::FileServerProvisioned(key)], now);
            Ok::<_, corro_model::ApiError>(())
        });
        step.await.expect("a step");
    }
    let expected =
        [("creating", "InProgress", false), ("updating", "InProgress", false), ("succeeded", "Succeeded", true)];
    assert_eq!(seen, expected.map(|(state, status, there)| (json!(state), json!(status), there)));
}

#[test]
fn streamed_downloads_count_as_announced() {
    let parts = futures_util::stream::iter([Ok::<_, std::io::Error>("abc"), Ok("def")]);
    let streamed = axum::response::Response::builder().header("content-length", "6");
    let streamed = streamed.body(axum::body::Body::from_stream(parts)).expect("a response");
    assert_eq!(crate::http::content_length(&streamed), 6);
    assert_eq!(crate::http::content_length(&axum::response::Response::new("abcd".into())), 4);
}
