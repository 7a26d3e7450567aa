//! Scripted Kubernetes API server for one namespace: accepts only the real types, keeps resource versions and events, serves
//! lists and watches, and has the scripted kubelet run created pods. Tests inject faults.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{Request, State as Shared};
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Response};
use k8s_openapi::api::core::v1::{Pod, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::DeleteOptions;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use super::kubelet::Kubelet;

pub const NAMESPACE: &str = "site";
pub const TOKEN: &str = "the-service-account";

#[derive(Clone)]
pub struct Api {
    state: Arc<Mutex<State>>,
    kubelet: Arc<Kubelet>,
    pub address: SocketAddr,
}

#[derive(Default)]
pub struct State {
    version: u64,
    pub pods: BTreeMap<String, Value>,
    pub secrets: BTreeMap<String, Value>,
    events: Vec<(u64, &'static str, Value)>,
    /// Events before this are dropped.
    oldest: u64,
    /// Verbs and resources that were requested.
    pub calls: BTreeSet<(&'static str, &'static str)>,
    pub fault: Fault,
    /// Watches of an earlier number are closed.
    watches: u64,
    /// The only accepted token; [`TOKEN`] by default.
    pub token: Option<&'static str>,
    /// No pod is started, for lack of capacity.
    pub no_room: bool,
    /// Grace periods of deletions.
    pub graces: Vec<(String, Option<i64>)>,
}

/// Faults of calls other than watches.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub enum Fault {
    #[default]
    None,
    /// Every call fails with 500.
    Broken,
    /// Creations succeed, but the response reports a failure.
    LostAnswers,
    /// Pod creation is forbidden by quota.
    Quota,
}

impl Api {
    pub fn start(directory: PathBuf) -> Self {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("it is bound");
        listener.set_nonblocking(true).expect("tokio wants it so");
        let api = Self { state: Arc::default(), kubelet: Arc::new(Kubelet::new(directory)), address };
        let router = axum::Router::new().fallback(handle_request).with_state(api.clone());
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async {
                let listener = tokio::net::TcpListener::from_std(listener).expect("a listener");
                axum::serve(listener, router).await.expect("it serves");
            });
        });
        api
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no test panics with it")
    }

    pub fn kubelet(&self) -> &Kubelet {
        &self.kubelet
    }

    /// An operator's `~/.kube/config`.
    pub fn kubeconfig(&self) -> String {
        kubeconfig(json!({"server": format!("http://{}", self.address)}), json!({"token": TOKEN}))
    }

    pub fn pod_names(&self) -> Vec<String> {
        self.state().pods.keys().cloned().collect()
    }

    /// Like the kubelet under memory pressure: the pod fails, its processes are killed.
    pub fn evict(&self, pod: &str) {
        let status =
            json!({"phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: memory."});
        self.set_status(pod, status);
        self.kubelet.kill(pod);
    }

    pub fn set_status(&self, name: &str, status: Value) {
        let mut state = self.state();
        let Some(pod) = state.pods.get_mut(name) else { return };
        pod["status"] = status;
        let pod = pod.clone();
        state.note("MODIFIED", name, pod);
    }

    /// Closes the connections of all watches.
    pub fn cut_watches(&self) {
        self.state().watches += 1;
    }

    /// Closes them and drops the events since: 410.
    pub fn forget_events(&self) {
        let mut state = self.state();
        state.watches += 1;
        state.version += 1;
        state.oldest = state.version;
        state.events.clear();
    }

    /// Starts all pods that can run. Called on every creation.
    pub fn schedule(&self) {
        let state = self.state();
        let waits = |pod: &Value| pod["status"]["phase"] == "Pending" && pod["metadata"]["deletionTimestamp"].is_null();
        let due: Vec<_> = state.pods.iter().filter(|(_, pod)| waits(pod) && !state.no_room).collect();
        let due: Vec<_> = due
            .into_iter()
            .filter_map(|(name, pod)| Some((name.clone(), pod.clone(), state.secrets.get(name)?.clone())))
            .collect();
        drop(state);
        for (name, pod, secret) in due {
            let api = self.clone();
            let ended_name = name.clone();
            self.set_status(&name, json!({"phase": "Running"}));
            self.kubelet.run(&name, &pod, &secret, move |code| api.on_exit(&ended_name, code));
        }
    }

    fn on_exit(&self, name: &str, code: i32) {
        let terminated = json!({"exitCode": code, "reason": if code == 0 { "Completed" } else { "Error" }});
        let container = json!({"name": "agent", "image": "", "imageID": "", "ready": false, "restartCount": 0,
            "state": {"terminated": terminated}});
        let phase = if code == 0 { "Succeeded" } else { "Failed" };
        let mut state = self.state();
        let Some(pod) = state.pods.get_mut(name) else { return };
        if !pod["metadata"]["deletionTimestamp"].is_null() {
            return state.remove(name);
        }
        if pod["status"]["phase"] != "Failed" {
            pod["status"] = json!({"phase": phase, "containerStatuses": [container]});
            let pod = pod.clone();
            state.note("MODIFIED", name, pod);
        }
    }
}

