//! Joins the WebSocket of a tunnel with a local byte stream, for clients and agents alike. A slow reader slows the
//! writer down: at most one message is on its way in each direction beside the buffers of the sockets.
//!
//! An empty message is the end of the stream in its direction; both directions end on their own, as in TCP.

use std::io;
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use corro_model::node::{MAX_TUNNEL_MESSAGE, close_reason};
use futures_util::{Sink, SinkExt, Stream, StreamExt};
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::time::timeout;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, WebSocketConfig};
use tokio_tungstenite::tungstenite::{self, Message};

/// The server sends a ping every 15 s, so silence means that it is gone.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(60);
/// How long the end of a tunnel waits for the peer's close frame.
pub(super) const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);
const READ_BUFFER: usize = 16 * 1024;

/// Why a tunnel ended before both of its streams.
#[derive(Debug, Error)]
pub enum TunnelError {
    /// The other end or the server broke the tunnel off, or it ended here for the reason that the caller gave.
    #[error("{reason}")]
    Closed { reason: String },
    #[error("the connection to the server broke")]
    Lost { source: Option<Box<tungstenite::Error>> },
    #[error("the server was silent for {} seconds", SILENCE_TIMEOUT.as_secs())]
    Silent,
    #[error("the local connection broke")]
    Local {
        #[source]
        source: io::Error,
    },
}

/// Buffer sizes and limits of a tunnel's WebSocket.
pub fn socket_config() -> WebSocketConfig {
    WebSocketConfig::default()
        .max_message_size(Some(MAX_TUNNEL_MESSAGE))
        .max_frame_size(Some(MAX_TUNNEL_MESSAGE))
        .read_buffer_size(READ_BUFFER)
        .write_buffer_size(0)
        .max_write_buffer_size(4 * MAX_TUNNEL_MESSAGE)
}

/// Like [`splice`], for a TCP connection, which is reset if the tunnel breaks off: its peer must not take what has
/// arrived for the whole.
pub async fn splice_tcp<S>(
    socket: WebSocketStream<S>,
    mut stream: TcpStream,
    ended: impl Future<Output = String>,
) -> Result<(), TunnelError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let result = splice(socket, &mut stream, ended).await;
    if result.is_err() {
        // An error means that the connection is closed already.
        let _ = stream.set_zero_linger();
    }
    result
}

/// Copies in both directions until both have ended. `ended` breaks the tunnel off with a reason.
pub async fn splice<S, L>(
    socket: WebSocketStream<S>,
    local: L,
    ended: impl Future<Output = String>,
) -> Result<(), TunnelError>
where
    S: AsyncRead + AsyncWrite + Unpin,
    L: AsyncRead + AsyncWrite + Unpin,
{
    let (mut sink, mut stream) = socket.split();
    let (mut from_local, mut to_local) = tokio::io::split(local);
    let (received_sender, received) = oneshot::channel();
    let incoming = async {
        receive_all(&mut stream, &mut to_local).await?;
        let _ = received_sender.send(());
        // The peer may still break the tunnel off while it receives.
        while receive(&mut stream).await?.is_some() {}
        Ok(())
    };
    let outgoing = async {
        send_all(&mut from_local, &mut sink).await?;
        match received.await {
            Ok(()) => Ok(()),
            // `incoming` has an error.
            Err(_) => std::future::pending().await,
        }
    };
    let result = tokio::select! {
        end = outgoing => end,
        end = incoming => end,
        reason = ended => Err(TunnelError::Closed { reason }),
    };
    let reason = result.as_ref().err().map(ToString::to_string);
    // The peer's close frame is read too: a socket that is closed with unread input may discard what was sent.
    let _ = timeout(CLOSE_TIMEOUT, async {
        if close(&mut sink, reason).await.is_ok() {
            while let Some(Ok(_)) = stream.next().await {}
        }
    })
    .await;
    result
}

/// Sends a close frame; with a reason, one that breaks the tunnel off.
pub(super) async fn close(
    sink: &mut (impl Sink<Message, Error = tungstenite::Error> + Unpin),
    reason: Option<String>,
) -> Result<(), tungstenite::Error> {
    let (code, reason) = match reason {
        Some(reason) => (CloseCode::Error, reason),
        None => (CloseCode::Normal, String::new()),
    };
    let reason = close_reason(&reason).into();
    sink.send(Message::Close(Some(CloseFrame { code, reason }))).await
}

/// Sends what the local stream has until its end.
async fn send_all(
    local: &mut (impl AsyncRead + Unpin),
    sink: &mut (impl Sink<Message, Error = tungstenite::Error> + Unpin),
) -> Result<(), TunnelError> {
    let mut buffer = BytesMut::new();
    loop {
        buffer.reserve(MAX_TUNNEL_MESSAGE);
        let mut limited = (&mut buffer).limit(MAX_TUNNEL_MESSAGE);
        local.read_buf(&mut limited).await.map_err(|source| TunnelError::Local { source })?;
        let piece = buffer.split().freeze();
        let is_end = piece.is_empty();
        sink.send(Message::Binary(piece)).await.map_err(lost)?;
        if is_end {
            return Ok(());
        }
    }
}

/// Writes what is received to the local stream, and ends that at the end.
async fn receive_all<R>(stream: &mut R, local: &mut (impl AsyncWrite + Unpin)) -> Result<(), TunnelError>
where
    R: Stream<Item = Result<Message, tungstenite::Error>> + Unpin,
{
    while let Some(piece) = receive(stream).await? {
        local.write_all(&piece).await.map_err(|source| TunnelError::Local { source })?;
    }
    // An error means that the local peer has closed the connection, which it may.
    let _ = local.shutdown().await;
    Ok(())
}

