//! Many simulated agents in one process: each joins with the open token, keeps its own WebSocket and speaks the agent protocol
//! (observations on change, a heartbeat and a ping every second), but runs nothing. A mode of this binary, so that its CPU time
//! is not counted as the server's; it reports events as lines on standard output.

use std::convert::Infallible;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use corro_model::layout::Role;
use corro_model::node::*;
use corro_model::{Secret, Timestamp};
use futures_util::{SinkExt, StreamExt};
use tokio::sync::Semaphore;
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep};
use tokio_tungstenite::connect_async_with_config;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::http::{HeaderValue, header::AUTHORIZATION};
use tokio_tungstenite::tungstenite::protocol::{Message, WebSocketConfig};

/// Hidden subcommand of this binary.
pub const SUBCOMMAND: &str = "swarm";
/// Limit of concurrent joins.
const MAX_CONCURRENT_JOINS: usize = 64;
/// Simulated run time of a rank.
const RANK_DURATION: Duration = Duration::from_secs(1);

/// Progress of all agents, printed when a milestone is reached.
struct Progress {
    agents: usize,
    gang: usize,
    connected: AtomicUsize,
    ready: AtomicUsize,
    ordered: AtomicUsize,
    running: AtomicUsize,
}

impl Progress {
    fn count(&self, counter: &AtomicUsize, total: usize, milestone: &str) {
        // A second gang is counted like the first.
        if (counter.fetch_add(1, Ordering::SeqCst) + 1).is_multiple_of(total) {
            println!("{milestone}");
        }
    }
}

/// `swarm SERVER AGENTS GANG`, the join token on standard input. Ends with its parent.
pub fn run(arguments: &[String]) -> ExitCode {
    let [server, agents, gang] = arguments else { return ExitCode::from(2) };
    let (Ok(agents), Ok(gang)) = (agents.parse(), gang.parse()) else { return ExitCode::from(2) };
    let mut token = String::new();
    if std::io::stdin().read_line(&mut token).is_err() {
        return ExitCode::from(2);
    }
    let runtime = match tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build() {
        Ok(runtime) => runtime,
        Err(_) => return ExitCode::FAILURE,
    };
    let zero = || AtomicUsize::new(0);
    let progress = Progress { agents, gang, connected: zero(), ready: zero(), ordered: zero(), running: zero() };
    let (progress, join_permits) = (Arc::new(progress), Arc::new(Semaphore::new(MAX_CONCURRENT_JOINS)));
    let address = server.trim_start_matches("http://").to_owned();
    runtime.block_on(async move {
        for number in 0..agents {
            let (progress, join_permits) = (progress.clone(), join_permits.clone());
            let (address, token) = (address.clone(), Secret::new(token.trim()));
            tokio::spawn(async move {
                let error = run_agent(number, &address, token, &progress, &join_permits).await.unwrap_err();
                println!("lost {number}: {error:#}");
            });
        }
        // The parent's end closes our standard input.
        let _ = tokio::task::spawn_blocking(|| std::io::stdin().read_line(&mut String::new())).await;
    });
    std::process::exit(0)
}

