//! Audit entries of requests that change nothing: disclosed keys, issued SAS URLs, failed logins.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::Request;
use corro_model::history::{HistoryEntry, HistoryFilter};
use corro_model::node::CONNECT_PATH;
use http::header;
use serde_json::{Value, json};

use super::{RateLimits, Rates, TestServer, job};

impl TestServer {
    /// The audit entries once there are `n`; they are written in the background.
    async fn audit_entries(&self, n: usize) -> Vec<HistoryEntry> {
        let filter = || HistoryFilter { kind: Some("request".to_owned()), ..HistoryFilter::newest(100) };
        let mut changes = self.app.store.changes();
        loop {
            let lines = self.app.history(filter()).await.expect("a history");
            if lines.len() >= n {
                return lines;
            }
            let more = tokio::time::timeout(std::time::Duration::from_secs(30), changes.changed()).await;
            more.unwrap_or_else(|_| panic!("only {lines:?}")).expect("the store goes on");
        }
    }

    async fn log_in(&self, form: String) -> u16 {
        let request = Request::post("/adfs/oauth2/token").header(header::HOST, "localhost").body(Body::from(form));
        self.send(request.expect("a request")).await.status
    }
}

#[tokio::test]
async fn disclosed_keys_are_audited_for_every_spelling_of_the_path() {
    let test_server = TestServer::new().await;
    test_server.create_workspace_with_cluster("g", "w").await;
    let account = test_server.account("g", "someaccount").await;
    for ending in ["listKeys", "listKeys/", "LISTKEYS///", "list%4Beys"] {
        let answer = test_server.request("POST", &format!("{account}/{ending}"), Value::Null).await;
        assert!(matches!(answer.status, 200 | 404), "{ending}: {answer:?}");
    }
    let lines = test_server.audit_entries(3).await;
    let granted = lines.iter().filter(|line| line.what == "request.granted" && line.resource == "g").count();
    assert!(granted >= 3, "{lines:?}");
}

#[tokio::test]
async fn issued_links_are_audited_once_per_period() {
    let test_server = TestServer::new().await;
    let own = test_server.create_workspace_with_cluster("g", "w").await;
    let path = format!("{own}/experiments/e/jobs/j");
    let account = test_server.account("g", "someaccount").await;
    let mut wanted = job(&format!("{own}/clusters/c"));
    wanted["properties"]["stdOutErrPathPrefix"] = json!("$AZ_BATCHAI_JOB_MOUNT_ROOT/x");
    wanted["properties"]["mountVolumes"] = json!({"azureFileShares": [{
        "accountName": "someaccount", "azureFileUrl": "https://someaccount.file.core.windows.net/myshare",
        "relativeMountPath": "x", "credentials": {"accountKey": "x"}
    }]});
    test_server.request("PUT", &path, wanted).await.is(202);
    for _ in 0..5 {
        let list = format!("{path}/listOutputFiles?outputdirectoryid=stdouterr");
        test_server.request("POST", &list, Value::Null).await.is(200);
    }
    test_server.request("POST", &format!("{account}/listKeys"), Value::Null).await.is(200);
    let lines = test_server.audit_entries(2).await;
    let given: Vec<_> = lines.iter().filter(|line| line.detail["path"].to_string().contains("listOutput")).collect();
    assert_eq!(given.len(), 1, "{lines:?}");
}

#[tokio::test]
async fn failed_logins_are_audited_without_unknown_names() {
    let test_server = TestServer::new().await;
    let form = |id: &str| format!("grant_type=client_credentials&client_id={id}&resource=x&client_secret=canary-wrong");
    let known = test_server.app.snapshot().principals.keys().next().expect("the administrator").clone();
    assert_eq!(test_server.log_in(form(&known)).await, 401);
    assert_eq!(test_server.log_in(form("canary-nobody")).await, 401);
    let lines = test_server.audit_entries(2).await;
    let tried: Vec<&Value> = lines.iter().rev().map(|line| &line.detail["tried"]).collect();
    assert_eq!(tried, [&json!(known), &Value::Null]);
    assert!(lines.iter().all(|line| line.actor == "anonymous" && line.detail["code"] == "invalid_client"), "{lines:?}");
    assert!(!format!("{lines:?}").contains("canary"), "{lines:?}");
}

#[tokio::test]
async fn nodes_with_invalid_credentials_are_rate_limited_by_address() {
    let mut test_server = TestServer::new().await;
    // A limit so low that even a slow machine exceeds it.
    let rates = Rates { per_address: 1, ..Rates::DEFAULT };
    test_server.api.limits = Arc::new(RateLimits::new(rates));
    let connect = |credential: &str| {
        let request = Request::get(CONNECT_PATH).header(header::HOST, "localhost");
        test_server.send(request.header(header::AUTHORIZATION, credential).body(Body::empty()).expect("a request"))
    };
    let first = connect("Bearer node:tvm-1_1-x-p:0:aaaa").await.is(401);
    assert!(first.headers.contains_key(corro_model::node::INSTANCE_HEADER), "{first:?}");
    let mut statuses = Vec::new();
    for _ in 0..1000 {
        statuses.push(connect("nonsense").await.status);
    }
    assert!(statuses.contains(&401) && statuses.contains(&429));
}

#[tokio::test]
async fn regenerated_keys_are_named_and_joins_need_a_token() {
    let test_server = TestServer::new().await;
    test_server.create_workspace_with_cluster("g", "w").await;
    let account = test_server.account("g", "someaccount").await;
    test_server.request("POST", &format!("{account}/regenerateKey"), json!({"keyName": "Key2"})).await.is(200);
    let filter = HistoryFilter { kind: Some("key".to_owned()), ..HistoryFilter::newest(9) };
    let lines = test_server.app.history(filter).await.expect("a history");
    let summaries: Vec<_> = lines.iter().map(|line| (line.what.as_str(), line.resource.as_str())).collect();
    assert_eq!(summaries, [("key.regenerated", "g/someaccount")]);
    assert_eq!(lines[0].detail["key"], "key2");
    let join = Request::post(corro_model::node::JOIN_PATH).header(header::HOST, "localhost").body(Body::empty());
    test_server.send(join.expect("a request")).await.refused(401, "AuthenticationFailed");
    assert!(test_server.audit_entries(1).await.iter().any(|line| line.detail["status"] == 401));
}