impl State {
    fn note(&mut self, kind: &'static str, name: &str, mut pod: Value) {
        self.version += 1;
        pod["metadata"]["resourceVersion"] = json!(self.version.to_string());
        if kind != "DELETED" {
            self.pods.insert(name.to_owned(), pod.clone());
        }
        self.events.push((self.version, kind, pod));
    }

    /// Including dependent objects.
    fn remove(&mut self, name: &str) {
        let Some(pod) = self.pods.remove(name) else { return };
        let uid = pod["metadata"]["uid"].clone();
        self.secrets.retain(|_, secret| secret["metadata"]["ownerReferences"][0]["uid"] != uid);
        self.note("DELETED", name, pod);
    }
}

/// A kubeconfig of one context, with this cluster and this user.
pub fn kubeconfig(cluster: Value, user: Value) -> String {
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "here",
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": user}],
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u", "namespace": NAMESPACE}}],
    });
    config.to_string()
}

async fn handle_request(Shared(api): Shared<Api>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let token = api.state().token.unwrap_or(TOKEN);
    let authorized = parts.headers.get("authorization").is_some_and(|it| *it == *format!("Bearer {token}"));
    if !authorized {
        return refusal(StatusCode::UNAUTHORIZED, "Unauthorized", "no such account");
    }
    let body = to_bytes(body, 1 << 20).await.expect("a body");
    let prefix = format!("/api/v1/namespaces/{NAMESPACE}/");
    let path = parts.uri.path().strip_prefix(&prefix).unwrap_or_else(|| panic!("asked for {}", parts.uri));
    let (resource, name) = path.split_once('/').map_or((path, None), |(resource, name)| (resource, Some(name)));
    let query: BTreeMap<_, _> = form(parts.uri.query().unwrap_or_default());
    let watches = query.get("watch").is_some_and(|watch| watch == "true");
    let verb = match (&parts.method, name) {
        (&Method::POST, None) => "create",
        (&Method::GET, Some(_)) => "get",
        (&Method::GET, None) if watches => "watch",
        (&Method::GET, None) => "list",
        (&Method::DELETE, Some(_)) => "delete",
        other => panic!("asked for {other:?} of {}", parts.uri),
    };
    let resource = if resource == "pods" { "pods" } else { "secrets" };
    api.state().calls.insert((verb, resource));
    let fault = api.state().fault;
    match (verb, resource, fault) {
        (_, _, Fault::Broken) => {
            api.cut_watches();
            refusal(StatusCode::INTERNAL_SERVER_ERROR, "InternalError", "etcd is not there")
        }
        ("create", "pods", Fault::Quota) => refusal(StatusCode::FORBIDDEN, "Forbidden", "exceeded quota: gpus"),
        ("create", ..) => {
            let created = create(&api, resource, &body);
            api.schedule();
            match fault {
                Fault::LostAnswers => refusal(StatusCode::INTERNAL_SERVER_ERROR, "Timeout", "who knows"),
                _ => created,
            }
        }
        ("watch", ..) => watch(api, &query),
        ("list", ..) => list(&api, &query),
        ("get", ..) => match api.state().pods.get(name.expect("a name")) {
            Some(pod) => reply(StatusCode::OK, pod),
            None => refusal(StatusCode::NOT_FOUND, "NotFound", "no such pod"),
        },
        _ => delete(&api, name.expect("a name"), &body),
    }
}

fn create(api: &Api, resource: &str, body: &Bytes) -> Response {
    let mut object = match resource {
        "pods" => exactly::<Pod>(body),
        _ => exactly::<Secret>(body),
    };
    let mut state = api.state();
    let name = object["metadata"]["name"].as_str().expect("a name").to_owned();
    let there = if resource == "pods" { state.pods.contains_key(&name) } else { state.secrets.contains_key(&name) };
    if there {
        return refusal(StatusCode::CONFLICT, "AlreadyExists", "it is there");
    }
    state.version += 1;
    object["metadata"]["uid"] = json!(format!("uid-{}", state.version));
    object["metadata"]["namespace"] = json!(NAMESPACE);
    if resource == "pods" {
        object["status"] = json!({"phase": "Pending"});
        state.note("ADDED", &name, object);
        return reply(StatusCode::CREATED, &state.pods[&name]);
    }
    let owner = &object["metadata"]["ownerReferences"][0];
    let pod = &state.pods[&name];
    assert_eq!((&owner["uid"], &owner["kind"]), (&pod["metadata"]["uid"], &json!("Pod")), "it goes with its pod");
    state.secrets.insert(name, object.clone());
    reply(StatusCode::CREATED, &object)
}

