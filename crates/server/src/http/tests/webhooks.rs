//! Jobs and experiments with a webhook: what is refused, what responses have, and what is stored.

use std::sync::Arc;

use corro_model::batchai::JobCreateParameters;
use corro_model::webhook::AddressRules;
use serde_json::{Value, json};

use super::{TestServer, job};
use crate::app::{App, AppConfig};

const URL: &str = "https://me:canary-login@hooks.example:8443/canary-path?canary-query";

fn with_webhook(own: &str, webhook: &Value) -> Value {
    let mut body = job(&format!("{own}/clusters/c"));
    body["properties"]["notifications"] = json!({ "webhook": webhook });
    body
}

#[tokio::test]
async fn url_and_key_of_a_webhook_are_sealed_and_never_returned() {
    let test_server = TestServer::new().await;
    let own = test_server.create_workspace_with_cluster("g", "w").await;
    let path = format!("{own}/experiments/e/jobs/j");
    let put = |webhook: Value| test_server.request("PUT", &path, with_webhook(&own, &webhook));
    let webhook = json!({"url": URL, "events": ["failed"], "secret": "canary-key"});
    put(webhook.clone()).await.is(202);
    let shown = test_server.request("GET", &path, Value::Null).await.is(200).body;
    let expected = json!({"webhook": {"url": "https://hooks.example:8443/***", "events": ["failed"]}});
    assert_eq!(shown["properties"]["notifications"], expected);
    // The same request again changes nothing; another path, key or list of events is a conflict.
    put(webhook).await.is(200);
    for (other, part) in [
        (json!({"url": format!("{URL}x"), "events": ["failed"], "secret": "canary-key"}), "the value of a secret"),
        (json!({"url": URL, "events": ["failed"], "secret": "canary-other"}), "the value of a secret"),
        (json!({"url": URL, "events": ["stopped"], "secret": "canary-key"}), "webhook.events"),
    ] {
        let message = put(other).await.refused(409, "JobAlreadyExists");
        assert!(message.contains(part) && !message.contains("canary"), "{message}");
    }
    let stored = test_server.app.snapshot().jobs.values().map(|job| format!("{job:?}")).collect::<String>();
    assert!(stored.contains("webhook: Some(Ciphertext"), "{stored}");
    let files = std::fs::read_dir(test_server.path()).expect("a directory").flatten();
    for file in files.filter(|file| file.file_name().to_string_lossy().starts_with("corro.db")) {
        let bytes = std::fs::read(file.path()).expect("a file");
        assert!(!bytes.windows(6).any(|window| window == b"canary"), "{:?}", file.path());
    }
}

#[tokio::test]
async fn an_experiment_has_a_webhook_until_it_is_removed() {
    let test_server = TestServer::new().await;
    let own = test_server.create_workspace_with_cluster("g", "w").await;
    let experiment = format!("{own}/experiments/e");
    let notifications = format!("{experiment}/notifications");
    let put = |webhook: Value| test_server.request("PUT", &notifications, webhook);
    let with = |url: &str| json!({"webhook": {"url": url, "events": ["failed"], "secret": "canary-key"}});
    let shown = json!({"webhook": {"url": "https://hooks.example:8443/***", "events": ["failed"]}});
    assert_eq!(put(with(URL)).await.is(200).body["properties"]["notifications"], shown);
    // Creating it again changes nothing, as in the service.
    test_server.request("PUT", &experiment, Value::Null).await.is(200);
    let read = test_server.request("GET", &experiment, Value::Null).await.is(200).body;
    assert_eq!(read["properties"]["notifications"], shown);
    assert_eq!(read["properties"]["provisioningState"], "succeeded", "{read}");
    for (body, field, part) in [
        (with("http://127.0.0.1/canary"), "notifications.webhook.url", "a loopback address"),
        (with("gopher://canary"), "notifications.webhook.url", "neither https nor http"),
        (json!({"webhook": {"url": URL, "events": []}}), "notifications.webhook.events", "the list is empty"),
    ] {
        let answer = put(body).await;
        let target = answer.body["error"]["target"].as_str().unwrap_or_default().to_owned();
        let message = answer.refused(400, "InvalidPropertyValue");
        assert!(target == field && message.contains(part) && !message.contains("canary"), "{target}: {message}");
    }
    let removed = put(json!({})).await.is(200).body;
    assert_eq!(removed["properties"].get("notifications"), None, "{removed}");
    let missing = test_server.request("PUT", &format!("{own}/experiments/none/notifications"), with(URL)).await;
    assert_eq!(missing.status, 404, "{missing:?}");
}

#[tokio::test]
async fn a_webhook_at_an_address_that_is_not_public_is_refused() {
    let test_server = TestServer::new().await;
    let own = test_server.create_workspace_with_cluster("g", "w").await;
    let refused = async |url: &str| {
        let body = with_webhook(&own, &json!({ "url": url }));
        let answer = test_server.request("PUT", &format!("{own}/experiments/e/jobs/j"), body).await;
        let target = answer.body["error"]["target"].as_str().unwrap_or_default().to_owned();
        (target, answer.refused(400, "InvalidPropertyValue"))
    };
    let field = "properties.notifications.webhook.url";
    for (host, kind) in [
        ("127.0.0.1", "a loopback address"),
        ("localhost", "a loopback address"),
        ("LocalHost.", "a loopback address"),
        ("my.localhost:8080", "a loopback address"),
        ("[::ffff:127.0.0.1]:80", "a loopback address"),
        ("10.1.2.3", "a private address"),
        ("169.254.169.254", "a link-local address"),
        ("[fd00::1]", "a private address"),
    ] {
        let (target, message) = refused(&format!("http://{host}/canary")).await;
        assert_eq!(target, field);
        assert!(message.contains(kind) && message.contains("--webhook-allow"), "{host}: {message}");
        assert!(!message.contains("canary"), "{message}");
    }
    let (target, message) = refused("gopher://canary").await;
    assert!(target == field && message.contains("neither https nor http"), "{target}: {message}");

    let check = |webhooks: Option<AddressRules>, url: &str| {
        let config = AppConfig { webhooks, ..(*test_server.app.config).clone() };
        let app = App { config: Arc::new(config), ..test_server.app.clone() };
        let job: JobCreateParameters =
            serde_json::from_value(with_webhook(&own, &json!({ "url": url }))).expect("a literal");
        app.check_webhook("properties.notifications", job.properties.notifications.as_ref())
            .map_err(|error| error.message)
    };
    let off = check(None, "https://hooks.example/x").expect_err("refused");
    assert!(off.contains("turned webhooks off"), "{off}");
    let allowed =
        || AddressRules { allowed: ["10.0.0.0/8", "127.0.0.1"].map(|range| range.parse().expect("a range")).to_vec() };
    for host in ["10.1.2.3", "localhost", "hooks.example"] {
        check(Some(allowed()), &format!("http://{host}/x")).expect("allowed");
    }
    check(Some(allowed()), "http://127.0.0.2/x").expect_err("refused");
}
