//! TCP forwarding through an SSH connection (`direct-tcpip`).

use std::time::Duration;

use russh::server::{ChannelOpenHandle, Msg};
use russh::{Channel, ChannelOpenFailure};
use tokio::io::copy_bidirectional;
use tokio::net::TcpStream;
use tokio::time::timeout;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Connects before accepting, so that the client learns of a failure.
pub async fn serve(channel: Channel<Msg>, host: &str, port: u16, reply: ChannelOpenHandle) {
    let Ok(Ok(mut there)) = timeout(CONNECT_TIMEOUT, TcpStream::connect((host, port))).await else {
        return reply.reject(ChannelOpenFailure::ConnectFailed).await;
    };
    reply.accept().await;
    // Either side may close at any time.
    let _ = copy_bidirectional(&mut channel.into_stream(), &mut there).await;
}