/// The body as serialised by one of the API's own types: a field that the type does not know would be lost.
fn exactly<T: Serialize + DeserializeOwned>(body: &Bytes) -> Value {
    let given: Value = serde_json::from_slice(body).expect("JSON");
    let typed: T = serde_json::from_value(given.clone()).unwrap_or_else(|error| panic!("{error}: {given}"));
    assert_eq!(serde_json::to_value(typed).expect("JSON"), given);
    given
}

fn delete(api: &Api, name: &str, body: &Bytes) -> Response {
    let options: DeleteOptions = serde_json::from_slice(body).expect("options");
    let mut state = api.state();
    let grace = options.grace_period_seconds;
    state.graces.push((name.to_owned(), grace));
    let Some(pod) = state.pods.get_mut(name) else { return refusal(StatusCode::NOT_FOUND, "NotFound", "no such pod") };
    let runs = api.kubelet.is_running(name);
    if grace == Some(0) || !runs {
        let pod = pod.clone();
        state.remove(name);
        drop(state);
        api.kubelet.kill(name);
        return reply(StatusCode::OK, &pod);
    }
    let grace = grace.or_else(|| pod["spec"]["terminationGracePeriodSeconds"].as_i64()).unwrap_or(30);
    pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    let pod = pod.clone();
    state.note("MODIFIED", name, pod.clone());
    drop(state);
    api.kubelet.stop(name, Duration::from_secs(grace as u64));
    reply(StatusCode::OK, &pod)
}

fn list(api: &Api, query: &BTreeMap<String, String>) -> Response {
    let state = api.state();
    let items: Vec<_> = state.pods.values().filter(|pod| selected(pod, query)).collect();
    let metadata = json!({"resourceVersion": state.version.to_string()});
    reply(StatusCode::OK, &json!({"apiVersion": "v1", "kind": "PodList", "metadata": metadata, "items": items}))
}

fn watch(api: Api, query: &BTreeMap<String, String>) -> Response {
    let from: u64 = query["resourceVersion"].parse().expect("a version");
    let ends = Instant::now() + Duration::from_secs(query["timeoutSeconds"].parse().expect("seconds"));
    let (number, query) = (api.state().watches, query.clone());
    let events = futures_util::stream::unfold(Some(from), move |from| {
        let (api, query) = (api.clone(), query.clone());
        async move {
            let from = from?;
            loop {
                let lines = {
                    let state = api.state();
                    if from < state.oldest {
                        let status = json!({"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"});
                        let line = format!("{}\n", json!({"type": "ERROR", "object": status}));
                        return Some((Ok::<_, std::io::Error>(line), None));
                    }
                    if state.watches != number || Instant::now() > ends {
                        return None;
                    }
                    let new = state.events.iter().filter(|(at, _, pod)| *at > from && selected(pod, &query));
                    let lines = new.map(|(_, kind, pod)| format!("{}\n", json!({"type": kind, "object": pod})));
                    let lines: String = lines.collect();
                    (!lines.is_empty()).then_some((lines, state.version))
                };
                match lines {
                    Some((lines, version)) => return Some((Ok(lines), Some(version))),
                    None => tokio::time::sleep(Duration::from_millis(20)).await,
                }
            }
        }
    });
    Body::from_stream(events).into_response()
}

fn selected(pod: &Value, query: &BTreeMap<String, String>) -> bool {
    query["labelSelector"].split(',').all(|term| {
        let (label, value) = term.split_once('=').expect("a label and its value");
        pod["metadata"]["labels"][label] == value
    })
}

fn form(query: &str) -> BTreeMap<String, String> {
    let words = query.split('&').filter_map(|pair| pair.split_once('='));
    let decode = |text: &str| text.replace("%2F", "/").replace("%3D", "=").replace("%2C", ",");
    words.map(|(name, value)| (name.to_owned(), decode(value))).collect()
}

fn reply(status: StatusCode, body: &Value) -> Response {
    (status, [("content-type", "application/json")], body.to_string()).into_response()
}

fn refusal(status: StatusCode, reason: &str, message: &str) -> Response {
    let body = json!({"apiVersion": "v1", "kind": "Status", "status": "Failure", "metadata": {},
        "reason": reason, "message": message, "code": status.as_u16()});
    reply(status, &body)
}
