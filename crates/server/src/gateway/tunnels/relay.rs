//! Relay between the two WebSockets of a tunnel. Each direction reads the next message once the last one was sent, so a slow
//! reader slows the writer down and little is buffered. A close frame of one side goes to the other.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use axum::extract::ws::{CloseFrame, Message, WebSocket, close_code};
use corro_model::node::close_reason;
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};

/// Interval of pings to both sides: they keep proxies from closing a quiet connection, and tell both that the server is there.
const PING_INTERVAL: Duration = Duration::from_secs(15);
/// A tunnel without data in either direction is closed after this time.
const IDLE_TIMEOUT: Duration = Duration::from_secs(3600);
/// How long the end waits for both sides to take it.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// How a direction ended.
enum DirectionEnd {
    /// The sender closed with this frame.
    Closed(Option<CloseFrame>),
    /// The sender vanished without a close frame.
    Lost,
    /// The receiver takes no more.
    NotTaken,
}

/// Relays until one side closes or vanishes, `broken` resolves with a reason, or the tunnel was idle for too long.
pub(super) async fn relay(client: WebSocket, agent: WebSocket, broken: impl Future<Output = String>) {
    let (mut to_client, mut from_client) = client.split();
    let (mut to_agent, mut from_agent) = agent.split();
    let last_data = Mutex::new(Instant::now());
    let (for_client, for_agent) = tokio::select! {
        end = forward(&mut from_client, &mut to_agent, &last_data) => match end {
            DirectionEnd::Closed(frame) => (None, Some(frame)),
            DirectionEnd::Lost => (None, Some(break_off("the client is gone"))),
            DirectionEnd::NotTaken => (Some(break_off("the connection to the node's agent broke")), None),
        },
        end = forward(&mut from_agent, &mut to_client, &last_data) => match end {
            DirectionEnd::Closed(frame) => (Some(frame), None),
            DirectionEnd::Lost => (Some(break_off("the connection to the node's agent broke")), None),
            DirectionEnd::NotTaken => (None, Some(break_off("the client is gone"))),
        },
        reason = broken => (Some(break_off(&reason)), Some(break_off(&reason))),
        () = idle(&last_data) => {
            let reason = format!("no data for {} minutes", IDLE_TIMEOUT.as_secs() / 60);
            (Some(break_off(&reason)), Some(break_off(&reason)))
        }
    };
    // Both are read to their end: a socket that is closed with unread input may discard what was sent.
    let (client_end, agent_end) =
        (finish(&mut to_client, &mut from_client, for_client), finish(&mut to_agent, &mut from_agent, for_agent));
    let _ = timeout(CLOSE_TIMEOUT, async { tokio::join!(client_end, agent_end) }).await;
}

async fn forward(
    from: &mut SplitStream<WebSocket>,
    to: &mut SplitSink<WebSocket, Message>,
    last_data: &Mutex<Instant>,
) -> DirectionEnd {
    let mut pings = interval(PING_INTERVAL);
    pings.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let message = tokio::select! {
            received = from.next() => match received {
                Some(Ok(Message::Binary(data))) => Message::Binary(data),
                Some(Ok(Message::Close(frame))) => return DirectionEnd::Closed(frame),
                // Pings are answered by the library.
                Some(Ok(_)) => continue,
                Some(Err(_)) | None => return DirectionEnd::Lost,
            },
            _ = pings.tick() => Message::Ping(Default::default()),
        };
        let is_data = matches!(message, Message::Binary(_));
        if to.send(message).await.is_err() {
            return DirectionEnd::NotTaken;
        }
        if is_data {
            *last_data.lock().expect("never poisoned: nothing panics while it is locked") = Instant::now();
        }
    }
}

async fn idle(last_data: &Mutex<Instant>) {
    loop {
        let quiet = last_data.lock().expect("never poisoned: nothing panics while it is locked").elapsed();
        match IDLE_TIMEOUT.checked_sub(quiet) {
            Some(left) if !left.is_zero() => sleep(left).await,
            _ => return,
        }
    }
}

fn break_off(reason: &str) -> Option<CloseFrame> {
    Some(CloseFrame { code: close_code::ERROR, reason: close_reason(reason).into() })
}

/// Sends a close frame, if one is to be sent, and reads to the end.
async fn finish(
    to: &mut SplitSink<WebSocket, Message>,
    from: &mut SplitStream<WebSocket>,
    frame: Option<Option<CloseFrame>>,
) {
    if let Some(frame) = frame
        && to.send(Message::Close(frame)).await.is_err()
    {
        return;
    }
    while let Some(Ok(_)) = from.next().await {}
}