/// Next piece of data; `None` at the end of the stream.
pub(super) async fn receive<R>(stream: &mut R) -> Result<Option<Bytes>, TunnelError>
where
    R: Stream<Item = Result<Message, tungstenite::Error>> + Unpin,
{
    loop {
        match timeout(SILENCE_TIMEOUT, stream.next()).await.map_err(|_| TunnelError::Silent)? {
            Some(Ok(Message::Binary(piece))) => return Ok(Some(piece).filter(|piece| !piece.is_empty())),
            Some(Ok(Message::Close(frame))) => return closed(frame),
            // Pings are answered by the library.
            Some(Ok(_)) => {}
            Some(Err(error)) => return Err(lost(error)),
            None => return Err(TunnelError::Lost { source: None }),
        }
    }
}

fn closed(frame: Option<CloseFrame>) -> Result<Option<Bytes>, TunnelError> {
    match frame {
        Some(CloseFrame { code: CloseCode::Normal, .. }) => Ok(None),
        Some(CloseFrame { reason, .. }) if !reason.is_empty() => {
            Err(TunnelError::Closed { reason: reason.as_str().to_owned() })
        }
        _ => Err(TunnelError::Closed { reason: "the other end closed the tunnel without a reason".to_owned() }),
    }
}

fn lost(error: tungstenite::Error) -> TunnelError {
    TunnelError::Lost { source: Some(Box::new(error)) }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, DuplexStream, duplex};
    use tokio_tungstenite::tungstenite::protocol::Role;

    use super::*;

    /// Both ends of a tunnel with small buffers, and the programs' ends of their local streams.
    async fn tunnel() -> [(WebSocketStream<DuplexStream>, DuplexStream, DuplexStream); 2] {
        let (client, server) = duplex(1000);
        let end = async |stream, role| {
            let (near, far) = duplex(1000);
            (WebSocketStream::from_raw_socket(stream, role, Some(socket_config())).await, near, far)
        };
        [end(client, Role::Client).await, end(server, Role::Server).await]
    }

    fn pattern(seed: u32, length: usize) -> Vec<u8> {
        let mut state = seed;
        let next = |_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        };
        (0..length).map(next).collect()
    }

    #[tokio::test]
    async fn bytes_go_both_ways_at_once_and_each_direction_ends_on_its_own() {
        let [(a, near_a, far_a), (b, near_b, far_b)] = tunnel().await;
        let splices = [tokio::spawn(splice(a, far_a, std::future::pending())), {
            tokio::spawn(splice(b, far_b, std::future::pending()))
        }];
        let (up, down) = (pattern(1, 3 << 20), pattern(2, 2 << 20));
        let exchange = |near: DuplexStream, sent: Vec<u8>| async move {
            let (mut from, mut to) = tokio::io::split(near);
            let write = async {
                to.write_all(&sent).await?;
                to.shutdown().await
            };
            let mut received = Vec::new();
            let (written, read) = tokio::join!(write, from.read_to_end(&mut received));
            written.and(read).expect("no error");
            received
        };
        let (at_a, at_b) = tokio::join!(exchange(near_a, up.clone()), exchange(near_b, down.clone()));
        assert!(at_a == down && at_b == up);
        for one in splices {
            one.await.expect("no panic").expect("it ends in order");
        }
    }

    #[tokio::test]
    async fn a_reader_that_waits_stops_the_writer() {
        let [(a, mut near_a, far_a), (b, near_b, far_b)] = tunnel().await;
        let _splices = [tokio::spawn(splice(a, far_a, std::future::pending())), {
            tokio::spawn(splice(b, far_b, std::future::pending()))
        }];
        let piece = vec![0; 64 * 1024];
        let mut written = 0;
        // Nobody reads from `near_b`.
        while let Ok(result) = timeout(Duration::from_millis(300), near_a.write(&piece)).await {
            written += result.expect("it is open");
            assert!(written < 2 << 20, "nothing is bounded");
        }
        assert!(written > 0);
        drop(near_b);
    }

    #[tokio::test]
    async fn a_tunnel_that_breaks_off_says_why() {
        let [(a, _near_a, far_a), (b, _near_b, far_b)] = tunnel().await;
        let reason = "the job has ended: é".repeat(20);
        let broken = tokio::spawn(splice(b, far_b, std::future::ready(reason.clone())));
        let error = splice(a, far_a, std::future::pending()).await.expect_err("it breaks off");
        let said = error.to_string();
        assert!(said.len() > 100 && reason.starts_with(&said), "{said}");
        assert_eq!(broken.await.expect("no panic").expect_err("its own reason").to_string(), reason);
    }

    #[tokio::test]
    async fn a_peer_that_vanishes_is_an_error() {
        let [(a, _near_a, far_a), (b, ..)] = tunnel().await;
        drop(b);
        let error = splice(a, far_a, std::future::pending()).await.expect_err("the peer is gone");
        assert!(matches!(error, TunnelError::Lost { .. }), "{error:?}");
    }

    #[tokio::test]
    async fn a_local_connection_that_breaks_ends_the_tunnel_on_both_sides() {
        let [(a, near_a, far_a), (b, mut near_b, far_b)] = tunnel().await;
        let other = tokio::spawn(splice(b, far_b, std::future::pending()));
        // The program is gone while data for it arrives.
        drop(near_a);
        let write = async { while near_b.write_all(&[0; 4096]).await.is_ok() {} };
        let (result, ()) = tokio::join!(splice(a, far_a, std::future::pending()), write);
        assert!(matches!(result, Err(TunnelError::Local { .. })), "{result:?}");
        let other = other.await.expect("no panic").expect_err("it is told");
        assert_eq!(other.to_string(), "the local connection broke");
    }
}
