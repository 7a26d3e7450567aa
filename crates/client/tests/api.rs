//! The client against a scripted server: login, errors, pages and the three styles of long-running operations.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Bytes;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use corro_client::{Client, ClientError, Profile};
use corro_model::Secret;
use corro_model::arm::GroupCreateParameters;
use corro_model::ops::{
    ExperimentsCreate, GroupsCheck, GroupsCreate, GroupsDelete, GroupsGet, GroupsList, JobsTerminate, NoBody,
    WorkspacesGet,
};
use serde_json::json;

/// A response: status, headers, body. `BASE` in a header becomes the server's address.
type ScriptedResponse = (u16, Vec<(&'static str, String)>, String);

#[derive(Default)]
struct Script {
    base: String,
    /// Responses by `METHOD path?query`, used in order; the last one repeats.
    responses: HashMap<String, Vec<ScriptedResponse>>,
    seen: Vec<String>,
    tokens: u32,
    /// Tokens with smaller numbers are refused.
    oldest_token: u32,
}

type Shared = Arc<Mutex<Script>>;

struct Server {
    script: Shared,
    client: Client,
}

async fn serve() -> Server {
    let listener = tokio::net::TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).await.expect("a port");
    let base = format!("http://{}", listener.local_addr().expect("bound"));
    let script: Shared = Arc::new(Mutex::new(Script { base: base.clone(), ..Script::default() }));
    let router = Router::new().fallback(respond).with_state(script.clone());
    tokio::spawn(async move { axum::serve(listener, router).await });
    Server { script, client: Client::new(&profile(&base)).expect("a client") }
}

fn profile(server: &str) -> Profile {
    Profile {
        server: server.to_owned(),
        subscription: "sub".to_owned(),
        tenant: "t".to_owned(),
        client_id: "me & you".to_owned(),
        certificate_authority: None,
        data_directory: None,
        client_secret: Secret::new("p+w"),
    }
}

async fn respond(State(script): State<Shared>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let body: Bytes = axum::body::to_bytes(body, 1 << 20).await.expect("a body");
    let mut script = script.lock().expect("not poisoned");
    let line = format!("{} {}", parts.method, parts.uri);
    if line == "POST /adfs/oauth2/token" {
        let form = String::from_utf8_lossy(&body).into_owned();
        assert!(form.contains("client_id=me%20%26%20you") && form.contains("client_secret=p%2Bw"), "{form}");
        script.tokens += 1;
        let token = json!({"token_type": "Bearer", "expires_in": "3600", "expires_on": "0", "not_before": "0",
                           "resource": "r", "access_token": format!("token-{}", script.tokens)});
        return token.to_string().into_response();
    }
    let bearer = parts.headers.get("authorization").and_then(|value| value.to_str().ok()).unwrap_or_default();
    let number: u32 = bearer.strip_prefix("Bearer token-").and_then(|number| number.parse().ok()).unwrap_or(0);
    if number < script.oldest_token.max(1) {
        return (
            StatusCode::UNAUTHORIZED,
            json!({"error": {"code": "AuthenticationFailed", "message": "no"}}).to_string(),
        )
            .into_response();
    }
    script.seen.push(format!("{line} {}", String::from_utf8_lossy(&body)).trim().to_owned());
    let base = script.base.clone();
    let Some(responses) = script.responses.get_mut(&line) else {
        return (StatusCode::NOT_FOUND, format!("nothing is scripted for {line}")).into_response();
    };
    let (status, headers, body) = if responses.len() > 1 { responses.remove(0) } else { responses[0].clone() };
    let mut response = Response::builder().status(status);
    for (name, value) in headers {
        response = response.header(name, value.replace("BASE", &base));
    }
    response.body(body.replace("BASE", &base).into()).expect("a response")
}

impl Server {
    fn on(&self, line: &str, status: u16, headers: &[(&'static str, &str)], body: &str) {
        let headers = headers.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
        let mut script = self.script.lock().expect("not poisoned");
        script.responses.entry(line.to_owned()).or_default().push((status, headers, body.to_owned()));
    }

    fn seen(&self) -> Vec<String> {
        self.script.lock().expect("not poisoned").seen.clone()
    }

    fn tokens(&self) -> u32 {
        self.script.lock().expect("not poisoned").tokens
    }
}

const GROUP: &str = "/subscriptions/sub/resourceGroups/g?api-version=2018-05-01";
const BODY: &str = r#"{"id":"/subscriptions/sub/resourceGroups/g","name":"g","location":"l","properties":{"provisioningState":"Succeeded"}}"#;

#[tokio::test]
async fn one_login_serves_many_requests_and_is_renewed_when_refused() {
    let server = serve().await;
    server.on(&format!("GET {GROUP}"), 200, &[], BODY);
    let get = || server.client.get::<GroupsGet>(&[("group", "g")]);
    let (first, second) = tokio::join!(get(), get());
    assert_eq!((first.expect("found").name.as_str(), second.expect("found").name.as_str()), ("g", "g"));
    assert_eq!(server.tokens(), 1);

    // The first token is refused, as after a restart of the server.
    server.script.lock().expect("not poisoned").oldest_token = 2;
    get().await.expect("found again");
    assert_eq!(server.tokens(), 2);

    server.script.lock().expect("not poisoned").oldest_token = 100;
    assert_eq!(get().await.expect_err("refused for good").status(), Some(401));
}

#[tokio::test]
async fn bodies_and_queries_are_sent() {
    let server = serve().await;
    server.on(&format!("PUT {GROUP}"), 201, &[], BODY);
    let parameters = GroupCreateParameters { location: "l".into(), tags: None };
    server.client.call::<GroupsCreate>(&[("group", "g")], &[], &parameters).await.expect("made");
    server.on(&format!("GET {GROUP}&a%5B=x%20%26"), 200, &[], BODY);
    server.client.call::<GroupsGet>(&[("group", "g")], &[("a%5B", "x &")], &NoBody {}).await.expect("found");
    assert_eq!(server.seen(), [format!("PUT {GROUP} {{\"location\":\"l\"}}"), format!("GET {GROUP}&a%5B=x%20%26")]);
}

#[tokio::test]
async fn errors_carry_status_code_and_message() {
    let server = serve().await;
    server.on(
        &format!("GET {GROUP}"),
        404,
        &[],
        r#"{"error":{"code":"ResourceGroupNotFound","message":"no g","target":"t"}}"#,
    );
    let error = server.client.get::<GroupsGet>(&[("group", "g")]).await.expect_err("missing");
    let api = error.api().expect("the server's own");
    assert_eq!((api.status, api.code.as_str(), api.message.as_str()), (404, "ResourceGroupNotFound", "no g"));
    assert_eq!(api.target.as_deref(), Some("t"));
    assert!(server.client.find::<GroupsGet>(&[("group", "g")]).await.expect("no error").is_none());
    assert!(!server.client.exists::<GroupsCheck>(&[("group", "other")]).await.expect("no error"));
    server.on(&format!("HEAD {GROUP}"), 204, &[], "");
    assert!(server.client.exists::<GroupsCheck>(&[("group", "g")]).await.expect("no error"));

    let error =
        server.client.get::<WorkspacesGet>(&[("group", "g"), ("workspace", "w")]).await.expect_err("unscripted");
    assert!(error.to_string().contains("nothing is scripted"), "{error}");
    server.on(&format!("GET {GROUP}").replace("/g?", "/odd?"), 200, &[], "[]");
    let error = server.client.get::<GroupsGet>(&[("group", "odd")]).await.expect_err("not a group");
    assert!(matches!(error, ClientError::UnexpectedAnswer { operation: "ResourceGroups_Get", .. }), "{error:?}");
}

#[tokio::test]
async fn every_page_is_read_on_the_configured_server() {
    let server = serve().await;
    let list = "/subscriptions/sub/resourceGroups?api-version=2018-05-01";
    // The link names another host: its path is used, its host is ignored.
    let page = format!(r#"{{"value":[{BODY}],"nextLink":"http://elsewhere.example/more?page=2"}}"#);
    server.on(&format!("GET {list}"), 200, &[], &page);
    server.on("GET /more?page=2", 200, &[], &format!(r#"{{"value":[{BODY},{BODY}]}}"#));
    let groups = server.client.list::<GroupsList, _>(&[], &[]).await.expect("listed");
    assert_eq!(groups.len(), 3);
}

#[tokio::test]
async fn operations_behind_an_async_url_end_with_the_resource() {
    let server = serve().await;
    let path = "/subscriptions/sub/resourceGroups/g/providers/Microsoft.BatchAI/workspaces/w/experiments/e";
    let url = format!("{path}?api-version=2018-05-01");
    let experiment = r#"{"id":"i","name":"e","type":"t","properties":{"creationTime":"2018-06-07T21:16:00Z",
        "provisioningState":"succeeded","provisioningStateTransitionTime":"2018-06-07T21:16:00Z"}}"#;
    server.on(&format!("PUT {url}"), 202, &[("azure-asyncoperation", "BASE/op?x=1"), ("retry-after", "0")], "");
    server.on("GET /op?x=1", 200, &[("retry-after", "0")], r#"{"status":"InProgress"}"#);
    server.on("GET /op?x=1", 200, &[], r#"{"status":"succeeded"}"#);
    server.on(&format!("GET {url}"), 200, &[], experiment);
    let names = [("group", "g"), ("workspace", "w"), ("experiment", "e")];
    let started = Instant::now();
    let made = server.client.run::<ExperimentsCreate>(&names, &NoBody {}).await.expect("made");
    assert_eq!(made.name, "e");
    assert!(started.elapsed() >= Duration::from_millis(40), "two polls, each after at least 20 ms");
    let expected = [format!("PUT {url}"), "GET /op?x=1".to_owned(), "GET /op?x=1".to_owned(), format!("GET {url}")];
    assert_eq!(server.seen(), expected);
}

#[tokio::test]
async fn a_failed_operation_has_its_error() {
    let server = serve().await;
    let path =
        "/subscriptions/sub/resourceGroups/g/providers/Microsoft.BatchAI/workspaces/w/experiments/e/jobs/j/terminate";
    server.on(
        &format!("POST {path}?api-version=2018-05-01"),
        202,
        &[("azure-asyncoperation", "BASE/op"), ("retry-after", "0")],
        "",
    );
    server.on("GET /op", 200, &[], r#"{"status":"Failed","error":{"code":"Broken","message":"it broke"}}"#);
    let names = [("group", "g"), ("workspace", "w"), ("experiment", "e"), ("job", "j")];
    let error = server.client.run::<JobsTerminate>(&names, &NoBody {}).await.expect_err("failed");
    let api = error.api().expect("the server's own");
    assert_eq!((api.code.as_str(), api.message.as_str()), ("Broken", "it broke"));
}

#[tokio::test]
async fn operations_behind_a_location_end_with_its_response() {
    let server = serve().await;
    server.on(&format!("DELETE {GROUP}"), 202, &[("location", "BASE/where"), ("retry-after", "0")], "");
    server.on("GET /where", 202, &[("location", "BASE/there"), ("retry-after", "0")], "");
    server.on("GET /there", 200, &[], "");
    server.client.run::<GroupsDelete>(&[("group", "g")], &NoBody {}).await.expect("deleted");
    assert_eq!(server.seen(), [format!("DELETE {GROUP}"), "GET /where".to_owned(), "GET /there".to_owned()]);
}

#[tokio::test]
async fn a_resource_that_is_still_being_created_is_asked_again() {
    let server = serve().await;
    server.on(&format!("PUT {GROUP}"), 200, &[("retry-after", "0")], &BODY.replace("Succeeded", "creating"));
    server.on(&format!("GET {GROUP}"), 200, &[("retry-after", "0")], &BODY.replace("Succeeded", "Creating"));
    server.on(&format!("GET {GROUP}"), 200, &[], BODY);
    let parameters = GroupCreateParameters { location: "l".into(), tags: None };
    let group = server.client.run::<GroupsCreate>(&[("group", "g")], &parameters).await.expect("made");
    assert_eq!(group.properties.provisioning_state, "Succeeded");
    assert_eq!(server.seen().len(), 3);
}

#[tokio::test]
async fn requests_wait_for_a_restarted_server_and_report_it_once() {
    static NOTICES: AtomicU32 = AtomicU32::new(0);
    let server = serve().await;
    let busy = r#"{"error": {"code": "Busy", "message": "starting"}}"#;
    let now = ("retry-after", "0");
    server.on(&format!("PUT {GROUP}"), 201, &[("azure-asyncoperation", "BASE/op"), now], "");
    server.on("GET /op", 503, &[], busy);
    server.on("GET /op", 503, &[], busy);
    server.on("GET /op", 200, &[now], r#"{"status": "InProgress"}"#);
    server.on("GET /op", 200, &[now], r#"{"status": "Succeeded"}"#);
    server.on(&format!("GET {GROUP}"), 502, &[], "");
    server.on(&format!("GET {GROUP}"), 200, &[], BODY);
    let client = server.client.clone().with_absence_notice(|| {
        NOTICES.fetch_add(1, Ordering::SeqCst);
    });
    let parameters = GroupCreateParameters { location: "l".into(), tags: None };
    let group = client.run::<GroupsCreate>(&[("group", "g")], &parameters).await.expect("made");
    assert_eq!((group.name.as_str(), server.seen().len(), NOTICES.load(Ordering::SeqCst)), ("g", 7, 1));
    // A permanent error is not retried, and the first request is never sent twice.
    server.on(&format!("DELETE {GROUP}"), 503, &[], busy);
    let error = client.run::<GroupsDelete>(&[("group", "g")], &NoBody {}).await.expect_err("away from the start");
    assert_eq!((error.status(), server.seen().len()), (Some(503), 8));
}

#[tokio::test]
async fn a_failed_creation_is_an_error() {
    let parameters = GroupCreateParameters { location: "l".into(), tags: None };
    for (state, first) in [("failed", "creating"), ("Canceled", "creating"), ("Failed", "Failed")] {
        let server = serve().await;
        server.on(&format!("PUT {GROUP}"), 200, &[("retry-after", "0")], &BODY.replace("Succeeded", first));
        server.on(&format!("GET {GROUP}"), 200, &[], &BODY.replace("Succeeded", state));
        let error = server.client.run::<GroupsCreate>(&[("group", "g")], &parameters).await.expect_err(state);
        let message = error.api().expect("the server's own").message.clone();
        assert!(message.contains(&format!("'{}'", state.to_lowercase())), "{message}");
    }
}

#[tokio::test]
async fn an_unreachable_server_is_a_distinct_error_with_its_name() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let server = format!("http://{}", listener.local_addr().expect("bound"));
    drop(listener);
    let client = Client::new(&profile(&server)).expect("a client");
    let error = client.get::<GroupsGet>(&[("group", "g")]).await.expect_err("no server listens");
    assert!(matches!(error, ClientError::Unreachable { .. }) && error.is_transient(), "{error:?}");
    assert_eq!(error.to_string(), format!("cannot reach the server at {server}"));
    assert!(matches!(Client::new(&profile("nonsense")), Err(ClientError::InvalidServer { .. })));
}