/// Runs one agent until an error.
async fn run_agent(
    number: usize,
    address: &str,
    token: Secret,
    progress: &Progress,
    join_permits: &Semaphore,
) -> Result<Infallible> {
    let join_permit = join_permits.acquire().await?;
    let credential = join(address, token).await?;
    let mut request = format!("ws://{address}{CONNECT_PATH}").into_client_request()?;
    request.headers_mut().insert(AUTHORIZATION, HeaderValue::from_str(&bearer(&credential))?);
    let config = WebSocketConfig::default().read_buffer_size(4096).write_buffer_size(4096);
    let (socket, _) = connect_async_with_config(request, Some(config), true).await.context("cannot connect")?;
    drop(join_permit);
    let (mut sink, mut stream) = socket.split();
    progress.count(&progress.connected, progress.agents, "connected");
    // Spread over the second, like agents that were not started together.
    let first = Instant::now() + HEARTBEAT * (number % 1000) as u32 / 1000;
    let mut heartbeat = interval_at(first, HEARTBEAT);
    heartbeat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut agent = Agent::default();
    let mut rank_end: Option<std::pin::Pin<Box<tokio::time::Sleep>>> = None;
    sink.send(text(&FromNode::Observed(agent.observed.clone()))).await?;
    loop {
        let before = agent.observed.clone();
        tokio::select! {
            message = stream.next() => match message.context("the server closed the connection")?? {
                Message::Text(message) => match serde_json::from_str(&message)? {
                    ToNode::Desired(desired) => {
                        if agent.on_desired(desired, progress) {
                            rank_end = Some(Box::pin(sleep(RANK_DURATION)));
                        }
                    }
                    ToNode::Look | ToNode::Record { .. } | ToNode::Tunnel(_) => {}
                    ToNode::Fenced { reason } => bail!("fenced: {reason}"),
                },
                Message::Close(_) => bail!("the server sent a close frame"),
                _ => {}
            },
            _ = heartbeat.tick() => {
                sink.feed(text(&FromNode::Heartbeat)).await?;
                sink.send(Message::Ping(Default::default())).await?;
            }
            () = async { match &mut rank_end { Some(end) => end.await, None => std::future::pending().await } } => {
                rank_end = None;
                agent.end_task();
            }
        }
        if agent.observed != before {
            sink.send(text(&FromNode::Observed(agent.observed.clone()))).await?;
        }
    }
}

/// State that one simulated agent reports.
#[derive(Default)]
struct Agent {
    observed: ObservedNode,
    rank: usize,
}

impl Agent {
    /// Applies the desired state; returns true when the ranks start.
    fn on_desired(&mut self, desired: DesiredNode, progress: &Progress) -> bool {
        if !self.observed.ready {
            self.observed.ready = true;
            progress.count(&progress.ready, progress.agents, "ready");
        }
        let Some(DesiredTask { goal, order }) = desired.task else {
            self.observed.task = None;
            return false;
        };
        if self.observed.task.as_ref().is_none_or(|task| task.attempt != order.attempt) {
            progress.count(&progress.ordered, progress.gang, "ordered");
            let address = order.hosts[order.host_idx].address.clone();
            let gang = order.is_master().then_some(GangAddress::new(address, 1, 2));
            let phase = TaskPhase::Prepared { gang };
            self.rank = order.host_idx;
            self.observed.task = Some(ObservedTask { attempt: order.attempt, phase, exits: Vec::new(), elastic: None });
        }
        let Some(task) = &mut self.observed.task else { return false };
        if let (Goal::Run { .. } | Goal::PrepareAndRun, TaskPhase::Prepared { .. }) = (goal, &task.phase) {
            progress.count(&progress.running, progress.gang, "running");
            task.phase = TaskPhase::Running;
            return true;
        }
        false
    }

    /// Ends the task with exit code 0.
    fn end_task(&mut self) {
        if let Some(task) = &mut self.observed.task {
            let at = Timestamp::from(std::time::SystemTime::now());
            let (exit_code, signal, stopped, stderr_tail) = (Some(0), None, false, String::new());
            let (rank, role, index) = (self.rank, Role::Rank, self.rank);
            let (out_of_memory, out_of_processes, gpu_errors) = (None, None, Vec::new());
            #[rustfmt::skip]
            let exit = RankExit {
                rank, role, index, exit_code, signal, stopped, at, stderr_tail, out_of_memory, out_of_processes, gpu_errors,
            };
            task.exits = vec![exit];
            task.phase = TaskPhase::Ended { failure: None };
        }
    }
}

/// Joins with the token; retries while no cluster needs a node.
async fn join(address: &str, token: Secret) -> Result<NodeCredential> {
    let body = serde_json::to_string(&JoinRequest { token })?;
    loop {
        let response = crate::http::post(address, JOIN_PATH, &body).await?;
        match response.status {
            200 => return Ok(serde_json::from_slice(&response.body)?),
            204 => sleep(Duration::from_millis(200)).await,
            status => bail!("join failed with status {status}"),
        }
    }
}

fn text(message: &FromNode) -> Message {
    Message::text(serde_json::to_string(message).expect("messages are plain data"))
}
