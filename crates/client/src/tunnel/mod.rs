//! Tunnels: byte streams to ports of a running job's node, each a WebSocket to the server with the login of this
//! client. The server refuses a tunnel before the upgrade, so its error is an ordinary one.

mod splice;

use bytes::{Bytes, BytesMut};
use corro_model::ApiError;
use corro_model::node::TunnelTarget;
use corro_model::ops::JobsTunnel;
use futures_util::{SinkExt, StreamExt};
use reqwest::{Method, StatusCode, Upgraded};
use tokio::io::DuplexStream;
use tokio::net::TcpStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::client::generate_key;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::Role;

use crate::ClientError;
use crate::client::{Client, Values};
use crate::response::check_status;

pub use splice::{TunnelError, socket_config, splice, splice_tcp};

/// Buffer between a tunnel and the program part that uses it as a stream.
const STREAM_BUFFER: usize = 64 * 1024;

/// An open tunnel.
#[derive(Debug)]
pub struct Tunnel {
    socket: WebSocketStream<Upgraded>,
}

impl Client {
    /// Opens a tunnel to `target` on a node of a job; without an id, on its first node. Returns when the target has
    /// accepted the connection.
    pub async fn open_tunnel(
        &self,
        job: &Values<'_>,
        target: TunnelTarget,
        node: Option<&str>,
    ) -> Result<Tunnel, ClientError> {
        let target = target.to_string();
        let path = [job, &[("target", target.as_str())]].concat();
        let query: Vec<_> = node.map(|node| ("node", node)).into_iter().collect();
        let (url, key) = (self.url_of::<JobsTunnel>(&path, &query), generate_key());
        let headers = [
            ("accept", "application/json"),
            ("connection", "Upgrade"),
            ("upgrade", "websocket"),
            ("sec-websocket-version", "13"),
            ("sec-websocket-key", key.as_str()),
        ];
        let response = self.open(Method::GET, &url, &headers).await?;
        if response.status() != StatusCode::SWITCHING_PROTOCOLS {
            let answer = check_status(self.transport().whole(response).await?)?;
            let text = "the server did not open a WebSocket: does a proxy in front of it pass WebSockets on?";
            return Err(ClientError::Api(ApiError::new(answer.status.as_u16(), "NoWebSocket", text)));
        }
        let accepted = response.headers().get("sec-websocket-accept").is_some_and(|accept| {
            // Proves that the peer speaks the protocol and has not answered from a cache.
            accept.as_bytes() == derive_accept_key(key.as_bytes()).as_bytes()
        });
        let broken = |source: Box<dyn std::error::Error + Send + Sync>| ClientError::Broken {
            server: self.server().to_owned(),
            source,
        };
        if !accepted {
            return Err(broken("the answer to the WebSocket request does not belong to it".into()));
        }
        let upgraded = response.upgrade().await.map_err(|source| broken(source.into()))?;
        Ok(Tunnel { socket: WebSocketStream::from_raw_socket(upgraded, Role::Client, Some(socket_config())).await })
    }
}

impl Tunnel {
    /// Joins the tunnel with a connection of this machine until both have ended. An error resets the connection.
    pub async fn run(self, stream: TcpStream) -> Result<(), TunnelError> {
        splice_tcp(self.socket, stream, std::future::pending()).await
    }

    /// The tunnel as a stream. A tunnel that breaks off ends the stream.
    pub fn into_stream(self) -> DuplexStream {
        let (near, far) = tokio::io::duplex(STREAM_BUFFER);
        // The task ends with the stream: reading from it fails once the other half is dropped.
        tokio::spawn(splice(self.socket, far, std::future::pending()));
        near
    }

    /// Reads until the other end has sent everything, at most `limit` bytes.
    pub async fn read_to_end(mut self, limit: usize) -> Result<Bytes, TunnelError> {
        let lost = |source| TunnelError::Lost { source: Some(Box::new(source)) };
        self.socket.send(Message::Binary(Bytes::new())).await.map_err(lost)?;
        let mut content = BytesMut::new();
        loop {
            match splice::receive(&mut self.socket).await? {
                Some(piece) if content.len() + piece.len() > limit => {
                    return Err(TunnelError::Closed { reason: format!("more than {limit} bytes were sent") });
                }
                Some(piece) => content.extend_from_slice(&piece),
                None => break,
            }
        }
        let _ = splice::close(&mut self.socket, None).await;
        // The close frame of the other end is read, so that the socket closes in order.
        let _ =
            tokio::time::timeout(splice::CLOSE_TIMEOUT, async { while let Some(Ok(_)) = self.socket.next().await {} })
                .await;
        Ok(content.freeze())
    }
}
