//! TLS handshake of an accepted connection. A client that speaks plain HTTP gets an error that names TLS.

use std::time::Duration;

use corro_model::ApiError;
use tokio::io::AsyncWriteExt;
use tokio_rustls::server::TlsStream;

use super::abortable_io::AbortableIo;
use crate::tls::Tls;

/// Limit on reading the rest of a plain HTTP request.
const PLAIN_HTTP_DRAIN: Duration = Duration::from_millis(500);

/// Accepts TLS. `None` when the handshake fails. A client that speaks plain HTTP gets a response that says so.
pub(super) async fn accept_tls(mut stream: AbortableIo, tls: &Tls) -> Option<TlsStream<AbortableIo>> {
    let mut first = [0; 1];
    let looks_like_http = stream.stream.peek(&mut first).await.ok()? == 1 && first[0].is_ascii_uppercase();
    if looks_like_http {
        let _ = stream.write_all(plain_http_response().as_bytes()).await;
        let _ = stream.shutdown().await;
        // The request is read to its end, so that a TCP reset does not discard the response.
        let _ = tokio::time::timeout(PLAIN_HTTP_DRAIN, tokio::io::copy(&mut stream, &mut tokio::io::sink())).await;
        return None;
    }
    match tls.acceptor().accept(stream).await {
        Ok(stream) => Some(stream),
        Err(error) => {
            tracing::debug!(%error, "a TLS handshake failed");
            None
        }
    }
}

fn plain_http_response() -> String {
    let error = ApiError::new(400, "HttpsRequired", "This port speaks TLS only: use https:// instead of http://");
    let body = serde_json::to_string(&error.envelope()).expect("answers are plain data");
    let head = "HTTP/1.1 400 Bad Request\r\ncontent-type: application/json; charset=utf-8\r\nconnection: close";
    format!("{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len())
}
