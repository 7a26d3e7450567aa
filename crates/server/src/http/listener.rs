//! Accepting connections: HTTP/1.1 with limits on how many there are, how large headers may be and how long they may
//! take. Ends when told to, giving requests in flight a moment.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::ConnectInfo;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};
use tokio_util::task::TaskTracker;

use super::Api;

const MAX_CONNECTIONS: usize = 4096;
const HEADER_DEADLINE: Duration = Duration::from_secs(30);
const SHUTDOWN_GRACE: Duration = Duration::from_secs(2);

/// Serves until `stop` turns true.
pub async fn serve(listener: TcpListener, api: Api, mut stop: watch::Receiver<bool>) {
    let (slots, connections) = (Arc::new(Semaphore::new(connection_limit())), TaskTracker::new());
    loop {
        let slot = slots.clone().acquire_owned().await.expect("the semaphore is never closed");
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stopped(&mut stop) => break,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                // Out of file descriptors, most likely: wait for some to come back.
                tracing::warn!(%error, "a connection cannot be accepted");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let _ = stream.set_nodelay(true);
        let (api, mut stop) = (api.clone(), stop.clone());
        connections.spawn(async move {
            let _slot = slot;
            let service = service_fn(move |request: hyper::Request<hyper::body::Incoming>| {
                let api = api.clone();
                let mut request = request.map(Body::new);
                // Links that are limited to addresses are checked against it.
                request.extensions_mut().insert(ConnectInfo(peer));
                async move { Ok::<_, Infallible>(api.answer(request).await) }
            });
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEADER_DEADLINE)
                .max_header_size(64 * 1024)
                .max_buf_size(1024 * 1024)
                .serve_connection(TokioIo::new(stream), service)
                .with_upgrades();
            tokio::pin!(connection);
            tokio::select! {
                ended = connection.as_mut() => log_end(ended),
                () = stopped(&mut stop) => {
                    connection.as_mut().graceful_shutdown();
                    let _ = tokio::time::timeout(SHUTDOWN_GRACE, connection).await;
                }
            }
        });
    }
    connections.close();
    let _ = tokio::time::timeout(SHUTDOWN_GRACE, connections.wait()).await;
}

/// At most half of the files this process may have open, which are raised as far as the system lets us.
fn connection_limit() -> usize {
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    let files = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    MAX_CONNECTIONS.min(usize::try_from(files / 2).unwrap_or(MAX_CONNECTIONS))
}

/// Returns once `stop` is true or nobody can say so any more.
async fn stopped(stop: &mut watch::Receiver<bool>) {
    let _ = stop.wait_for(|stop| *stop).await;
}

fn log_end(ended: hyper::Result<()>) {
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ended early");
    }
}
