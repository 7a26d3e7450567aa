//! Jobs with Corro's additional fields: dependencies are checked when a job is created, and what it waits for is in its
//! response.

use corro_model::GroupKey;
use corro_model::state::{JobEvent, NodeEvent};
use corro_model::{NodeId, Timestamp};
use corro_store::{NodeRecord, StoreError, Txn};
use serde_json::{Value, json};

use super::{TestServer, job};

/// Submits a job with additional properties to experiment `e`.
async fn submit(test_server: &TestServer, own: &str, name: &str, more: Value) -> super::TestResponse {
    let mut body = job(&format!("{own}/clusters/c"));
    let more = more.as_object().expect("an object").clone();
    body["properties"].as_object_mut().expect("an object").extend(more);
    test_server.request("PUT", &format!("{own}/experiments/e/jobs/{name}"), body).await
}

#[tokio::test]
async fn a_job_depends_on_jobs_that_exist() {
    let test_server = TestServer::new().await;
    let own = test_server.create_workspace_with_cluster("g", "w").await;
    submit(&test_server, &own, "a", json!({})).await.is(202);
    let refused = |depends_on: Value, target: &'static str, part: &'static str| {
        let (test_server, own) = (&test_server, &own);
        async move {
            let answer = submit(test_server, own, "j", json!({ "dependsOn": depends_on })).await;
            assert_eq!(answer.body["error"]["target"], target, "{answer:?}");
            let message = answer.refused(400, "InvalidPropertyValue");
            assert!(message.contains(part), "{message}");
        }
    };
    refused(json!(["a", "b"]), "properties.dependsOn[1]", "there is no job 'b' in experiment 'e'").await;
    refused(json!(["other/a"]), "properties.dependsOn[0]", "there is no job 'a' in experiment 'other'").await;
    refused(json!(["j"]), "properties.dependsOn[0]", "the job itself").await;
    refused(json!(["a", "e/a"]), "properties.dependsOn[1]", "given twice").await;
    refused(json!(["a/b/c"]), "properties.dependsOn[0]", "EXPERIMENT/JOB").await;

    let path = format!("{own}/experiments/e/jobs/j");
    submit(&test_server, &own, "j", json!({"dependsOn": ["A"]})).await.is(202);
    let shown = test_server.request("GET", &path, Value::Null).await.is(200).body;
    let properties = &shown["properties"];
    assert_eq!(properties["dependsOn"], json!(["A"]), "as it was given");
    assert_eq!(
        (&properties["executionState"], &properties["waitingFor"]),
        (&json!("queued"), &json!("job a must succeed first"))
    );
    let waiting = json!({"reason": "dependencies", "position": 0, "nodesNeeded": 1,
        "unblockedBy": ["the success of a, which is queued"]});
    assert_eq!(properties["waiting"], waiting);
    let why = test_server.request("GET", &format!("{path}/why"), Value::Null).await.is(200);
    assert_eq!(why.body["sentences"][0], "The job \"j\" waits: job a must succeed first.");
    // The same request again changes nothing; another one is a conflict.
    submit(&test_server, &own, "j", json!({"dependsOn": ["A"]})).await.is(200);
    let conflict = submit(&test_server, &own, "j", json!({})).await;
    assert_eq!(conflict.body["error"]["target"], "properties.dependsOn", "{conflict:?}");
}

#[tokio::test]
async fn a_dependency_that_has_succeeded_is_not_waited_for() {
    let test_server = TestServer::new().await;
    let own = test_server.create_workspace_with_cluster("g", "w").await;
    submit(&test_server, &own, "a", json!({})).await.is(202);
    let steps = |txn: &mut Txn| {
        let (workspace, now) = (GroupKey::new("g").workspace("w"), Timestamp::from_millis(1_900_000_000_000));
        let (key, node) = (workspace.experiment("e").job("a"), NodeId::new(1, 1, now));
        txn.put(node.clone(), NodeRecord::allocating(workspace.cluster("c"), 1, String::new(), now));
        for event in [NodeEvent::Joined, NodeEvent::Ready] {
            txn.node_event(&node, event, now).expect("it is new");
        }
        txn.place(&key, vec![node], now).expect("the node is idle");
        txn.end_attempt(&key, JobEvent::Succeeded { at: now }, now).expect("it runs");
        Ok::<_, StoreError>(())
    };
    test_server.app.store.commit(steps).await.expect("a commit");
    submit(&test_server, &own, "j", json!({"dependsOn": ["a"]})).await.is(202);
    let shown = test_server.request("GET", &format!("{own}/experiments/e/jobs/j"), Value::Null).await.is(200).body;
    assert_eq!(shown["properties"]["waiting"]["position"], 1, "{shown}");
    test_server.request("DELETE", &format!("{own}/experiments/e/jobs/a"), Value::Null).await.is(202);
    let answer = submit(&test_server, &own, "k", json!({"dependsOn": ["a"]})).await;
    assert!(answer.refused(400, "InvalidPropertyValue").contains("is being deleted"));
}

#[tokio::test]
async fn the_additional_fields_are_stored_and_returned() {
    let test_server = TestServer::new().await;
    let own = test_server.create_workspace_with_cluster("g", "w").await;
    let more = json!({
        "workingDirectory": "$AZ_BATCHAI_JOB_MOUNT_ROOT/work/code", "prefixOutputWithRank": true,
        "pythonEnvironment": {"requirementsFile": "$AZ_BATCHAI_JOB_MOUNT_ROOT/work/requirements.txt"},
        "constraints": {"maxWallClockTime": "PT1H", "maxRetryCount": 3},
    });
    submit(&test_server, &own, "j", more.clone()).await.is(202);
    let path = format!("{own}/experiments/e/jobs/j");
    let shown = test_server.request("GET", &path, Value::Null).await.is(200).body;
    for (name, value) in more.as_object().expect("an object") {
        assert_eq!(&shown["properties"][name], value, "{name}");
    }
    // A job without them has the service's fields only.
    submit(&test_server, &own, "plain", json!({"prefixOutputWithRank": false, "constraints": {"maxRetryCount": 0}}))
        .await
        .is(202);
    let shown = test_server.request("GET", &format!("{own}/experiments/e/jobs/plain"), Value::Null).await.is(200).body;
    let properties = shown["properties"].as_object().expect("an object");
    for name in ["workingDirectory", "prefixOutputWithRank", "pythonEnvironment", "dependsOn"] {
        assert!(!properties.contains_key(name), "{name}: {shown}");
    }
    assert_eq!(properties["constraints"], json!({"maxWallClockTime": "P7D"}));
    let refused = submit(&test_server, &own, "k", json!({"constraints": {"maxRetryCount": 1000}})).await;
    assert_eq!(refused.body["error"]["target"], "properties.constraints.maxRetryCount", "{refused:?}");
}
