//! The node's one outbound WebSocket connection to the server. Reports the node's state when it changes, passes the
//! desired state to the driver, opens tunnels on request, and reconnects forever. Makes no decisions and never drops
//! the latest state.

mod report_batching;
mod tunnel;
mod ws_stream;

use std::collections::VecDeque;
use std::future::pending;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use thiserror::Error;
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, sleep_until, timeout};
use tokio_rustls::TlsConnector;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::http::{HeaderValue, StatusCode, header::AUTHORIZATION};
use tokio_tungstenite::tungstenite::{self, Message};
use tokio_tungstenite::{WebSocketStream, client_async};

use corro_client::TrustError;
use corro_model::AttemptId;
use corro_model::node::{
    CONNECT_PATH, FromNode, FromRecording, INSTANCE_HEADER, NodeCredential, PROTOCOL, PROTOCOL_HEADER, TaskStats,
    ToNode, bearer,
};

use crate::config::AgentConfig;
use crate::connection::report_batching::ReportBatch;
use crate::connection::tunnel::Tunnels;
use crate::connection::ws_stream::WsStream;
use crate::events::Event;
use crate::gpu::monitor::GpuMonitor;
use crate::identity::incarnation::TagPrefix;
use crate::state::observation::Observation;
use crate::stats::process_stats;
use crate::stats::timeline_recording::{self, RecordRequest};
use crate::task::exec_target::ExecTargets;

