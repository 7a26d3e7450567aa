//! End of a job for followers of its log: the retired service's clients see it after all have read again, others at once.

use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use corro_model::state::JobEvent;
use corro_model::{ApiError, GroupKey, NodeId, Timestamp};
use http::header;
use serde_json::{Value, json};

use super::{TestServer, job};

const AZ: &str =
    "python/3.6.5 msrest/0.5.5 msrest_azure/0.5.0 azure-mgmt-batchai/2.0.0 Azure-SDK-For-Python AZURECLI/2.0.46";

impl TestServer {
    async fn request_with(&self, agent: &str, method: &str, path: &str) -> Value {
        let separator = if path.contains('?') { '&' } else { '?' };
        let request = Request::builder()
            .method(method)
            .uri(format!("{path}{separator}api-version=2018-05-01"))
            .header(header::HOST, "localhost")
            .header(header::USER_AGENT, agent)
            .header(header::AUTHORIZATION, format!("Bearer {}", self.token));
        self.send(request.body(Body::empty()).expect("a request")).await.is(200).body
    }

    /// Applies a job event as the reconciler would.
    async fn apply_event(&self, event: impl FnOnce(Timestamp) -> JobEvent) {
        let now = self.app.now();
        let (key, event) = (GroupKey::new("g").workspace("w").experiment("e").job("j"), event(now));
        let commit = self.app.store.commit(move |txn| {
            txn.job_event(&key, event, now).expect("it can happen");
            Ok::<_, ApiError>(())
        });
        commit.await.expect("it is noted");
    }
}

#[tokio::test]
async fn retired_clients_see_the_end_after_the_log_was_read_again() {
    let test_server = TestServer::new().await;
    let own = test_server.create_workspace_with_cluster("g", "w").await;
    test_server.account("g", "someaccount").await;
    test_server.app.storage.shares.create_share("someaccount", "data").expect("a share");
    let path = format!("{own}/experiments/e/jobs/j");
    let mut wanted = job(&format!("{own}/clusters/c"));
    wanted["properties"]["stdOutErrPathPrefix"] = json!("$AZ_BATCHAI_JOB_MOUNT_ROOT/files");
    wanted["properties"]["mountVolumes"] = json!({"azureFileShares": [{
        "accountName": "someaccount", "azureFileUrl": "https://someaccount.file.core.windows.net/data",
        "relativeMountPath": "files", "credentials": {"accountKey": "x"}
    }]});
    test_server.request("PUT", &path, wanted).await.is(202);
    test_server.apply_event(|at| JobEvent::Placed { nodes: vec![NodeId::new(1, 1, at)], at }).await;
    let running = test_server.request_with(AZ, "GET", &path).await;
    let segment = running["properties"]["jobOutputDirectoryPathSegment"].as_str().expect("text").to_owned();
    let directory = test_server
        .app
        .storage
        .shares
        .host_path("someaccount", "data")
        .expect("a path")
        .join(&segment)
        .join("stdouterr");
    std::fs::create_dir_all(&directory).expect("directories");
    std::fs::write(directory.join("stdout.txt"), "one\n").expect("written");
    let list = format!("{path}/listOutputFiles?outputdirectoryid=stdouterr");
    let listed = test_server.request_with(AZ, "POST", &list).await;
    let link = listed["value"][0]["downloadUrl"].as_str().expect("a link").replace("http://localhost", "");
    let read = async |from: usize| {
        let request = Request::builder().uri(&link).header("range", format!("bytes={from}-"));
        test_server.api.handle(request.body(Body::empty()).expect("a request")).await.status().as_u16()
    };
    assert_eq!(read(0).await, 206);

    test_server.apply_event(|at| JobEvent::Succeeded { at }).await;
    // Still running for this client; ended for others.
    assert_eq!(test_server.request_with(AZ, "GET", &path).await, running);
    let listed = test_server.request_with(AZ, "GET", &format!("{own}/experiments/e/jobs")).await;
    assert_eq!(listed["value"][0], running);
    let ended = test_server.request_with("corro/1", "GET", &path).await;
    assert_eq!(ended["properties"]["executionState"], "succeeded");
    assert!(ended["properties"]["executionInfo"]["endTime"].is_string(), "{ended}");
    // Only later reads release it; those at the moment of the end do not count, since the end may be recorded late.
    let since = Timestamp::parse(ended["properties"]["executionStateTransitionTime"].as_str().expect("text"));
    let since = since.expect("a time");
    while test_server.app.telemetry.log_followers.delay_terminal_state(
        &segment,
        since,
        since.plus(Duration::from_secs(1)),
    ) {
        assert_eq!(read(4).await, 416);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(test_server.request_with(AZ, "GET", &path).await, ended);
}
