//! Warning headers: unknown fields, and none for valid bodies.

use corro_model::warnings;
use serde_json::json;

use super::{TestResponse, TestServer, cluster, job};

fn warnings_of(answer: &TestResponse) -> Vec<String> {
    let values = answer.headers.get_all(warnings::HEADER).iter();
    values.map(|value| warnings::decode(value.to_str().expect("text")).expect("a warning of ours")).collect()
}

#[tokio::test]
async fn unknown_fields_are_warned_about_and_ignored() {
    let test_server = TestServer::new().await;
    let own = test_server.create_workspace_with_cluster("g", "w").await;
    let path = format!("{own}/experiments/e/jobs/j");
    let mut body = job(&format!("{own}/clusters/c"));
    body["properties"]["nodeCuont"] = json!(4);
    body["properties"]["customToolkitSettings"]["comandLine"] = json!("false");
    body["properties"]["containerSettings"] = json!(null);
    let answer = test_server.request("PUT", &path, body).await.is(202);
    assert_eq!(
        warnings_of(&answer),
        [
            "unknown field 'properties.customToolkitSettings.comandLine' is ignored",
            "unknown field 'properties.nodeCuont' is ignored",
        ]
    );
    let patch = json!({"properties": {"vmSize": "Standard_NC24", "scaleSettings": {"manual": {"targetNodeCount": 1}}}});
    let answer = test_server.request("PATCH", &format!("{own}/clusters/c"), patch).await.is(200);
    assert_eq!(warnings_of(&answer), ["unknown field 'properties.vmSize' is ignored"]);
}

#[tokio::test]
async fn valid_bodies_give_no_warning() {
    let test_server = TestServer::new().await;
    let own = test_server.create_workspace_with_cluster("g", "w").await;
    let mut body = job(&format!("{own}/clusters/c"));
    // As the service's clients send resources back, and as its examples have them.
    body["$schema"] = json!("x");
    (body["id"], body["name"], body["type"]) = (json!("/x"), json!("j"), json!("t"));
    body["properties"]["outputDirectories"] =
        json!([{"id": "M", "pathPrefix": "$AZ_BATCHAI_JOB_TEMP/x", "type": "model"}]);
    body["properties"]["secrets"] = json!([{"name": "TOKEN", "value": "not-a-secret"}]);
    body["properties"]["environmentVariables"] = json!([]);
    body["properties"]["constraints"] = json!({"maxWallClockTime": "PT1H"});
    let answer = test_server.request("PUT", &format!("{own}/experiments/e/jobs/j"), body).await.is(202);
    assert_eq!(warnings_of(&answer), Vec::<String>::new());
    let answer = test_server.request("PUT", &format!("{own}/clusters/d"), cluster()).await.is(202);
    assert_eq!(warnings_of(&answer), Vec::<String>::new());
}

#[tokio::test]
async fn a_path_below_a_mount_root_without_its_volume_is_warned_about() {
    let test_server = TestServer::new().await;
    let own = test_server.create_workspace_with_cluster("g", "w").await;
    let mut mounting = cluster();
    let share = json!({"azureFileUrl": "https://a.file.core.windows.net/s", "relativeMountPath": "shared",
                       "credentials": {"accountKey": "a2V5"}});
    mounting["properties"]["nodeSetup"] = json!({"mountVolumes": {"azureFileShares": [share]}});
    test_server.request("PUT", &format!("{own}/clusters/mounting"), mounting).await.is(202);
    let mut body = job(&format!("{own}/clusters/mounting"));
    body["properties"]["stdOutErrPathPrefix"] = json!("$AZ_BATCHAI_JOB_MOUNT_ROOT/wrok");
    body["properties"]["outputDirectories"] = json!([
        {"id": "A", "pathPrefix": "$AZ_BATCHAI_MOUNT_ROOT/shared/x"}, {"id": "B", "pathPrefix": "$AZ_BATCHAI_MOUNT_ROOT/x"}
    ]);
    let answer = test_server.request("PUT", &format!("{own}/experiments/e/jobs/j"), body).await.is(202);
    assert_eq!(
        warnings_of(&answer),
        [
            "properties.stdOutErrPathPrefix: no volume is mounted at 'wrok' (mounted: none); the logs stay on the node",
            "properties.outputDirectories[1].pathPrefix: no volume is mounted at 'x' (mounted: shared); its files stay \
             on the node",
        ]
    );
}

#[tokio::test]
async fn deleting_a_file_server_names_the_clusters_that_mount_it() {
    let test_server = TestServer::new().await;
    let own = test_server.create_workspace_with_cluster("g", "w").await;
    let path = format!("{own}/fileServers/nfs");
    let server = json!({"properties": {
        "vmSize": "Standard_D1", "dataDisks": {"diskSizeInGB": 10, "diskCount": 1, "storageAccountType": "Standard_LRS"},
        "sshConfiguration": {"userAccountSettings": {"adminUserName": "me", "adminUserPassword": "secret"}}
    }});
    test_server.request("PUT", &path, server).await.is(202);
    let mut mounting = cluster();
    mounting["properties"]["nodeSetup"] =
        json!({"mountVolumes": {"fileServers": [{"fileServer": {"id": path}, "relativeMountPath": "nfs"}]}});
    test_server.request("PUT", &format!("{own}/clusters/mounting"), mounting).await.is(202);
    let answer = test_server.request("DELETE", &path, json!(null)).await.is(202);
    assert_eq!(warnings_of(&answer), ["the cluster \"mounting\" mounts this file server: its jobs lose what is on it"]);
}
