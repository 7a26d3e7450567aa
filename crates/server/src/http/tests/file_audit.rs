//! History entries of the file service: caller, address, amounts.

use axum::body::Body;
use axum::extract::Request;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use corro_model::history::{HistoryEntry, HistoryFilter};
use corro_model::storage::shared_key;
use serde_json::{Value, json};

use super::TestServer;

impl TestServer {
    /// Sends a file request signed with one of the account's keys.
    async fn signed(&self, key: usize, method: &str, uri: &str, headers: &[(&str, &str)], body: &str) -> u16 {
        let keys = self.app.raw_account_keys("someaccount").expect("keys");
        self.signed_with(&keys[key], method, uri, headers, body).await
    }

    async fn signed_with(&self, key: &[u8], method: &str, uri: &str, headers: &[(&str, &str)], body: &str) -> u16 {
        let (date, length) = (httpdate::fmt_http_date(std::time::SystemTime::now()), body.len().to_string());
        let mut headers = headers.to_vec();
        headers.extend([("x-ms-date", date.as_str()), ("content-length", &length)]);
        let uri = format!("/someaccount{uri}");
        let (path, query) = uri.split_once('?').unwrap_or((&uri, ""));
        let request = shared_key::Request { method, path, query, account: "someaccount" };
        let authorization = shared_key::authorization(request, headers.iter().copied(), key);
        let builder = Request::builder().method(method).uri(&uri).header("authorization", authorization);
        let builder = headers.iter().fold(builder, |builder, (name, value)| builder.header(*name, *value));
        let request = builder.body(Body::from(body.to_owned())).expect("a request");
        self.api.handle(request).await.status().as_u16()
    }

    /// The entries of a kind, oldest first, once there are `n`; they are written in the background.
    async fn history_entries(&self, kind: &str, n: usize) -> Vec<HistoryEntry> {
        let filter = || HistoryFilter { kind: Some(kind.to_owned()), ..HistoryFilter::newest(100) };
        let mut changes = self.app.store.changes();
        loop {
            let mut history_entries = self.app.history(filter()).await.expect("a history");
            if history_entries.len() >= n {
                history_entries.reverse();
                return history_entries;
            }
            let more = tokio::time::timeout(std::time::Duration::from_secs(30), changes.changed()).await;
            more.unwrap_or_else(|_| panic!("only {history_entries:?}")).expect("the store goes on");
        }
    }
}

#[tokio::test]
async fn share_changes_have_entries_and_file_changes_summaries() {
    let test_server = TestServer::new().await;
    test_server.create_workspace_with_cluster("g", "w").await;
    test_server.account("g", "someaccount").await;
    assert_eq!(test_server.signed(0, "PUT", "/data?restype=share", &[], "").await, 201);
    test_server.history_entries("share", 1).await;
    assert_eq!(test_server.signed(1, "PUT", "/data?restype=share&comp=snapshot", &[], "").await, 201);
    test_server.history_entries("share", 2).await;
    let file = [("x-ms-type", "file"), ("x-ms-content-length", "3")];
    let range = [("x-ms-write", "update"), ("x-ms-range", "bytes=0-2")];
    for name in ["a", "b"] {
        assert_eq!(test_server.signed(0, "PUT", &format!("/data/{name}"), &file, "").await, 201);
        assert_eq!(test_server.signed(0, "PUT", &format!("/data/{name}?comp=range"), &range, "abc").await, 201);
    }
    assert_eq!(test_server.signed(0, "GET", "/data/a", &[], "").await, 200);
    assert_eq!(test_server.signed(0, "DELETE", "/data/nothere", &[], "").await, 404);
    test_server.files.flush_audit(false);
    test_server.files.flush_audit(true);
    let history_entries = test_server.history_entries("share", 3).await;
    let summaries: Vec<_> = history_entries.iter().map(|line| (line.what.as_str(), line.actor.as_str())).collect();
    let (one, two) = ("key:someaccount/key1", "key:someaccount/key2");
    assert_eq!(summaries, [("share.created", one), ("share.snapshot", two), ("share.written", one)]);
    assert!(
        history_entries.iter().all(|line| line.resource == "g/someaccount/data" && line.detail["from"] == "unknown")
    );
    let mut sums = history_entries[2].detail.clone();
    sums.as_object_mut().expect("an object").remove("from");
    assert_eq!(sums, json!({"filesCreated": 2, "rangesWritten": 2, "paths": ["a", "b"]}));
}

#[tokio::test]
async fn refused_requests_are_audited_and_links_identified_without_their_signature() {
    let test_server = TestServer::new().await;
    test_server.create_workspace_with_cluster("g", "w").await;
    test_server.account("g", "someaccount").await;
    assert_eq!(test_server.signed(0, "PUT", "/data?restype=share", &[], "").await, 201);
    let stranger = STANDARD.decode("AAAA").expect("base64");
    assert_eq!(test_server.signed_with(&stranger, "DELETE", "/data?restype=share", &[], "").await, 403);
    let history_entries = test_server.history_entries("request", 1).await;
    let detail = &history_entries[0].detail;
    assert_eq!(
        (history_entries[0].actor.as_str(), &detail["status"]),
        ("anonymous", &json!(403)),
        "{history_entries:?}"
    );
    assert_eq!((&detail["path"], &detail["method"]), (&json!("/someaccount/data"), &json!("DELETE")));

    let keys = test_server.app.raw_account_keys("someaccount").expect("keys");
    let expires = test_server.app.now().seconds() + 600;
    let query = corro_model::storage::sas::read_link_query(&keys[0], "someaccount", "data", "f", expires);
    let query = query.expect("a link");
    let uri = format!("/someaccount/data/f?{query}");
    let request = Request::builder().method("PUT").uri(uri).header("x-ms-type", "file").header("content-length", "0");
    let refused = test_server.api.handle(request.body(Body::empty()).expect("a request")).await;
    assert_eq!(refused.status().as_u16(), 403);
    let history_entries = test_server.history_entries("request", 2).await;
    let actor = history_entries[1].actor.strip_prefix("link:").expect("a link").to_owned();
    assert_eq!(actor.len(), 8);
    let everything = test_server.app.history(HistoryFilter::newest(100)).await.expect("a history");
    let signature = query.split("sig=").nth(1).expect("a signature").split('&').next().expect("text").to_owned();
    assert!(!serde_json::to_string(&everything).expect("plain").contains(&signature));
    assert!(history_entries.iter().all(|line| line.detail["unsaid"] == Value::Null));
}
