//! Hosts: rights for tokens and maintenance, joining, and that secrets are returned once.

use axum::body::Body;
use axum::extract::Request;
use corro_model::host::{HOST_JOIN_PATH, HOST_PATH, JoinToken};
use http::header;
use serde_json::{Value, json};

use super::TestServer;

impl TestServer {
    /// Sends a request as a machine.
    async fn request_as_machine(&self, path: &str, bearer: Option<&str>, body: Value) -> (u16, Value) {
        let mut request = Request::post(path).header(header::HOST, "localhost");
        if let Some(bearer) = bearer {
            request = request.header(header::AUTHORIZATION, bearer);
        }
        let response = self.api.handle(request.body(Body::from(body.to_string())).expect("a request")).await;
        let status = response.status().as_u16();
        let bytes = axum::body::to_bytes(response.into_body(), 1 << 20).await.expect("a body");
        (status, serde_json::from_slice(&bytes).unwrap_or(Value::Null))
    }
}

#[tokio::test]
async fn owners_manage_hosts_and_readers_list_them() {
    let test_server = TestServer::new().await;
    let at = |rest: &str| format!("{}/providers/Corro/{rest}", test_server.subscription());
    test_server.request("POST", &at("hostTokens"), json!({})).await.refused(409, "HostsNotTaken");
    let front = crate::app::hosts::JoinEndpoint { url: "https://box:1".into(), ca_fingerprint: Some("ab".repeat(32)) };
    test_server.app.fleet.hosts.enable_join(front);
    let whole = test_server.subscription();
    let reader = test_server.principal("reader", "Reader", &[&whole]).await;
    let contributor = test_server.principal("contributor", "Contributor", &[&whole]).await;
    for who in [&reader, &contributor] {
        test_server.request_as(who, "POST", &at("hostTokens"), json!({})).await.refused(403, "AuthorizationFailed");
        test_server.request_as(who, "GET", &at("hostTokens"), Value::Null).await.refused(403, "AuthorizationFailed");
    }
    let response = test_server.request("POST", &at("hostTokens"), json!({"ttlSeconds": 0})).await;
    assert_eq!(response.status, 400, "{response:?}");
    let made = test_server.request("POST", &at("hostTokens"), json!({"ttlSeconds": 60})).await.is(200).body;
    let token = JoinToken::decode(made["token"].as_str().expect("a token")).expect("it can be read");
    assert_eq!((token.server.as_str(), token.ca_fingerprint), ("https://box:1", Some("ab".repeat(32))));
    let listed = test_server.request("GET", &at("hostTokens"), Value::Null).await.is(200).body.to_string();
    assert!(!listed.contains(token.secret.expose()), "{listed}");

    let inventory = json!({"cores": 4, "memoryBytes": 8u64 << 30, "version": "x"});
    let request = |secret: &str, name: &str| json!({"token": secret, "name": name, "inventory": inventory});
    let (status, body) = test_server.request_as_machine(HOST_JOIN_PATH, None, request("wrong", "a")).await;
    assert!(status == 401 && body.to_string().contains("not known to this server"), "{body}");
    let (status, _) =
        test_server.request_as_machine(HOST_JOIN_PATH, None, request(token.secret.expose(), "../a")).await;
    assert_eq!(status, 400);
    let (status, given) =
        test_server.request_as_machine(HOST_JOIN_PATH, None, request(token.secret.expose(), "Box")).await;
    assert_eq!(status, 200, "{given}");
    let (status, body) =
        test_server.request_as_machine(HOST_JOIN_PATH, None, request(token.secret.expose(), "box")).await;
    assert!(status == 409 && body.to_string().contains("has joined already"), "{body}");

    let bearer = format!("Bearer host:Box:{}", given["secret"].as_str().expect("a secret"));
    let report = json!({"inventory": inventory, "living": []});
    assert_eq!(test_server.request_as_machine(HOST_PATH, None, report.clone()).await.0, 401);
    assert_eq!(test_server.request_as_machine(HOST_PATH, Some("Bearer host:Box:guess"), report.clone()).await.0, 401);
    let (status, desired) = test_server.request_as_machine(HOST_PATH, Some(&bearer), report.clone()).await;
    assert_eq!((status, &desired["nodes"]), (200, &json!([])), "{desired}");

    let seen = test_server.request_as(&reader, "GET", &at("hosts"), Value::Null).await.is(200).body;
    assert_eq!((&seen["value"][0]["name"], &seen["value"][0]["state"]), (&json!("Box"), &json!("ready")), "{seen}");
    for (method, rest) in [("POST", "hosts/box/cordon"), ("POST", "hosts/box/drain"), ("DELETE", "hosts/box")] {
        test_server.request_as(&contributor, method, &at(rest), json!({})).await.refused(403, "AuthorizationFailed");
    }
    assert_eq!(test_server.request("POST", &at("hosts/BOX/cordon"), json!({})).await.is(200).body["state"], "cordoned");
    assert_eq!(
        test_server.request("POST", &at("hosts/box/drain"), json!({"now": true})).await.is(200).body["state"],
        "drained"
    );
    assert_eq!(test_server.request("POST", &at("hosts/box/uncordon"), json!({})).await.is(200).body["state"], "ready");
    test_server.request("GET", &at("hosts/other"), Value::Null).await.refused(404, "HostNotFound");
    // Removal voids the credential; the join token stays valid until it is revoked.
    test_server.request("DELETE", &at("hosts/box"), Value::Null).await.is(200);
    test_server.request("DELETE", &at("hosts/box"), Value::Null).await.is(204);
    assert_eq!(test_server.request_as_machine(HOST_PATH, Some(&bearer), report).await.0, 401);
    let id = made["id"].as_str().expect("an id");
    test_server.request("DELETE", &at(&format!("hostTokens/{id}")), Value::Null).await.is(200);
    assert_eq!(
        test_server.request_as_machine(HOST_JOIN_PATH, None, request(token.secret.expose(), "box")).await.0,
        401
    );

    let lines = test_server.app.history(corro_model::history::HistoryFilter::newest(100)).await.expect("a history");
    let kinds: Vec<&str> = lines.iter().map(|line| line.what.as_str()).collect();
    for what in ["hostToken.created", "hostToken.deleted", "host.created", "host.changed", "host.deleted"] {
        assert!(kinds.contains(&what), "{what} in {kinds:?}");
    }
    let text = format!("{lines:?}");
    assert!(!text.contains(token.secret.expose()) && !text.contains(given["secret"].as_str().expect("a secret")));
}
