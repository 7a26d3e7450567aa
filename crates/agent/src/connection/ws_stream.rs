//! Byte stream below the WebSocket: TCP, or TLS over TCP for an `https://` server. Never falls back to plain TCP.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::{TlsConnector, rustls};
use tokio_tungstenite::tungstenite::http::Uri;

use corro_client::{Trust, TrustError};

use crate::config::AgentConfig;

/// A connected stream, plain or encrypted.
pub enum WsStream {
    Plain(TcpStream),
    Secure(Box<TlsStream<TcpStream>>),
}

/// TLS configuration for the server. The system's root certificates are loaded only if they are needed.
pub fn tls_for(config: &AgentConfig) -> Result<TlsConnector, TrustError> {
    let plain = config.present_server().starts_with("http://") && config.trust == Trust::System;
    let trust = if plain { Trust::none() } else { config.trust.clone() };
    Ok(TlsConnector::from(Arc::new(trust.client_config()?)))
}

/// Connects to the host and port of `uri`, with TLS for `wss`.
pub async fn open(uri: &Uri, tls: &TlsConnector) -> io::Result<WsStream> {
    let host = uri.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
    let secure = uri.scheme_str() == Some("wss");
    let port = uri.port_u16().unwrap_or(if secure { 443 } else { 80 });
    let stream = TcpStream::connect((host, port)).await?;
    stream.set_nodelay(true)?;
    if !secure {
        return Ok(WsStream::Plain(stream));
    }
    let name = ServerName::try_from(host.to_owned()).map_err(|_| io::ErrorKind::InvalidInput)?;
    Ok(WsStream::Secure(Box::new(tls.connect(name, stream).await?)))
}

/// Reason why the server's certificate was rejected, if the error is of that kind.
pub fn certificate_error(error: &tokio_tungstenite::tungstenite::Error) -> Option<String> {
    let tokio_tungstenite::tungstenite::Error::Io(error) = error else { return None };
    match error.get_ref()?.downcast_ref()? {
        rustls::Error::InvalidCertificate(reason) => Some(format!("{reason}")),
        _ => None,
    }
}

macro_rules! either {
    ($stream_enum:expr, $stream:ident => $call:expr) => {
        match $stream_enum.get_mut() {
            WsStream::Plain($stream) => {
                let $stream = Pin::new($stream);
                $call
            }
            WsStream::Secure($stream) => {
                let $stream = Pin::new(&mut **$stream);
                $call
            }
        }
    };
}

impl AsyncRead for WsStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        either!(self, stream => stream.poll_read(cx, buf))
    }
}

impl AsyncWrite for WsStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        either!(self, stream => stream.poll_write(cx, buf))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        either!(self, stream => stream.poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        either!(self, stream => stream.poll_shutdown(cx))
    }
}
