//! A small fake server whose desired state the test sets, and real agents that connect to it. Every wait has a
//! deadline.

#![allow(dead_code)] // each test binary uses its part

use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use tempfile::TempDir;
use tokio::sync::{Notify, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use corro_agent::{AgentConfig, AgentEnd, PythonCacheConfig};
use corro_launch::kill_tagged::processes_with_tag;
use corro_launch::process::Launcher;
use corro_model::layout::{Layout, RankLogs, Ranks};
use corro_model::node::{
    CONNECT_PATH, DesiredNode, DesiredTask, FromNode, GangAddress, GangHost, Goal, JOIN_PATH, JoinRequest,
    NodeCredential, ObservedNode, TaskFailure, TaskOrder, TaskPhase, ToNode, Volume, VolumeKind, VolumeSource,
    parse_bearer,
};
use corro_model::{AttemptId, NodeId, Secret};

pub const DEADLINE: Duration = Duration::from_secs(30);
pub const TOKEN: &str = "join-token-value";

pub struct FakeServer {
    pub url: String,
    shared: Arc<Shared>,
    serving: JoinHandle<()>,
}

#[derive(Default)]
struct Shared {
    /// An agent asked to join when no cluster needed a node.
    join_declined: Notify,
    joinable: Mutex<VecDeque<NodeCredential>>,
    nodes: Mutex<BTreeMap<NodeId, Arc<FakeNode>>>,
}

/// The server's side of one node.
pub struct FakeNode {
    pub id: NodeId,
    credential: Mutex<Option<NodeCredential>>,
    wish: watch::Sender<Option<ToNode>>,
    observed: watch::Sender<Option<ObservedNode>>,
    /// Number of connections of the node so far.
    pub connections: watch::Sender<u32>,
    /// Number of heartbeats so far.
    heartbeats: watch::Sender<u32>,
    /// Incremented to cut the connection.
    cuts: watch::Sender<u32>,
}

impl FakeServer {
    pub async fn start() -> FakeServer {
        let shared = Arc::new(Shared::default());
        let app = Router::new()
            .route(JOIN_PATH, post(join))
            .route(CONNECT_PATH, get(connect))
            .with_state(Arc::clone(&shared));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let url = format!("http://{}", listener.local_addr().expect("it is bound"));
        let serving = tokio::spawn(async move { axum::serve(listener, app).await.expect("it serves") });
        FakeServer { url, shared, serving }
    }

    pub async fn until_join_declined(&self) {
        timeout(DEADLINE, self.shared.join_declined.notified()).await.expect("an agent asks in time");
    }

    /// From now on a cluster needs this node.
    pub fn want_node(&self, index: u32) -> Arc<FakeNode> {
        // Unique over test binaries that run at the same time: processes are swept by this name.
        let id = NodeId::parse(&format!("tvm-{}_{index}-20180718t174802z-p", unique())).expect("a valid id");
        let credential = NodeCredential {
            node: id.clone(),
            epoch: 1,
            secret: Secret::new("node-secret"),
            instance: INSTANCE.to_owned(),
        };
        let node = Arc::new(FakeNode {
            id: id.clone(),
            credential: Mutex::new(Some(credential.clone())),
            wish: watch::channel(None).0,
            observed: watch::channel(None).0,
            connections: watch::channel(0).0,
            heartbeats: watch::channel(0).0,
            cuts: watch::channel(0).0,
        });
        self.shared.nodes.lock().expect("not poisoned").insert(id, Arc::clone(&node));
        self.shared.joinable.lock().expect("not poisoned").push_back(credential);
        node
    }
}

impl FakeServer {
    /// Stops listening: connections are refused.
    pub async fn go_away(&mut self) {
        self.serving.abort();
        // Cancelled, as requested.
        let _ = (&mut self.serving).await;
    }
}

impl Drop for FakeServer {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

fn unique() -> u64 {
    use std::sync::atomic::{AtomicU64, Ordering};
    static NEXT: AtomicU64 = AtomicU64::new(1);
    u64::from(std::process::id()) * 1000 + NEXT.fetch_add(1, Ordering::Relaxed)
}

impl FakeNode {
    pub fn want(&self, desired: DesiredNode) {
        self.wish.send_replace(Some(ToNode::Desired(desired)));
    }

    pub fn want_task(&self, goal: Goal, order: &TaskOrder) {
        let task = Some(DesiredTask { goal, order: order.clone() });
        self.want(DesiredNode { task, ..DesiredNode::default() });
    }

    pub fn fence(&self) {
        self.wish.send_replace(Some(ToNode::Fenced { reason: "declared lost".into() }));
    }

    /// Answers connections with 401 from now on.
    pub fn refuse(&self) {
        *self.credential.lock().expect("not poisoned") = None;
    }

    pub fn cut_line(&self) {
        self.cuts.send_modify(|n| *n += 1);
    }

    /// Waits until the node's report satisfies a condition.
    pub async fn until(&self, what: &str, condition: impl Fn(&ObservedNode) -> bool) -> ObservedNode {
        let mut observed = self.observed.subscribe();
        let found = timeout(DEADLINE, observed.wait_for(|seen| seen.as_ref().is_some_and(&condition))).await;
        match found {
            Ok(Ok(seen)) => seen.clone().expect("the condition was met"),
            _ => panic!("{} never was {what}; last seen: {:?}", self.id, self.observed.borrow()),
        }
    }

    /// Number of processes of this node.
    pub fn n_processes(&self) -> usize {
        processes_with_tag(&format!("{}/", self.id)).len()
    }

    pub async fn until_connected(&self, n_times: u32) {
        let mut connections = self.connections.subscribe();
        let waited = timeout(DEADLINE, connections.wait_for(|n| *n >= n_times)).await;
        waited.expect("it connects in time").expect("the sender lives");
    }

    /// Waits for this many further heartbeats.
    pub async fn until_heartbeats(&self, n_more: u32) {
        let mut heartbeats = self.heartbeats.subscribe();
        let wanted = *heartbeats.borrow() + n_more;
        let waited = timeout(DEADLINE, heartbeats.wait_for(|n| *n >= wanted)).await;
        waited.expect("its heart heartbeats").expect("the sender lives");
    }

    pub async fn until_ready(&self) {
        self.want(DesiredNode::default());
        self.until("ready and free", |node| node.ready && node.task.is_none()).await;
    }

    /// The gang's address, from the master; `None` from the others.
    pub async fn until_prepared(&self) -> Option<GangAddress> {
        let node = self.until("prepared", |node| matches!(phase(node), Some(TaskPhase::Prepared { .. }))).await;
        match phase(&node) {
            Some(TaskPhase::Prepared { gang }) => gang.clone(),
            _ => unreachable!("just seen"),
        }
    }

    pub async fn until_running(&self) {
        self.until("running", |node| phase(node) == Some(&TaskPhase::Running)).await;
    }

    pub async fn until_ended(&self) -> (ObservedNode, Option<TaskFailure>) {
        let node = self.until("ended", |node| matches!(phase(node), Some(TaskPhase::Ended { .. }))).await;
        let failure = match phase(&node) {
            Some(TaskPhase::Ended { failure }) => failure.clone(),
            _ => unreachable!("just seen"),
        };
        (node, failure)
    }

    pub async fn until_free(&self) {
        self.want(DesiredNode::default());
        self.until("free", |node| node.task.is_none()).await;
    }

    /// Prepares and runs a job on this one node to its end.
    pub async fn run_alone(&self, order: &TaskOrder) -> (ObservedNode, Option<TaskFailure>) {
        self.want_task(Goal::Prepare, order);
        let this = |node: &ObservedNode| node.task.as_ref().is_some_and(|task| task.attempt == order.attempt);
        let waits =
            |node: &ObservedNode| matches!(phase(node), Some(TaskPhase::Prepared { .. } | TaskPhase::Ended { .. }));
        let node = self.until("prepared or ended", |node| this(node) && waits(node)).await;
        if let Some(TaskPhase::Prepared { gang: Some(gang) }) = phase(&node) {
            self.want_task(Goal::Run { gang: gang.clone() }, order);
        }
        self.until_ended().await
    }
}

fn phase(node: &ObservedNode) -> Option<&TaskPhase> {
    node.task.as_ref().map(|task| &task.phase)
}

async fn join(State(shared): State<Arc<Shared>>, body: Bytes) -> Response {
    let request: JoinRequest = serde_json::from_slice(&body).expect("a join request");
    if request.token.expose() != TOKEN {
        return refused();
    }
    match shared.joinable.lock().expect("not poisoned").pop_front() {
        Some(credential) => serde_json::to_vec(&credential).expect("it can be written").into_response(),
        None => {
            shared.join_declined.notify_one();
            StatusCode::NO_CONTENT.into_response()
        }
    }
}

async fn connect(State(shared): State<Arc<Shared>>, headers: HeaderMap, upgrade: WebSocketUpgrade) -> Response {
    let header = headers.get("authorization").and_then(|value| value.to_str().ok()).unwrap_or_default();
    let Some(mut credential) = parse_bearer(header) else { return refused() };
    // The header does not contain it.
    credential.instance = INSTANCE.to_owned();
    let node = shared.nodes.lock().expect("not poisoned").get(&credential.node).cloned();
    match node.filter(|node| *node.credential.lock().expect("not poisoned") == Some(credential)) {
        Some(node) => upgrade.on_upgrade(move |socket| converse(socket, node)),
        None => refused(),
    }
}

async fn converse(mut socket: WebSocket, node: Arc<FakeNode>) {
    let (mut wish, mut cuts) = (node.wish.subscribe(), node.cuts.subscribe());
    cuts.mark_unchanged();
    wish.mark_changed();
    // Reports of an earlier connection no longer count.
    node.observed.send_replace(None);
    node.connections.send_modify(|n| *n += 1);
    loop {
        tokio::select! {
            _ = wish.changed() => {
                let wish = wish.borrow_and_update().clone();
                if let Some(wish) = wish {
                    let text = serde_json::to_string(&wish).expect("it can be written");
                    if socket.send(Message::Text(text.into())).await.is_err() {
                        return;
                    }
                }
            }
            message = socket.recv() => match message {
                Some(Ok(Message::Text(text))) => {
                    match serde_json::from_str(&text).expect("a node's message") {
                        FromNode::Observed(observed) => drop(node.observed.send_replace(Some(observed))),
                        FromNode::Figures(_) | FromNode::Recording(_) => {}
                        FromNode::Heartbeat => node.heartbeats.send_modify(|n| *n += 1),
                    }
                }
                Some(Ok(Message::Close(_)) | Err(_)) | None => return,
                Some(Ok(_)) => {}
            },
            _ = cuts.changed() => return,
        }
    }
}

/// An agent in this process.
pub struct Agent {
    pub root: PathBuf,
    shutdown: Option<oneshot::Sender<()>>,
    running: JoinHandle<anyhow::Result<AgentEnd>>,
}

impl Agent {
    pub fn start(server: &FakeServer, root: &Path, address: &str) -> Agent {
        Agent::start_with(config(server, root, address))
    }

    pub fn start_with(config: AgentConfig) -> Agent {
        let root = config.root.clone();
        let (shutdown, asked) = oneshot::channel::<()>();
        let running = tokio::spawn(corro_agent::run_until(config, async move {
            // The sender is dropped when a test ends without stopping the agent; then the runtime ends it.
            if asked.await.is_err() {
                std::future::pending::<()>().await;
            }
        }));
        Agent { root, shutdown: Some(shutdown), running }
    }

    pub async fn end(&mut self) -> AgentEnd {
        let end = timeout(DEADLINE, &mut self.running).await.expect("it ends in time");
        end.expect("it does not panic").expect("an orderly end")
    }

    pub async fn shut_down(mut self) -> AgentEnd {
        self.shutdown.take().expect("asked once").send(()).expect("it still runs");
        self.end().await
    }
}

pub fn config(server: &FakeServer, root: &Path, address: &str) -> AgentConfig {
    AgentConfig {
        server: server.url.clone(),
        server_file: None,
        trust: Default::default(),
        root: root.to_owned(),
        join_token: Secret::new(TOKEN),
        guard: Launcher::new(node_example(), vec!["guard".into()]),
        address: Some(address.to_owned()),
        ports: None,
        heartbeat: Duration::from_millis(100),
        engine_sockets: vec![root.join("no-engine.sock")],
        rejoin: false,
        isolation: Default::default(),
        remote_shares: false,
        python_cache: PythonCacheConfig { directory: None, max_environments: 8, max_bytes: 20 << 30 },
    }
}

const INSTANCE: &str = "the-test-server";

fn refused() -> axum::response::Response {
    (StatusCode::UNAUTHORIZED, [(corro_model::node::INSTANCE_HEADER, INSTANCE)]).into_response()
}

/// The example that `cargo test` builds beside the tests.
pub fn node_example() -> PathBuf {
    let test = std::env::current_exe().expect("a test has an executable");
    let target = test.parent().and_then(Path::parent).expect("tests lie in deps");
    let example = target.join("examples/node");
    assert!(example.exists(), "build it first: cargo build -p corro-agent --examples");
    example
}

/// A joined node, its agent, and a share.
pub struct World {
    pub server: FakeServer,
    pub node: Arc<FakeNode>,
    pub agent: Agent,
    pub share: PathBuf,
    pub directory: TempDir,
}

impl World {
    pub async fn new() -> World {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let share = directory.path().join("share");
        std::fs::create_dir(&share).expect("a share");
        let server = FakeServer::start().await;
        let node = server.want_node(1);
        let agent = Agent::start(&server, &directory.path().join("n1"), "127.0.0.4");
        node.until_ready().await;
        World { server, node, agent, share, directory }
    }

    /// A custom job of this node whose logs go to the share.
    pub fn order(&self, command: &str) -> TaskOrder {
        let hosts = vec![host(&self.node, "127.0.0.4", 1)];
        order(command, hosts, &self.share, &self.directory.path().join("shared-temp"))
    }

    pub fn log(&self, name: &str) -> String {
        read(&log_directory(&self.share).join(name))
    }
}

pub fn host(node: &FakeNode, address: &str, slots: usize) -> GangHost {
    GangHost { node: node.id.clone(), address: address.into(), slots }
}

pub const SEGMENT: &str = "sub/rg/workspaces/w/experiments/e/jobs/j/guid";

pub fn order(command: &str, hosts: Vec<GangHost>, share: &Path, shared_temp: &Path) -> TaskOrder {
    TaskOrder {
        attempt: AttemptId { job: "guid".into(), number: 1 },
        workspace: "w".into(),
        experiment: "e".into(),
        job: "j".into(),
        segment: SEGMENT.into(),
        hosts: hosts.into(),
        host_idx: 0,
        layout: Layout::Command { command: command.into() },
        preparation: None,
        volumes: vec![Volume {
            kind: VolumeKind::FileShare,
            relative: "logs".into(),
            label: "//acc.file.core.windows.net/logs".into(),
            source: VolumeSource::LocalDirectory(share.to_owned()),
            read_only: false,
            beneath: None,
        }],
        std_out_err_path_prefix: "$AZ_BATCHAI_JOB_MOUNT_ROOT/logs/cifar".into(),
        input_directories: Vec::new(),
        output_directories: Vec::new(),
        environment: Vec::new(),
        secrets: Vec::new(),
        shared_temp: Some(shared_temp.to_owned()),
        container: None,
        containers_on_host: false,
        strict_isolation: false,
        shows_secrets: false,
        limits: None,
        counters: false,
        gpus: 0,
        gang_secret: Secret::new("gang-secret-value"),
        lost_attempts: Vec::new(),
        working_directory: None,
        prefix_output_with_rank: false,
        elastic: false,
        python_environment: None,
    }
}

/// The same job as ranks that all run the command.
pub fn as_ranks(order: TaskOrder) -> TaskOrder {
    let Layout::Command { command } = order.layout else { panic!("{order:?} has ranks already") };
    let ranks = Ranks { command, logs: RankLogs::Together, indexed: false, backend: None };
    TaskOrder { layout: Layout::Ranks(ranks), ..order }
}

pub fn log_directory(share: &Path) -> PathBuf {
    share.join("cifar").join(SEGMENT).join("stdouterr")
}

pub fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Names in a directory, sorted.
pub fn names(path: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut names: Vec<String> =
        entries.map(|entry| entry.expect("it can be listed").file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// Waits until a file of the job exists.
/// Waits until a file ends with a whole line. A shell creates the file before it writes to it.
pub async fn until_line(path: &Path) {
    let written = timeout(DEADLINE, async {
        while !std::fs::read_to_string(path).is_ok_and(|text| text.ends_with('\n')) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    written.await.unwrap_or_else(|_| panic!("nothing was written to {}", path.display()));
}

pub async fn until_exists(path: &Path) {
    let appeared = timeout(DEADLINE, async {
        while !path.exists() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    appeared.await.unwrap_or_else(|_| panic!("{} never appeared", path.display()));
}
