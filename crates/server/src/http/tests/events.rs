//! Event stream: in order, from a given event on, limited to what the reader may read.

use std::time::Duration;

use axum::body::{Body, BodyDataStream};
use axum::extract::Request;
use futures_util::StreamExt;
use http::header;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::{TestServer, job};

/// Test timeout, longer than any machine needs.
const DEADLINE: Duration = Duration::from_secs(60);

struct EventReader {
    body: BodyDataStream,
    text: String,
}

impl TestServer {
    /// Publishes events until the returned sender is dropped.
    fn publish_events(&self) -> watch::Sender<bool> {
        let (stop, stopping) = watch::channel(false);
        tokio::spawn(self.app.telemetry.events.clone().watch(self.app.clone(), stopping));
        stop
    }

    async fn open_stream(&self, token: &str, target: &str, headers: &[(&str, &str)]) -> EventReader {
        let mut request = Request::get(target).header(header::HOST, "localhost");
        request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let response = self.api.handle(request.body(Body::empty()).expect("a request")).await;
        assert_eq!(response.status(), 200);
        EventReader { body: response.into_body().into_data_stream(), text: String::new() }
    }

    async fn events_so_far(&self, token: &str) -> Vec<Value> {
        self.open_stream(token, "/events?after=0&follow=false", &[]).await.rest().await
    }
}

impl EventReader {
    /// The next non-empty line; `None` at the end of the stream.
    async fn line(&mut self) -> Option<String> {
        tokio::time::timeout(DEADLINE, self.next_line()).await.expect("something in time")
    }

    async fn next_line(&mut self) -> Option<String> {
        loop {
            if let Some((line, rest)) = self.text.split_once('\n') {
                let (line, rest) = (line.to_owned(), rest.to_owned());
                self.text = rest;
                if !line.is_empty() {
                    return Some(line);
                }
                continue;
            }
            let piece = self.body.next().await?;
            self.text += std::str::from_utf8(&piece.expect("no error")).expect("text");
        }
    }

    async fn event(&mut self) -> Value {
        serde_json::from_str(&self.line().await.expect("an event")).expect("JSON")
    }

    async fn rest(mut self) -> Vec<Value> {
        let mut events = Vec::new();
        while let Some(line) = self.line().await {
            events.push(serde_json::from_str(&line).expect("JSON"));
        }
        events
    }
}

#[tokio::test]
async fn events_arrive_in_order_and_readers_resume() {
    let test_server = TestServer::new().await;
    let stop = test_server.publish_events();
    let mut live = test_server.open_stream(&test_server.token, "/events", &[]).await;
    let start = live.event().await;
    assert_eq!(start["kind"], "start");
    let at = test_server.create_workspace_with_cluster("G", "W").await;
    test_server.request("PUT", &format!("{at}/experiments/e/jobs/J1"), job(&format!("{at}/clusters/c"))).await.is(202);
    test_server.request("DELETE", &format!("{at}/experiments/e/jobs/J1"), Value::Null).await.is(202);
    let mut seen = Vec::new();
    while seen.last().is_none_or(|event: &Value| event["kind"] != "job" || event["change"] != "changed") {
        seen.push(live.event().await);
    }
    let short = |event: &Value| format!("{} {} {}", event["kind"], event["change"], event["resource"]).replace('"', "");
    let summaries: Vec<String> = seen.iter().map(short).collect();
    assert_eq!(summaries[..2], ["group created g", "workspace created g/w"]);
    assert!(summaries.contains(&"job created g/w/e/j1".to_owned()), "{summaries:?}");
    let made = seen.iter().find(|event| event["kind"] == "job").expect("the job");
    assert_eq!((&made["name"], &made["state"], &made["cluster"]), (&json!("J1"), &json!("queued"), &json!("g/w/c")));
    let id = made["resourceId"].as_str().expect("an id");
    assert!(id.ends_with("/resourceGroups/g/providers/Microsoft.BatchAI/workspaces/w/experiments/e/jobs/j1"), "{id}");
    // Continue after the third event, by header or by query.
    let third = seen[2]["id"].as_str().expect("an id");
    let mut again = test_server.open_stream(&test_server.token, &format!("/events?after={third}"), &[]).await;
    assert_eq!((again.event().await["kind"].as_str(), again.event().await), (Some("start"), seen[3].clone()));
    let resume_headers = [("accept", "text/event-stream"), ("last-event-id", third)];
    let mut again = test_server.open_stream(&test_server.token, "/events?after=0", &resume_headers).await;
    assert_eq!(again.line().await.as_deref(), Some("retry: 1000"));
    let texts = [again.line().await, again.line().await, again.line().await].map(|line| line.expect("a line"));
    assert_eq!(texts[2], format!("id: {}", seen[3]["id"].as_str().expect("an id")));
    let all = test_server.events_so_far(&test_server.token).await;
    assert_eq!(all[1..=seen.len()], seen[..]);
    drop(stop);
    assert_eq!(live.line().await, None, "a server that stops ends its streams");
}

