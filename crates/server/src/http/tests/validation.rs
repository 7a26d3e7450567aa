//! Invalid bodies: refused with the field's name, without repeating possible secrets.

use serde_json::{Value, json};

use super::{TestServer, cluster, job};

async fn assert_invalid(test_server: &TestServer, path: &str, body: Value, target: Value) -> String {
    let answer = test_server.request("PUT", path, body.clone()).await;
    assert_eq!((answer.status, &answer.body["error"]["target"]), (400, &target), "{body} {answer:?}");
    answer.body["error"]["message"].as_str().expect("text").to_owned()
}

#[tokio::test]
async fn locations_must_be_region_names() {
    let test_server = TestServer::new().await;
    test_server.create_workspace_with_cluster("g", "w").await;
    let account = format!("{}/providers/Microsoft.Storage/storageAccounts/someaccount", test_server.group("g"));
    for bad in ["../x", "a/b", "é", &"x".repeat(5000)] {
        assert_invalid(&test_server, &test_server.group("new"), json!({"location": bad}), json!("location")).await;
        assert_invalid(&test_server, &test_server.workspace("g", "new"), json!({"location": bad}), json!("location"))
            .await;
        let body = json!({"location": bad, "sku": {"name": "Standard_LRS"}});
        assert_invalid(&test_server, &account, body, json!("location")).await;
    }
    let group = test_server.group("spaced");
    let made = test_server.request("PUT", &group, json!({"location": "East US"})).await.is(201);
    assert_eq!(made.body["location"], "eastus");
    test_server.request("PUT", &group, json!({"location": "eastus"})).await.is(200);
    test_server.request("PUT", &group, json!({"location": " EAST us"})).await.is(200);
    test_server
        .request("PUT", &group, json!({"location": "westus"}))
        .await
        .refused(409, "InvalidResourceGroupLocation");
}

#[tokio::test]
async fn tags_are_limited_everywhere() {
    let test_server = TestServer::new().await;
    test_server.create_workspace_with_cluster("g", "w").await;
    let account = format!("{}/providers/Microsoft.Storage/storageAccounts/someaccount", test_server.group("g"));
    let tags = |count: usize| (0..count).map(|number| (number.to_string(), json!(""))).collect::<Value>();
    let body = |count: usize| json!({"location": "eastus", "sku": {"name": "Standard_LRS"}, "tags": tags(count)});
    for path in [test_server.group("new"), test_server.workspace("g", "new"), account] {
        for count in [51, 60_000] {
            let message = assert_invalid(&test_server, &path, body(count), json!("tags")).await;
            assert!(message.contains(&format!("{count} tags are given: use at most 50")), "{message}");
        }
        assert!((200..300).contains(&test_server.request("PUT", &path, body(50)).await.status));
        let change = json!({"tags": tags(51)});
        assert_eq!(test_server.request("PATCH", &path, change).await.body["error"]["target"], "tags", "{path}");
    }
}

#[tokio::test]
async fn lists_for_objects_and_nul_bytes_are_refused() {
    let test_server = TestServer::new().await;
    let own = test_server.create_workspace_with_cluster("g", "w").await;
    let message =
        assert_invalid(&test_server, &test_server.workspace("g", "new"), json!(["eastus", {}]), Value::Null).await;
    assert!(message.contains("a list, expected an object") && !message.contains("struct"), "{message}");
    let mut wanted = cluster();
    wanted["properties"]["nodeSetup"] = json!([]);
    assert_invalid(&test_server, &format!("{own}/clusters/new"), wanted, json!("properties.nodeSetup")).await;
    let path = format!("{own}/experiments/e/jobs/j");
    let mut wanted = job(&format!("{own}/clusters/c"));
    wanted["properties"]["environmentVariables"] = json!([{"name": "A", "value": "a\0b"}]);
    assert_invalid(&test_server, &path, wanted, json!("properties.environmentVariables[0].value")).await;
    let mut wanted = job(&format!("{own}/clusters/c"));
    wanted["properties"]["customToolkitSettings"]["commandLine"] = json!("echo \0");
    assert_invalid(&test_server, &path, wanted, json!("properties.customToolkitSettings.commandLine")).await;
    let mut wanted = job(&format!("{own}/clusters/c"));
    wanted["properties"]["customToolkitSettings"]["commandLine"] = json!(r"printf '\u0000'");
    test_server.request("PUT", &path, wanted).await.is(202);
    assert_invalid(&test_server, &test_server.group("new"), json!({"location": 7}), json!("location")).await;
    assert_invalid(&test_server, &test_server.group("new"), json!(7), Value::Null).await;
}

#[tokio::test]
async fn urls_with_secrets_are_not_repeated() {
    let test_server = TestServer::new().await;
    let own = test_server.create_workspace_with_cluster("g", "w").await;
    let mut wanted = job(&format!("{own}/clusters/c"));
    let share = json!({"azureFileUrl": "https://me:canary1@a.b/?sig=canary2", "relativeMountPath": "x"});
    wanted["properties"]["mountVolumes"] = json!({"azureFileShares": [share]});
    let at = json!("properties.mountVolumes.azureFileShares[0].azureFileUrl");
    let message = assert_invalid(&test_server, &format!("{own}/experiments/e/jobs/j"), wanted, at).await;
    assert!(!message.contains("canary"), "{message}");
}

#[tokio::test]
async fn a_put_with_another_password_is_a_conflict() {
    let test_server = TestServer::new().await;
    let own = test_server.create_workspace_with_cluster("g", "w").await;
    let server = |password: &str, size: &str| {
        json!({"properties": {
            "vmSize": size, "dataDisks": {"diskSizeInGB": 1, "diskCount": 1, "storageAccountType": "Standard_LRS"},
            "sshConfiguration": {"userAccountSettings": {"adminUserName": "me", "adminUserPassword": password}}
        }})
    };
    let path = format!("{own}/fileServers/f");
    test_server.request("PUT", &path, server("one", "Standard_D1")).await.is(202);
    test_server.request("PUT", &path, server("one", "STANDARD_D1")).await.is(200);
    let message =
        test_server.request("PUT", &path, server("two", "Standard_D1")).await.refused(409, "FileServerAlreadyExists");
    assert!(message.contains("the value of a secret differs") && !message.contains("two"), "{message}");
}
