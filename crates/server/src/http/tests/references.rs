//! Resources that a request refers to: the caller needs rights to them, and errors do not reveal whether they exist.

use serde_json::json;

use super::{TestServer, cluster, job};

#[tokio::test]
async fn a_job_runs_only_on_clusters_that_its_submitter_may_use() {
    let test_server = TestServer::new().await;
    let (own, other) = (
        test_server.create_workspace_with_cluster("g1", "w1").await,
        test_server.create_workspace_with_cluster("g2", "w2").await,
    );
    let (job_path, other_cluster) = (format!("{own}/experiments/e/jobs/j"), format!("{other}/clusters/c"));
    let token = test_server.principal("p", "Contributor", &[&own]).await;
    let message = test_server.request_as(&token, "PUT", &job_path, job(&other_cluster)).await;
    let message = message.refused(403, "LinkedAuthorizationFailed");
    assert!(message.contains(&other_cluster) && message.contains("properties.cluster.id"), "{message}");
    // The error does not reveal whether the cluster exists.
    let missing = test_server.request_as(&token, "PUT", &job_path, job(&format!("{other}/clusters/nothere"))).await;
    missing.refused(403, "LinkedAuthorizationFailed");
    let both = test_server.principal("both", "Contributor", &[&own, &other]).await;
    test_server.request_as(&both, "PUT", &job_path, job(&other_cluster)).await.is(202);
}

#[tokio::test]
async fn a_file_server_is_mounted_only_by_those_who_may_use_it() {
    let test_server = TestServer::new().await;
    let (own, other) = (
        test_server.create_workspace_with_cluster("g1", "w1").await,
        test_server.create_workspace_with_cluster("g2", "w2").await,
    );
    let server = json!({"properties": {
        "vmSize": "Standard_D1", "dataDisks": {"diskSizeInGB": 1, "diskCount": 1, "storageAccountType": "Standard_LRS"},
        "sshConfiguration": {"userAccountSettings": {"adminUserName": "me", "adminUserPassword": "secret"}}
    }});
    test_server.request("PUT", &format!("{other}/fileServers/f"), server).await.is(202);
    let token = test_server.principal("p", "Contributor", &[&own]).await;
    for name in ["f", "nothere"] {
        let mounts = json!({"fileServers": [
            {"fileServer": {"id": format!("{other}/fileServers/{name}")}, "relativeMountPath": "f"}
        ]});
        let mut wanted = cluster();
        wanted["properties"]["nodeSetup"] = json!({"mountVolumes": mounts});
        let refused = test_server.request_as(&token, "PUT", &format!("{own}/clusters/c2"), wanted).await;
        refused.refused(403, "LinkedAuthorizationFailed");
        let mut wanted = job(&format!("{own}/clusters/c"));
        wanted["properties"]["mountVolumes"] = mounts;
        let refused = test_server.request_as(&token, "PUT", &format!("{own}/experiments/e/jobs/j"), wanted).await;
        refused.refused(403, "LinkedAuthorizationFailed");
    }
}

/// Mount commands run as the agent's user without isolation.
#[tokio::test]
async fn mount_commands_need_owners_of_the_subscription() {
    let test_server = TestServer::new().await;
    let own = test_server.create_workspace_with_cluster("g1", "w1").await;
    let mut wanted = cluster();
    let systems = json!([{"mountCommand": "cat /etc/shadow; false #", "relativeMountPath": "x"}]);
    wanted["properties"]["nodeSetup"] = json!({"mountVolumes": {"unmanagedFileSystems": systems}});
    let path = format!("{own}/clusters/mounts");
    for role in ["Contributor", "Owner"] {
        let token = test_server.principal(role, role, &[&own]).await;
        let refused = test_server.request_as(&token, "PUT", &path, wanted.clone()).await;
        let message = refused.refused(403, "AuthorizationFailed");
        assert!(message.contains("unmanagedFileSystems[0].mountCommand"), "{role}: {message}");
        test_server
            .request_as(&token, "PUT", &format!("{own}/clusters/{}", role.to_lowercase()), cluster())
            .await
            .is(202);
    }
    test_server.request("PUT", &path, wanted).await.is(202);
}

#[tokio::test]
async fn a_waiting_job_does_not_name_jobs_that_its_reader_may_not_read() {
    let test_server = TestServer::new().await;
    let (own, other) = (
        test_server.create_workspace_with_cluster("g1", "w1").await,
        test_server.create_workspace_with_cluster("g2", "w2").await,
    );
    let shared = format!("{own}/clusters/c");
    test_server.request("PUT", &format!("{other}/experiments/e/jobs/confidential"), job(&shared)).await.is(202);
    let second = format!("{own}/experiments/e/jobs/second");
    test_server.request("PUT", &second, job(&shared)).await.is(202);
    let token = test_server.principal("p", "Reader", &[&own]).await;
    let list = format!("{own}/experiments/e/jobs");
    for path in [&second, &list] {
        let text = test_server.request_as(&token, "GET", path, json!(null)).await.is(200).body.to_string();
        assert!(!text.contains("confidential") && text.contains("a job of another workspace"), "{text}");
    }
    let text = test_server.request("GET", &second, json!(null)).await.is(200).body.to_string();
    assert!(text.contains("confidential"), "{text}");
}
