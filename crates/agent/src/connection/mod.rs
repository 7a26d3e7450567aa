//! The one outbound WebSocket to the server. Tells what the node observes when that changes, hands what the server
//! wants to the driver, and comes back for ever when the server is away. Never decides, never loses the last state.

mod report_batching;
mod ws_stream;

use std::collections::VecDeque;
use std::future::pending;
use std::io;
use std::time::Duration;

use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use thiserror::Error;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, sleep_until, timeout};
use tokio_rustls::TlsConnector;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::http::{HeaderValue, StatusCode, header::AUTHORIZATION};
use tokio_tungstenite::tungstenite::{self, Message};
use tokio_tungstenite::{WebSocketStream, client_async};

use corro_client::TrustError;
use corro_model::AttemptId;
use corro_model::node::{
    CONNECT_PATH, FromNode, FromRecording, INSTANCE_HEADER, NodeCredential, PROTOCOL, PROTOCOL_HEADER, TaskFigures,
    ToNode, bearer,
};

use crate::config::AgentConfig;
use crate::connection::report_batching::News;
use crate::connection::ws_stream::Line;
use crate::events::Event;
use crate::identity::incarnation::TagPrefix;
use crate::state::observation::Observation;
use crate::stats::process_stats;
use crate::stats::timeline_recording::{self, Wish};

const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
const CONNECT_WITHIN: Duration = Duration::from_secs(5);
/// A server that takes nothing, or says nothing to our pings, for this long is gone.
const SILENCE: Duration = Duration::from_secs(10);
const FAREWELL: Duration = Duration::from_secs(1);

#[derive(Debug, Error)]
pub enum ConnectionError {
    #[error("the server's URL '{url}' begins with neither http:// nor https://: give the one that `corro up` shows")]
    Url { url: String },
    #[error(transparent)]
    Trust(#[from] TrustError),
    #[error("the node's credential cannot be sent: remove the node's directory and join again")]
    Credential,
}

/// A connection that is kept; dropping it ends it at once.
#[derive(Debug)]
pub struct Connection {
    closing: watch::Sender<bool>,
    keeper: JoinHandle<()>,
}

impl Connection {
    pub fn start(
        config: &AgentConfig,
        credential: &NodeCredential,
        observed: watch::Receiver<Observation>,
        events: mpsc::Sender<Event>,
        reached: watch::Sender<Instant>,
        tags: TagPrefix,
    ) -> Result<Connection, ConnectionError> {
        url(config)?;
        let authorization = HeaderValue::from_str(&bearer(credential)).map_err(|_| ConnectionError::Credential)?;
        let (closing, is_closing) = watch::channel(false);
        let heartbeat = config.heartbeat;
        let config = config.clone();
        let instance = credential.instance.clone();
        let tls = ws_stream::tls_for(&config)?;
        #[rustfmt::skip]
        let keeper = Keeper {
            config, tls, tags, instance, authorization, heartbeat, observed, events, reached, closing: is_closing,
        };
        Ok(Connection { closing, keeper: tokio::spawn(keeper.keep()) })
    }

