//! HTTP/1.1 connections: accepted within limits by `listener`, secured by `tls_accept`, assigned to a thread of
//! `conn_threads`, and served by `http1`, which refuses ambiguous heads (`request_head`). `session_revocation` aborts the
//! connections of revoked credentials. Knows no endpoint: requests go to an [`HttpService`].

mod abortable_io;
mod conn_threads;
mod http1;
mod limits;
pub mod listener;
mod request_head;
pub mod session_revocation;
mod tls_accept;

use std::net::SocketAddr;
use std::time::Duration;

use axum::extract::Request;
use axum::response::Response;
use tokio::sync::watch;

use self::session_revocation::ConnectionRegistry;

const SHUTDOWN_GRACE: Duration = Duration::from_secs(2);

/// Handler of requests. Clones share everything.
pub trait HttpService: Clone + Send + Sync + 'static {
    fn handle(&self, request: Request) -> impl Future<Output = Response> + Send;

    /// Registry for aborting connections with revoked credentials; the default never aborts any.
    fn connections(&self) -> ConnectionRegistry {
        ConnectionRegistry::default()
    }
}

/// Completes once `stop` is true or its sender is gone.
async fn stopped(stop: &mut watch::Receiver<bool>) {
    let _ = stop.wait_for(|stop| *stop).await;
}

fn log_eviction(peer: SocketAddr) {
    tracing::debug!(%peer, "an idle connection is evicted for a new one");
}