const MIN_RECONNECT_DELAY: Duration = Duration::from_millis(50);
const MAX_RECONNECT_DELAY: Duration = Duration::from_secs(1);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// A server that accepts no data or answers no ping for this long is considered gone.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(10);
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// Configuration error that prevents any connection.
#[derive(Debug, Error)]
pub enum ConnectionError {
    #[error("the server's URL '{url}' does not begin with http:// or https://: use the one that `corro up` shows")]
    Url { url: String },
    #[error(transparent)]
    Trust(#[from] TrustError),
    #[error("the node's credential cannot be sent: remove the node's directory and join again")]
    Credential,
}

/// Handle of the connection task. Dropping it aborts the task.
#[derive(Debug)]
pub struct Connection {
    closing: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl Connection {
    pub fn start(
        config: &AgentConfig,
        credential: &NodeCredential,
        observed: watch::Receiver<Observation>,
        events: mpsc::Sender<Event>,
        reached: watch::Sender<Instant>,
        (tags, gpus): (TagPrefix, GpuMonitor),
        exec_targets: ExecTargets,
    ) -> Result<Connection, ConnectionError> {
        url(config)?;
        let authorization = HeaderValue::from_str(&bearer(credential)).map_err(|_| ConnectionError::Credential)?;
        let (closing, is_closing) = watch::channel(false);
        let heartbeat = config.heartbeat;
        let config = config.clone();
        let instance = credential.instance.clone();
        let tls = ws_stream::tls_for(&config)?;
        let tunnels = Tunnels::new(config.clone(), tls.clone(), authorization.clone(), tags.clone(), exec_targets);
        let (tunnels, open_tunnels) = (Arc::new(tunnels), JoinSet::new());
        #[rustfmt::skip]
        let task = ConnectionTask {
            config, tls, tags, gpus, instance, authorization, heartbeat, observed, events, reached, closing: is_closing, tunnels,
            open_tunnels,
        };
        Ok(Connection { closing, task: tokio::spawn(task.run()) })
    }

    /// Sends the final state and closes the connection, waiting at most `limit`.
    pub async fn close(mut self, limit: Duration) {
        self.closing.send_replace(true);
        // A timeout is harmless: the server notices the silence.
        let _ = timeout(limit, &mut self.task).await;
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The WebSocket URL. Checked before anything is sent, so that a mistyped URL is reported at once.
pub fn url(config: &AgentConfig) -> Result<String, ConnectionError> {
    config.ws_url(CONNECT_PATH).ok_or_else(|| ConnectionError::Url { url: config.present_server() })
}

struct ConnectionTask {
    config: AgentConfig,
    tls: TlsConnector,
    /// Tag prefix of the processes to sample and record.
    tags: TagPrefix,
    /// The GPUs of the running task.
    gpus: GpuMonitor,
    instance: String,
    authorization: HeaderValue,
    heartbeat: Duration,
    observed: watch::Receiver<Observation>,
    events: mpsc::Sender<Event>,
    /// Latest time for which it is certain that the server heard from this node afterwards, or that no server was
    /// running. Base of the lease.
    reached: watch::Sender<Instant>,
    closing: watch::Receiver<bool>,
    tunnels: Arc<Tunnels>,
    /// Tunnels have connections of their own, so they outlive a lost one of this task.
    open_tunnels: JoinSet<()>,
}

type Socket = WebSocketStream<WsStream>;

/// Reason why a session ended.
enum SessionEnd {
    Lost,
    /// Closed by us, or the driver is gone.
    Closed,
    Fenced(String),
}

impl ConnectionTask {
    async fn run(mut self) {
        let mut delay = MIN_RECONNECT_DELAY;
        loop {
            let attempted_at = Instant::now();
            let end = match timeout(CONNECT_TIMEOUT, self.connect()).await {
                Ok(Ok(socket)) => {
                    self.reached.send_replace(attempted_at);
                    tracing::info!("connected to the server");
                    self.run_session(socket, &mut delay).await
                }
                // Only the installation that issued the credential may revoke it: another server may listen at the
                // address now.
                Ok(Err(tungstenite::Error::Http(answer)))
                    if answer.status() == StatusCode::UNAUTHORIZED
                        && answer
                            .headers()
                            .get(INSTANCE_HEADER)
                            .is_some_and(|instance| instance == self.instance.as_str()) =>
                {
                    SessionEnd::Fenced("the server no longer knows this node".to_owned())
                }
                Ok(Err(error)) => {
                    if is_connection_refused(&error) {
                        // The machine answers that no server runs there. A server that starts gives every node a full
                        // lease.
                        self.reached.send_replace(attempted_at);
                    }
                    self.log_permanent_error(&error);
                    tracing::debug!(%error, "cannot connect to the server yet");
                    SessionEnd::Lost
                }
                Err(_) => SessionEnd::Lost,
            };
            match end {
                // No server to send the final state to.
                SessionEnd::Lost if *self.closing.borrow() => return,
                SessionEnd::Lost => {}
                SessionEnd::Closed => return,
                SessionEnd::Fenced(reason) => {
                    let _ = self.events.send(Event::Fenced(reason)).await;
                    return;
                }
            }
            sleep(delay).await;
            delay = (delay * 2).min(MAX_RECONNECT_DELAY);
        }
    }

    /// Logs an untrusted certificate or an unsupported protocol version as an error: retries will not help, so the
    /// operator must see it.
    fn log_permanent_error(&self, error: &tungstenite::Error) {
        if let tungstenite::Error::Http(answer) = error
            && answer.status() == StatusCode::UPGRADE_REQUIRED
        {
            let server = self.config.present_server();
            tracing::error!(
                server,
                "the server does not understand this version of the agent, or is older: upgrade the server first, then the agents; trying again"
            );
        }
        if let Some(reason) = ws_stream::certificate_error(error) {
            let server = self.config.present_server();
            tracing::error!(%reason, server, "the server's certificate is not trusted: give its authority with --ca or --ca-fingerprint; trying again");
        }
    }

    async fn connect(&self) -> Result<Socket, tungstenite::Error> {
        let url = self.config.ws_url(CONNECT_PATH).unwrap_or_default();
        let mut request = url.as_str().into_client_request()?;
        request.headers_mut().insert(AUTHORIZATION, self.authorization.clone());
        request.headers_mut().insert(PROTOCOL_HEADER, HeaderValue::from(PROTOCOL));
        let stream = ws_stream::open(request.uri(), &self.tls).await?;
        Ok(client_async(request, stream).await?.0)
    }

    async fn run_session(&mut self, socket: Socket, delay: &mut Duration) -> SessionEnd {
        let (mut sink, mut stream) = socket.split();
        let mut heartbeat = interval(self.heartbeat);
        heartbeat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut last_received = Instant::now();
        let mut pings = PendingPings::default();
        let mut batch = ReportBatch::default();
        let (stats_sender, mut stats) = mpsc::channel(1);
        let (recording_sender, mut recordings) = mpsc::channel(1);
        self.observed.mark_changed();
        loop {
            if *self.closing.borrow() {
                return self.close_gracefully(sink, stream).await;
            }
            let sent = tokio::select! {
                message = stream.next() => {
                    last_received = Instant::now();
                    *delay = MIN_RECONNECT_DELAY;
                    match message {
                        Some(Ok(Message::Text(text))) => match self.on_message(&text, &stats_sender, &recording_sender).await {
                            Some(end) => return end,
                            None => Ok(()),
                        },
                        Some(Ok(Message::Pong(number))) => {
                            if let Some(sent) = pings.answered(&number) {
                                self.reached.send_replace(sent);
                            }
                            Ok(())
                        }
                        Some(Ok(Message::Close(_)) | Err(_)) | None => return SessionEnd::Lost,
                        Some(Ok(_)) => Ok(()),
                    }
                }
                Ok(()) = self.observed.changed() => {
                    if batch.is_urgent(&self.observed.borrow_and_update().node, Instant::now()) {
                        self.send_report(&mut sink, &mut batch).await
                    } else {
                        Ok(())
                    }
                }
                Some(figures) = stats.recv() => send(&mut sink, [text(&FromNode::Figures(figures))]).await,
                Some(recording) = recordings.recv() => send(&mut sink, [text(&FromNode::Recording(recording))]).await,
                Some(_) = self.open_tunnels.join_next(), if !self.open_tunnels.is_empty() => Ok(()),
                () = sleep_until_due(batch.due()) => self.send_report(&mut sink, &mut batch).await,
                _ = heartbeat.tick() => {
                    if last_received.elapsed() > SILENCE_TIMEOUT {
                        return SessionEnd::Lost;
                    }
                    // The ping makes the server answer, so that a dead connection is noticed.
                    send(&mut sink, [text(&FromNode::Heartbeat), Message::Ping(pings.next().into())]).await
                }
                Ok(()) = self.closing.changed() => Ok(()),
            };
            if sent.is_err() {
                return SessionEnd::Lost;
            }
        }
    }

    async fn send_report(
        &self,
        sink: &mut SplitSink<Socket, Message>,
        batch: &mut ReportBatch,
    ) -> Result<(), SendError> {
        let observed = self.observed.borrow().clone();
        let sent = send(sink, [text(&observed.message(Instant::now()))]).await;
        batch.mark_sent(observed.node);
        sent
    }

    async fn on_message(
        &mut self,
        text: &str,
        stats_sender: &mpsc::Sender<TaskStats>,
        recording_sender: &mpsc::Sender<FromRecording>,
    ) -> Option<SessionEnd> {
        let event = match serde_json::from_str(text) {
            Ok(ToNode::Desired(desired)) => Event::Desired(Box::new(desired)),
            Ok(ToNode::Fenced { reason }) => return Some(SessionEnd::Fenced(reason)),
            Ok(ToNode::Look) => {
                self.sample_stats(stats_sender.clone());
                return None;
            }
            Ok(ToNode::Record { number, millis, most_bytes }) => {
                self.record(RecordRequest { number, millis, most_bytes }, recording_sender.clone());
                return None;
            }
            Ok(ToNode::Tunnel(order)) => {
                let (tunnels, ssh) = (Arc::clone(&self.tunnels), self.observed.borrow().node.login.clone());
                self.open_tunnels.spawn(async move { tunnels.serve(order, ssh).await });
                return None;
            }
            Err(error) => {
                tracing::warn!(%error, "invalid message from the server: does it have another version?");
                return None;
            }
        };
        self.events.send(event).await.err().map(|_| SessionEnd::Closed)
    }

    /// Samples process statistics on a blocking thread. A request during a sample is answered by that sample.
    fn sample_stats(&self, stats_sender: mpsc::Sender<TaskStats>) {
        let Ok(permit) = stats_sender.try_reserve_owned() else { return };
        let ((tags, attempt), gpus) = (self.running_task(), self.gpus.clone());
        tokio::task::spawn_blocking(move || permit.send(process_stats::sample(&tags, attempt, &gpus)));
    }

    /// Records a timeline on a blocking thread. Results are sent rank by rank, and dropped when the connection is lost.
    fn record(&self, request: RecordRequest, recording_sender: mpsc::Sender<FromRecording>) {
        let (tags, attempt) = self.running_task();
        tokio::task::spawn_blocking(move || {
            timeline_recording::record(&tags, attempt, request, |one| drop(recording_sender.blocking_send(one)));
        });
    }

    fn running_task(&self) -> (TagPrefix, Option<AttemptId>) {
        (self.tags.clone(), self.observed.borrow().node.task.as_ref().map(|task| task.attempt.clone()))
    }

    /// Sends the final state and a close frame, then waits for the server's close: closing a socket with unread input
    /// may discard data in flight.
    async fn close_gracefully(
        &mut self,
        mut sink: SplitSink<Socket, Message>,
        mut stream: SplitStream<Socket>,
    ) -> SessionEnd {
        let last = self.observed.borrow().message(Instant::now());
        if send(&mut sink, [text(&last), Message::Close(None)]).await.is_err() {
            return SessionEnd::Lost;
        }
        let _ = timeout(CLOSE_TIMEOUT, async { while let Some(Ok(_)) = stream.next().await {} }).await;
        SessionEnd::Closed
    }
}

/// Send times of unanswered pings by number.
#[derive(Default)]
struct PendingPings {
    last: u64,
    sent: VecDeque<(u64, Instant)>,
}

impl PendingPings {
    fn next(&mut self) -> Vec<u8> {
        self.last += 1;
        self.sent.push_back((self.last, Instant::now()));
        self.last.to_be_bytes().to_vec()
    }

    /// Send time of the ping that was answered. Answers come in order, but not every ping gets one.
    fn answered(&mut self, number: &[u8]) -> Option<Instant> {
        let number = u64::from_be_bytes(number.try_into().ok()?);
        let mut sent_at = None;
        while let Some((first, sent)) = self.sent.front()
            && *first <= number
        {
            sent_at = Some(*sent);
            self.sent.pop_front();
        }
        sent_at
    }
}

fn is_connection_refused(error: &tungstenite::Error) -> bool {
    matches!(error, tungstenite::Error::Io(error) if error.kind() == io::ErrorKind::ConnectionRefused)
}

/// Sleeps until `moment`; forever without one.
async fn sleep_until_due(moment: Option<Instant>) {
    match moment {
        Some(moment) => sleep_until(moment).await,
        None => pending().await,
    }
}

struct SendError;

async fn send(
    sink: &mut SplitSink<Socket, Message>,
    messages: impl IntoIterator<Item = Message>,
) -> Result<(), SendError> {
    for message in messages {
        match timeout(SILENCE_TIMEOUT, sink.send(message)).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) | Err(_) => return Err(SendError),
        }
    }
    Ok(())
}

fn text(message: &FromNode) -> Message {
    Message::text(serde_json::to_string(message).expect("our own messages have string keys only"))
}
