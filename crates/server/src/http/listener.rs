//! HTTP/1.1 listener, with TLS if configured. Limits the number of connections, the size of headers and the time they may take. On
//! shutdown, requests in progress get a grace period.

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::{ConnectInfo, Request};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use corro_file_service::OverTls;
use corro_model::ApiError;
use hyper::body::{Frame, SizeHint};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_rustls::server::TlsStream;
use tokio_util::task::TaskTracker;

use super::conn_threads::PerCoreRuntimes;
use super::request_head::check_head;
use super::response::error_response;
use super::session_revocation::{ConnectionEntry, ConnectionRegistry, RequestAuth};
use crate::connections::{Connection, ConnectionLimits, ConnectionTable};
use crate::tls::Tls;

/// Upper bound regardless of the file limit: beyond this, memory runs out first.
const MAX_CONNECTIONS: usize = 65_536;
/// File descriptors reserved for the database, shares and processes, where the limit allows.
const RESERVED_FILES: u64 = 512;
const HEADER_TIMEOUT: Duration = Duration::from_secs(30);
/// Limit on a TLS handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
const SHUTDOWN_GRACE: Duration = Duration::from_secs(2);

/// Handler of requests. Clones share everything.
pub trait HttpService: Clone + Send + Sync + 'static {
    fn handle(&self, request: Request) -> impl Future<Output = Response> + Send;

    /// Registry for aborting connections with revoked credentials; the default never aborts any.
    fn connections(&self) -> ConnectionRegistry {
        ConnectionRegistry::default()
    }
}

/// Serves until `stop` turns true.
pub async fn serve(listener: TcpListener, tls: Option<Tls>, service: impl HttpService, stop: watch::Receiver<bool>) {
    let total = connection_limit();
    tracing::info!(connections = total, "connection limit");
    serve_within(limits_of(total), listener, tls, service, stop).await;
}

async fn serve_within(
    limits: ConnectionLimits,
    listener: TcpListener,
    tls: Option<Tls>,
    service: impl HttpService,
    mut stop: watch::Receiver<bool>,
) {
    let (service, table, connections) = (Arc::new(service), ConnectionTable::new(limits), TaskTracker::new());
    let mut runtimes = match PerCoreRuntimes::start() {
        Ok(runtimes) => runtimes,
        Err(error) => return tracing::error!(%error, "cannot start the threads that serve connections"),
    };
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stopped(&mut stop) => break,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                // Most likely out of file descriptors: wait until some are free.
                tracing::warn!(%error, "a connection cannot be accepted");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let admitted = tokio::select! {
            admitted = table.admit_when_possible(peer.ip()) => admitted,
            () = stopped(&mut stop) => break,
        };
        let connection = match admitted {
            Ok(connection) => Arc::new(connection),
            Err(refusal) => {
                tracing::debug!(%peer, ?refusal, "a connection is refused");
                continue;
            }
        };
        let _ = stream.set_nodelay(true);
        // Registered again with the I/O driver of the thread that serves it.
        let Ok(stream) = stream.into_std() else { continue };
        let (service, tls, mut stop) = (service.clone(), tls.clone(), stop.clone());
        let serve = async move {
            let Ok(stream) = TcpStream::from_std(stream) else { return };
            let registration = service.connections().register();
            let entry = registration.entry.clone();
            let stream = AbortableIo { stream, entry: entry.clone(), connection: connection.clone() };
            let Some(tls) = tls else {
                return serve_connection(stream, peer, None, service, stop, entry, connection).await;
            };
            let secured = tokio::select! {
                secured = tokio::time::timeout(HANDSHAKE_TIMEOUT, accept_tls(stream, &tls)) => secured,
                () = connection.evicted() => return log_eviction(peer),
                () = stopped(&mut stop) => return,
            };
            if let Ok(Some(stream)) = secured {
                serve_connection(stream, peer, Some(OverTls), service, stop, entry, connection).await;
            }
        };
        connections.spawn_on(serve, &runtimes.next());
    }
    connections.close();
    let _ = tokio::time::timeout(SHUTDOWN_GRACE, connections.wait()).await;
}