#[tokio::test]
async fn readers_get_only_events_they_may_read() {
    let test_server = TestServer::new().await;
    let _stop = test_server.publish_events();
    test_server.create_workspace_with_cluster("mine", "w").await;
    test_server.create_workspace_with_cluster("theirs", "w").await;
    test_server.account("theirs", "someaccount").await;
    let own = test_server.workspace("mine", "w");
    let token = test_server.principal("reader", "Reader", &[&own]).await;
    let principals = format!("{}/providers/Corro/principals", test_server.subscription());
    let without_role = json!({"displayName": "n", "role": "Reader", "skipAssignment": true});
    let nobody = test_server.request("POST", &principals, without_role).await.is(200).body;
    let mut all = test_server.events_so_far(&test_server.token).await;
    while !all.iter().any(|event| event["kind"] == "account") {
        tokio::task::yield_now().await;
        all = test_server.events_so_far(&test_server.token).await;
    }
    assert!(!all.iter().any(|event| event.to_string().contains("principal")), "{all:?}");
    let heard = test_server.events_so_far(&token).await;
    let kinds: Vec<&str> = heard.iter().filter_map(|event| event["kind"].as_str()).collect();
    assert_eq!(kinds[..3], ["start", "workspace", "experiment"], "{heard:?}");
    assert!(heard.iter().skip(1).all(|event| event["resource"].as_str().is_some_and(|r| r.starts_with("mine/w"))));
    let secret = corro_model::Secret::new(nobody["password"].as_str().expect("text"));
    let token = test_server.app.issue_token(nobody["appId"].as_str().expect("text"), &secret, "x").expect("a token");
    assert_eq!(test_server.events_so_far(token.access_token.expose()).await.len(), 1, "the start, and nothing else");
    // The stream requires a login.
    let request = Request::get("/events").header(header::HOST, "localhost").body(Body::empty()).expect("a request");
    test_server.send(request).await.refused(401, "AuthenticationFailed");
    test_server.request("GET", "/events?follow=maybe", Value::Null).await.refused(400, "InvalidQueryParameterValue");
}

#[tokio::test]
async fn a_reader_that_fell_behind_is_told_about_the_gap() {
    let test_server = TestServer::new().await;
    let _stop = test_server.publish_events();
    for unknown in ["1234-7", "nonsense", "-", "0-0"] {
        let mut late = test_server.open_stream(&test_server.token, &format!("/events?after={unknown}"), &[]).await;
        assert_eq!(late.event().await["kind"], "missed", "{unknown}");
    }
    let mut slow = test_server.open_stream(&test_server.token, "/events", &[]).await;
    assert_eq!(slow.event().await["kind"], "start");
    let group = test_server.group("g");
    test_server.request("PUT", &group, json!({"location": "eastus"})).await.is(201);
    let first = slow.event().await["id"].as_str().expect("an id").to_owned();
    // More changes than the buffer holds: only the last ones remain.
    let commit = test_server.app.store.commit(|txn| {
        for number in 0..20_000 {
            let record = corro_store::GroupRecord {
                name: "n".to_owned(),
                location: "eastus".to_owned(),
                tags: None,
                created: corro_model::Timestamp::default(),
                deleting: false,
            };
            txn.put(corro_model::GroupKey::new(&format!("n{number}")), record);
        }
        Ok::<_, corro_model::ApiError>(())
    });
    commit.await.expect("committed");
    assert_eq!(slow.event().await["kind"], "missed");
    let mut late = test_server.open_stream(&test_server.token, &format!("/events?after={first}"), &[]).await;
    assert_eq!(late.event().await["kind"], "missed");
    let kept = test_server.events_so_far(&test_server.token).await.len();
    assert!(kept > 10_000 && kept < 20_000, "{kept}");
}
