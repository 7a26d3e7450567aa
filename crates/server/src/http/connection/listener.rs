//! HTTP/1.1 listener, with TLS if configured. Limits the number of connections, the size of headers and the time they may take. On
//! shutdown, requests in progress get a grace period.

use std::sync::Arc;
use std::time::Duration;

use corro_file_service::OverTls;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_util::task::TaskTracker;

use super::abortable_io::AbortableIo;
use super::conn_threads::PerCoreRuntimes;
use super::http1::serve_connection;
use super::limits::{connection_limit, limits_of};
use super::tls_accept::accept_tls;
use super::{HttpService, SHUTDOWN_GRACE, log_eviction, stopped};
use crate::connections::{ConnectionLimits, ConnectionTable};
use crate::tls::Tls;

/// Limit on a TLS handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

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

#[cfg(test)]
mod tests {
    use std::io;

    use axum::body::Body;
    use axum::extract::Request;
    use axum::response::Response;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::sync::Notify;

    use super::*;

    /// Responds with the path; `/hold` is answered when the test releases it.
    #[derive(Clone)]
    struct EchoService {
        released: watch::Receiver<bool>,
        is_held: Arc<Notify>,
    }

    impl EchoService {
        fn new(released: watch::Receiver<bool>) -> EchoService {
            EchoService { released, is_held: Arc::new(Notify::new()) }
        }
    }

    impl HttpService for EchoService {
        async fn handle(&self, request: Request) -> Response {
            if request.uri().path() == "/hold" {
                self.is_held.notify_one();
                stopped(&mut self.released.clone()).await;
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
        let service = EchoService::new(released);
        let is_held = service.is_held.clone();
        let serving = tokio::spawn(serve_within(limits, listener, None, service, stopping));
        let connect = async || TcpStream::connect(address).await.expect("a connection");
        let (mut held, mut used) = (connect().await, connect().await);
        send_request(&mut held, "/hold").await.expect("sent");
        // Until its request has arrived, it is the oldest that waits.
        is_held.notified().await;
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
            tokio::spawn(serve_within(limits_of(100), listener, None, EchoService::new(stopping.clone()), stopping));
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
}