    /// Tells the last state and says goodbye, if that can be done within `patience`.
    pub async fn close(mut self, patience: Duration) {
        self.closing.send_replace(true);
        // Too late is no error: the server finds out by the silence.
        let _ = timeout(patience, &mut self.keeper).await;
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.keeper.abort();
    }
}

/// Where to connect. Asked for before anything is sent, so that a mistyped URL is told at once.
pub fn url(config: &AgentConfig) -> Result<String, ConnectionError> {
    config.ws_url(CONNECT_PATH).ok_or_else(|| ConnectionError::Url { url: config.present_server() })
}

struct Keeper {
    config: AgentConfig,
    tls: TlsConnector,
    /// Of the processes that are measured and recorded.
    tags: TagPrefix,
    instance: String,
    authorization: HeaderValue,
    heartbeat: Duration,
    observed: watch::Receiver<Observation>,
    events: mpsc::Sender<Event>,
    /// The last moment of which it is certain that the server heard of this node later, or was not there at all.
    reached: watch::Sender<Instant>,
    closing: watch::Receiver<bool>,
}

type Socket = WebSocketStream<Line>;

/// Why a conversation ended.
enum End {
    Lost,
    /// We said goodbye, or nobody listens to what the server says any more.
    Closed,
    Fenced(String),
}

impl Keeper {
    async fn keep(mut self) {
        let mut pause = FIRST_PAUSE;
        loop {
            let begun = Instant::now();
            let end = match timeout(CONNECT_WITHIN, self.connect()).await {
                Ok(Ok(socket)) => {
                    self.reached.send_replace(begun);
                    tracing::info!("connected to the server");
                    self.converse(socket, &mut pause).await
                }
                // Only the installation that made this a node can take that back: another server may have come to
                // listen where ours was.
                Ok(Err(tungstenite::Error::Http(answer)))
                    if answer.status() == StatusCode::UNAUTHORIZED
                        && answer.headers().get(INSTANCE_HEADER).is_some_and(|told| told == self.instance.as_str()) =>
                {
                    End::Fenced("the server does not know this node any more".to_owned())
                }
                Ok(Err(error)) => {
                    if is_refusal(&error) {
                        // Its machine answers that no server runs there. One that starts gives every node its whole lease.
                        self.reached.send_replace(begun);
                    }
                    self.say_distrust(&error);
                    tracing::debug!(%error, "cannot connect to the server yet");
                    End::Lost
                }
                Err(_) => End::Lost,
            };
            match end {
                // Nobody is there to hear a last word.
                End::Lost if *self.closing.borrow() => return,
                End::Lost => {}
                End::Closed => return,
                End::Fenced(reason) => {
                    let _ = self.events.send(Event::Fenced(reason)).await;
                    return;
                }
            }
            sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// A certificate that is not trusted and a version that is not understood do not mend themselves: the operator must hear of it.
    fn say_distrust(&self, error: &tungstenite::Error) {
        if let tungstenite::Error::Http(answer) = error
            && answer.status() == StatusCode::UPGRADE_REQUIRED
        {
            let server = self.config.present_server();
            tracing::error!(
                server,
                "the server does not understand this version of the agent, or is older: upgrade the server first, then the agents; trying again"
            );
        }
        if let Some(reason) = ws_stream::distrust(error) {
            let server = self.config.present_server();
            tracing::error!(%reason, server, "the server's certificate is not trusted: give its authority with --ca or --ca-fingerprint; trying again");
        }
    }

    async fn connect(&self) -> Result<Socket, tungstenite::Error> {
        let url = self.config.ws_url(CONNECT_PATH).unwrap_or_default();
        let mut request = url.as_str().into_client_request()?;
        request.headers_mut().insert(AUTHORIZATION, self.authorization.clone());
        request.headers_mut().insert(PROTOCOL_HEADER, HeaderValue::from(PROTOCOL));
        let line = ws_stream::open(request.uri(), &self.tls).await?;
        Ok(client_async(request, line).await?.0)
    }

    async fn converse(&mut self, socket: Socket, pause: &mut Duration) -> End {
        let (mut sink, mut stream) = socket.split();
        let mut beat = interval(self.heartbeat);
        beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut heard = Instant::now();
        let mut pings = Pings::default();
        let mut news = News::default();
        let (answers, mut looks) = mpsc::channel(1);
        let (recorded, mut recordings) = mpsc::channel(1);
        self.observed.mark_changed();
        loop {
            if *self.closing.borrow() {
                return self.say_goodbye(sink, stream).await;
            }
            let sent = tokio::select! {
                message = stream.next() => {
                    heard = Instant::now();
                    *pause = FIRST_PAUSE;
                    match message {
                        Some(Ok(Message::Text(text))) => match self.on_message(&text, &answers, &recorded).await {
                            Some(end) => return end,
                            None => Ok(()),
                        },
                        Some(Ok(Message::Pong(number))) => {
                            if let Some(sent) = pings.answered(&number) {
                                self.reached.send_replace(sent);
                            }
                            Ok(())
                        }
                        Some(Ok(Message::Close(_)) | Err(_)) | None => return End::Lost,
                        Some(Ok(_)) => Ok(()),
                    }
                }
                Ok(()) = self.observed.changed() => {
                    if news.is_urgent(&self.observed.borrow_and_update().node, Instant::now()) {
                        self.tell(&mut sink, &mut news).await
                    } else {
                        Ok(())
                    }
                }
                Some(figures) = looks.recv() => send(&mut sink, [text(&FromNode::Figures(figures))]).await,
                Some(recording) = recordings.recv() => send(&mut sink, [text(&FromNode::Recording(recording))]).await,
                () = at(news.due()) => self.tell(&mut sink, &mut news).await,
                _ = beat.tick() => {
                    if heard.elapsed() > SILENCE {
                        return End::Lost;
                    }
                    // The ping makes the server answer, so that a dead line is noticed.
                    send(&mut sink, [text(&FromNode::Heartbeat), Message::Ping(pings.next().into())]).await
                }
                Ok(()) = self.closing.changed() => Ok(()),
            };
            if sent.is_err() {
                return End::Lost;
            }
        }
    }

    async fn tell(&self, sink: &mut SplitSink<Socket, Message>, news: &mut News) -> Result<(), NotSent> {
        let observed = self.observed.borrow().clone();
        let sent = send(sink, [text(&observed.message(Instant::now()))]).await;
        news.told(observed.node);
        sent
    }

    async fn on_message(
        &self,
        text: &str,
        answers: &mpsc::Sender<TaskFigures>,
        recorded: &mpsc::Sender<FromRecording>,
    ) -> Option<End> {
        let event = match serde_json::from_str(text) {
            Ok(ToNode::Desired(desired)) => Event::Desired(Box::new(desired)),
            Ok(ToNode::Fenced { reason }) => return Some(End::Fenced(reason)),
            Ok(ToNode::Look) => {
                self.look(answers.clone());
                return None;
            }
            Ok(ToNode::Record { number, millis, most_bytes }) => {
                self.record(Wish { number, millis, most_bytes }, recorded.clone());
                return None;
            }
            Err(error) => {
                tracing::warn!(%error, "a message of the server cannot be understood: is it of another version?");
                return None;
            }
        };
        self.events.send(event).await.err().map(|_| End::Closed)
    }

    /// Measuring takes a moment, which nothing else waits for. Whoever looks again meanwhile sees the same.
    fn look(&self, answers: mpsc::Sender<TaskFigures>) {
        let Ok(place) = answers.try_reserve_owned() else { return };
        let (tags, attempt) = self.running();
        tokio::task::spawn_blocking(move || place.send(process_stats::look(&tags, attempt)));
    }

    /// For as long as it lasts; what was recorded is sent one rank after the other, and not at all when the connection is lost.
    fn record(&self, wish: Wish, recorded: mpsc::Sender<FromRecording>) {
        let (tags, attempt) = self.running();
        tokio::task::spawn_blocking(move || {
            timeline_recording::record(&tags, attempt, wish, |one| drop(recorded.blocking_send(one)));
        });
    }

    fn running(&self) -> (TagPrefix, Option<AttemptId>) {
        (self.tags.clone(), self.observed.borrow().node.task.as_ref().map(|task| task.attempt.clone()))
    }

    /// The last state, then a close that waits for the other side: a connection cut with unread bytes in it may take the
    /// last state with it.
    async fn say_goodbye(&mut self, mut sink: SplitSink<Socket, Message>, mut stream: SplitStream<Socket>) -> End {
        let last = self.observed.borrow().message(Instant::now());
        if send(&mut sink, [text(&last), Message::Close(None)]).await.is_err() {
            return End::Lost;
        }
        let _ = timeout(FAREWELL, async { while let Some(Ok(_)) = stream.next().await {} }).await;
        End::Closed
    }
}

/// When the pings that are not answered yet were sent, by number.
#[derive(Default)]
struct Pings {
    last: u64,
    sent: VecDeque<(u64, Instant)>,
}

impl Pings {
    fn next(&mut self) -> Vec<u8> {
        self.last += 1;
        self.sent.push_back((self.last, Instant::now()));
        self.last.to_be_bytes().to_vec()
    }

    /// When the answered one was sent. Answers come in order, but not to every ping.
    fn answered(&mut self, number: &[u8]) -> Option<Instant> {
        let number = u64::from_be_bytes(number.try_into().ok()?);
        let mut at = None;
        while let Some((first, sent)) = self.sent.front()
            && *first <= number
        {
            at = Some(*sent);
            self.sent.pop_front();
        }
        at
    }
}

fn is_refusal(error: &tungstenite::Error) -> bool {
    matches!(error, tungstenite::Error::Io(error) if error.kind() == io::ErrorKind::ConnectionRefused)
}

/// Never, without a moment.
async fn at(moment: Option<Instant>) {
    match moment {
        Some(moment) => sleep_until(moment).await,
        None => pending().await,
    }
}

struct NotSent;

async fn send(
    sink: &mut SplitSink<Socket, Message>,
    messages: impl IntoIterator<Item = Message>,
) -> Result<(), NotSent> {
    for message in messages {
        match timeout(SILENCE, sink.send(message)).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) | Err(_) => return Err(NotSent),
        }
    }
    Ok(())
}

fn text(message: &FromNode) -> Message {
    Message::text(serde_json::to_string(message).expect("our own messages have string keys only"))
}