/// Serves the requests of one connection until either side closes it.
async fn serve_connection<S, D: HttpService>(
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

/// Socket that is reset on close once its connection is revoked or evicted, so that unsent data is discarded.
struct AbortableIo {
    stream: TcpStream,
    entry: Arc<ConnectionEntry>,
    connection: Arc<Connection>,
}

impl Drop for AbortableIo {
    fn drop(&mut self) {
        if self.entry.is_revoked() || self.connection.is_evicted() {
            let _ = self.stream.set_zero_linger();
        }
    }
}

impl AsyncRead for AbortableIo {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for AbortableIo {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// Accepts TLS. `None` when the handshake fails. A client that speaks plain HTTP gets a response that says so.
async fn accept_tls(mut stream: AbortableIo, tls: &Tls) -> Option<TlsStream<AbortableIo>> {
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

/// Limit on reading the rest of a plain HTTP request.
const PLAIN_HTTP_DRAIN: Duration = Duration::from_millis(500);

fn plain_http_response() -> String {
    let error = ApiError::new(400, "HttpsRequired", "This port speaks TLS only: use https:// instead of http://");
    let body = serde_json::to_string(&error.envelope()).expect("answers are plain data");
    let head = "HTTP/1.1 400 Bad Request\r\ncontent-type: application/json; charset=utf-8\r\nconnection: close";
    format!("{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len())
}

/// A quarter of all connections per address, since a whole site may be behind one. Most connections of a server without TLS are
/// local (agents, their mounts, clients that follow jobs), so loopback may have all but an eighth.
fn limits_of(total: usize) -> ConnectionLimits {
    ConnectionLimits { total, per_address: (total / 4).max(1), per_loopback_address: (total - total / 8).max(1) }
}

/// Connection limit by the process's file limit, which is raised as far as allowed.
fn connection_limit() -> usize {
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    connections_for_files(getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX))
}

/// Connections for this many files: all but a quarter, at least [`RESERVED_FILES`] and at most half.
fn connections_for_files(files: u64) -> usize {
    let reserve = RESERVED_FILES.max(files / 4).min(files / 2);
    usize::try_from(files - reserve).map_or(MAX_CONNECTIONS, |files| files.min(MAX_CONNECTIONS))
}

/// Completes once `stop` is true or its sender is gone.
async fn stopped(stop: &mut watch::Receiver<bool>) {
    let _ = stop.wait_for(|stop| *stop).await;
}

fn log_eviction(peer: SocketAddr) {
    tracing::debug!(%peer, "an idle connection is evicted for a new one");
}

fn log_end(ended: hyper::Result<()>) {
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ended early");
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt;

    use super::*;

    #[test]
    fn connections_leave_file_descriptors_to_others() {
        for (files, connections) in [(256, 128), (1_024, 512), (4_096, 3_072), (20_000, 15_000), (u64::MAX, 65_536)] {
            assert_eq!(connections_for_files(files), connections, "{files}");
        }
    }

    /// Responds with the path; `/hold` is answered when the test releases it.
    #[derive(Clone)]
    struct EchoService(watch::Receiver<bool>);

    impl HttpService for EchoService {
        async fn handle(&self, request: Request) -> Response {
            if request.uri().path() == "/hold" {
                stopped(&mut self.0.clone()).await;
            }
            Response::new(Body::from(request.uri().path().to_owned()))
        }
    }

    async fn send_request(stream: &mut TcpStream, path: &str) -> io::Result<()> {
        stream.write_all(format!("GET {path} HTTP/1.1\r\nhost: test\r\n\r\n").as_bytes()).await
    }

    /// Reads until the whole body, which is the path, has arrived. Fails when the connection closes before.
    async fn receive_response(stream: &mut TcpStream, path: &str) -> io::Result<()> {
        let mut got = Vec::new();
        while !got.ends_with(format!("\r\n\r\n{path}").as_bytes()) {
            if stream.read_buf(&mut got).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(())
    }

    #[tokio::test]
    async fn idle_connections_of_loopback_give_way_and_requests_are_answered() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let (stop, stopping) = watch::channel(false);
        let (release, released) = watch::channel(false);
        let limits = ConnectionLimits { total: 100, per_address: 10, per_loopback_address: 40 };
        let serving = tokio::spawn(serve_within(limits, listener, None, EchoService(released), stopping));
        let connect = async || TcpStream::connect(address).await.expect("a connection");
        let (mut held, mut used) = (connect().await, connect().await);
        send_request(&mut held, "/hold").await.expect("sent");
        send_request(&mut used, "/used").await.expect("sent");
        receive_response(&mut used, "/used").await.expect("answered");
        let mut idle = Vec::new();
        for number in 0..200 {
            let mut stream = connect().await;
            if number % 2 == 0 {
                // A partial request does not protect its connection.
                stream.write_all(b"GET / HTTP/1.1\r\nhost:").await.expect("sent");
            }
            idle.push(stream);
        }
        let mut late = connect().await;
        send_request(&mut late, "/late").await.expect("sent");
        receive_response(&mut late, "/late").await.expect("the request is answered");
        // 40 are open: one with a request in progress, the used one, the late one and the last 37 idle ones.
        for stream in &mut idle[..200 - 37] {
            assert!(matches!(stream.read(&mut [0; 1]).await, Ok(0) | Err(_)), "an idle one stays open");
        }
        for stream in &mut idle[200 - 37..] {
            let open = stream.try_read(&mut [0; 1]);
            assert!(open.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock), "a newer one is closed");
        }
        send_request(&mut used, "/again").await.expect("sent");
        receive_response(&mut used, "/again").await.expect("it was kept");
        release.send_replace(true);
        receive_response(&mut held, "/hold").await.expect("a request in progress is never given up");
        stop.send_replace(true);
        serving.await.expect("it ends");
    }

    #[tokio::test]
    async fn ambiguous_heads_are_refused_and_end_the_connection() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let (stop, stopping) = watch::channel(false);
        let serving =
            tokio::spawn(serve_within(limits_of(100), listener, None, EchoService(stopping.clone()), stopping));
        for (head, names) in [
            ("GET / HTTP/1.1\r\nhost: a\r\nhost: b", "host"),
            ("GET / HTTP/1.1\r\nhost: a\r\nHost: a", "host"),
            ("GET http://b/ HTTP/1.1\r\nhost: a", "host"),
            ("GET / HTTP/1.1\r\naccept: x", "host"),
            ("GET / HTTP/1.1\r\nhost: a\r\nauthorization: x\r\nauthorization: y", "authorization"),
            ("GET / HTTP/1.1\r\nhost: a\r\nx-ms-date: x\r\nx-ms-date: y", "x-ms-date"),
            ("PUT / HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\ncontent-length: 3", ""),
            ("PUT / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked, identity", ""),
        ] {
            let mut stream = TcpStream::connect(address).await.expect("a connection");
            stream.write_all(format!("{head}\r\n\r\n").as_bytes()).await.expect("sent");
            let mut answer = Vec::new();
            stream.read_to_end(&mut answer).await.expect("an answer, and the end");
            let answer = String::from_utf8_lossy(&answer);
            assert!(answer.starts_with("HTTP/1.1 400 ") && answer.contains(names), "{head}: {answer}");
        }
        stop.send_replace(true);
        serving.await.expect("it ends");
    }

    #[test]
    fn loopback_has_a_limit_too() {
        let limits = limits_of(15_000);
        assert_eq!((limits.total, limits.per_address, limits.per_loopback_address), (15_000, 3_750, 13_125));
        let small = limits_of(1);
        assert_eq!((small.per_address, small.per_loopback_address), (1, 1));
    }
}
