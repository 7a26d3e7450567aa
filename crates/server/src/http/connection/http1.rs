//! Requests of one connection: their heads are checked, credentials and peer attached, and their bodies tracked, so that a
//! connection with a request in progress is not evicted.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::ConnectInfo;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use corro_file_service::OverTls;
use corro_model::ApiError;
use hyper::body::{Frame, SizeHint};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;

use super::request_head::check_head;
use super::session_revocation::{ConnectionEntry, RequestAuth};
use super::{HttpService, SHUTDOWN_GRACE, log_eviction, stopped};
use crate::connections::Connection;
use crate::http::response::error_response;

const HEADER_TIMEOUT: Duration = Duration::from_secs(30);

/// Serves the requests of one connection until either side closes it.
pub(super) async fn serve_connection<S, D: HttpService>(
    stream: S,
    peer: SocketAddr,
    over_tls: Option<OverTls>,
    service: Arc<D>,
    mut stop: watch::Receiver<bool>,
    entry: Arc<ConnectionEntry>,
    connection: Arc<Connection>,
) where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let (auth, own) = (RequestAuth(entry.clone()), connection.clone());
    let http_service = service_fn(move |request: hyper::Request<hyper::body::Incoming>| {
        let (service, connection) = (service.clone(), own.clone());
        let is_admitted = connection.begin_request();
        let mut request = request.map(Body::new);
        // SAS URLs may be limited to client addresses or to TLS.
        request.extensions_mut().insert(ConnectInfo(peer));
        auth.0.clear();
        request.extensions_mut().insert(auth.clone());
        if let Some(over_tls) = over_tls {
            request.extensions_mut().insert(over_tls);
        }
        async move {
            if !is_admitted {
                return Err(ConnectionEvicted);
            }
            let in_progress = RequestGuard(connection);
            let response = match check_head(request.version(), request.uri(), request.headers()) {
                Ok(()) => service.handle(request).await,
                Err(error) => refuse_head(&error),
            };
            if response.status() == StatusCode::SWITCHING_PROTOCOLS {
                in_progress.0.upgrade();
                return Ok(response);
            }
            Ok(response.map(|body| Body::new(TrackedBody { body, _in_progress: in_progress })))
        }
    });
    let http = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .max_header_size(64 * 1024)
        .max_buf_size(1024 * 1024)
        .serve_connection(TokioIo::new(stream), http_service)
        .with_upgrades();
    tokio::pin!(http);
    tokio::select! {
        ended = http.as_mut() => log_end(ended),
        () = connection.evicted() => log_eviction(peer),
        // Data in flight is dropped with the connection.
        () = entry.revoked() => tracing::info!(%peer, "connection aborted: its credential is no longer valid"),
        () = stopped(&mut stop) => {
            http.as_mut().graceful_shutdown();
            let _ = tokio::time::timeout(SHUTDOWN_GRACE, http).await;
        }
    }
}

/// Refuses an ambiguous request head and closes the connection: the start of the next request is as uncertain.
fn refuse_head(error: &ApiError) -> Response {
    let mut response = error_response(error);
    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    response
}

/// The connection was evicted in favour of another while its request arrived; the request is not handled.
#[derive(Debug, thiserror::Error)]
#[error("the connection was evicted for a new one")]
struct ConnectionEvicted;

/// Marks the connection as busy with a request while it lives.
struct RequestGuard(Arc<Connection>);

impl Drop for RequestGuard {
    fn drop(&mut self) {
        self.0.end_request();
    }
}

/// Response body that keeps its request in progress until it is sent.
struct TrackedBody {
    body: Body,
    _in_progress: RequestGuard,
}

impl HttpBody for TrackedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

fn log_end(ended: hyper::Result<()>) {
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ended early");
    }
}
