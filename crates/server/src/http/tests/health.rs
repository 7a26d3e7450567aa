//! Metrics for readers of the subscription; health and readiness for everybody.

use axum::body::Body;
use axum::extract::Request;
use http::header;
use http_body_util::BodyExt;
use serde_json::Value;

use super::TestServer;

impl TestServer {
    /// Sends a GET; returns status, media type and text.
    async fn get_text(&self, path: &str, headers: &[(&str, &str)]) -> (u16, String, String) {
        let mut request = Request::get(path).header(header::HOST, "localhost");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let (parts, body) = self.api.handle(request.body(Body::empty()).expect("a request")).await.into_parts();
        let text = String::from_utf8(body.collect().await.expect("a body").to_bytes().to_vec()).expect("text");
        let media = parts.headers.get(header::CONTENT_TYPE).and_then(|media| media.to_str().ok()).unwrap_or_default();
        (parts.status.as_u16(), media.to_owned(), text)
    }
}

#[tokio::test]
async fn metrics_are_for_readers_of_the_subscription() {
    let test_server = TestServer::new().await;
    let own = test_server.create_workspace_with_cluster("g", "w").await;
    let bearer = |token: &str| format!("Bearer {token}");
    assert_eq!(test_server.get_text("/metrics", &[]).await.0, 401);
    let part = bearer(&test_server.principal("part", "Owner", &[&own]).await);
    let (status, _, text) = test_server.get_text("/metrics", &[("authorization", &part)]).await;
    assert_eq!(status, 403, "{text}");
    // As Prometheus logs in: HTTP Basic plus the configured form fields.
    let principals = format!("{}/providers/Corro/principals", test_server.subscription());
    let wanted = serde_json::json!({"displayName": "prometheus", "role": "Reader"});
    let made = test_server.request("POST", &principals, wanted).await.is(200).body;
    let shown = format!("{}:{}", made["appId"].as_str().expect("text"), made["password"].as_str().expect("text"));
    let shown = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, shown);
    let login = Request::post("/adfs/oauth2/token")
        .header(header::HOST, "localhost")
        .header(header::AUTHORIZATION, format!("Basic {shown}"))
        .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded")
        .body(Body::from("grant_type=client_credentials&resource=corro"));
    let token = test_server.send(login.expect("a request")).await.is(200).body;
    assert_eq!(token["token_type"], "Bearer");
    let reader = bearer(token["access_token"].as_str().expect("a token"));
    test_server.request("GET", &own, Value::Null).await.is(200);
    let (status, media, text) = test_server.get_text("/metrics", &[("authorization", &reader)]).await;
    assert_eq!((status, media.as_str()), (200, "text/plain; version=0.0.4; charset=utf-8"));
    for line in [
        "corro_nodes{cluster=\"g/w/c\",state=\"idle\"} 0",
        "corro_jobs{state=\"queued\"} 0",
        "corro_http_requests_total{route=\"watch\",code=\"4xx\"} 2",
        "corro_agents_connected 0",
        "corro_event_streams 0",
    ] {
        assert!(text.lines().any(|found| found == line), "{line}\n{text}");
    }
    let number = |name: &str| {
        let line = text.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("{name}\n{text}"));
        line.rsplit(' ').next().and_then(|number| number.parse::<f64>().ok()).expect("a number")
    };
    assert!(number("corro_store_commits_total") >= 5.0 && number("process_resident_memory_bytes") > 1e6);
    assert!(number("corro_http_request_duration_seconds_count{route=\"write\"}") >= 5.0);
    assert!(!text.contains(made["password"].as_str().expect("text")));
    let open = [("authorization", reader.as_str()), ("accept", "application/openmetrics-text; version=1.0.0")];
    let (_, media, text) = test_server.get_text("/metrics", &open).await;
    assert!(media.starts_with("application/openmetrics-text") && text.ends_with("# EOF\n"), "{media}");
}

#[tokio::test]
async fn health_and_readiness_are_public() {
    let test_server = TestServer::new().await;
    let ok = (200, "ok\n".to_owned());
    let get = |path: &'static str| async {
        let (status, _, text) = test_server.get_text(path, &[]).await;
        (status, text)
    };
    assert_eq!(get("/healthz").await, ok);
    // The fixture runs no reconciler.
    assert_eq!(get("/readyz").await, (503, "not ready: starting\n".to_owned()));
    test_server.app.telemetry.http_counters.record_pass(test_server.app.now());
    assert_eq!(get("/readyz").await, ok);
    test_server.app.telemetry.http_counters.record_pass(corro_model::Timestamp::from_millis(1));
    assert_eq!(get("/readyz").await, (503, "not ready: reconciler\n".to_owned()));
}
