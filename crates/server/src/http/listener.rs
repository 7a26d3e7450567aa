//! Accepting connections: HTTP/1.1, over TLS when the server has it, with limits on how many there are, how large headers
//! may be and how long they may take. Ends when told to, giving requests in flight a moment.

use std::collections::HashMap;
use std::convert::Infallible;
use std::io::{self, IoSlice};
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use axum::extract::{ConnectInfo, Request};
use axum::response::Response;
use corro_model::ApiError;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio_rustls::server::TlsStream;
use tokio_util::task::TaskTracker;

use super::files::OverTls;
use super::lanes::Lanes;
use super::standing::{Behalf, Seat, Standing};
use crate::tls::Tls;

/// However many files may be open: beyond this memory is short first.
const MAX_CONNECTIONS: usize = 65_536;
/// Files that are left to everything else, where there are enough: the database, shares, processes.
const RESERVED_FILES: u64 = 512;
const HEADER_DEADLINE: Duration = Duration::from_secs(30);
/// From the first byte to the end of the handshake.
const HANDSHAKE_DEADLINE: Duration = Duration::from_secs(10);
const SHUTDOWN_GRACE: Duration = Duration::from_secs(2);

/// Who answers what arrives. Clones share everything.
pub trait Door: Clone + Send + Sync + 'static {
    fn answer(&self, request: Request) -> impl Future<Output = Response> + Send;

    /// Where it is known who uses which connection; where nothing can be revoked, nobody looks.
    fn standing(&self) -> Standing {
        Standing::default()
    }
}

/// Serves until `stop` turns true.
pub async fn serve(listener: TcpListener, tls: Option<Tls>, door: impl Door, mut stop: watch::Receiver<bool>) {
    let limit = connection_limit();
    tracing::info!(connections = limit, "so many connections are taken at once");
    let (door, crowd) = (Arc::new(door), Crowd::new(limit));
    let (slots, connections) = (Arc::new(Semaphore::new(limit)), TaskTracker::new());
    let mut lanes = match Lanes::start() {
        Ok(lanes) => lanes,
        Err(error) => return tracing::error!(%error, "no thread can be started to serve connections"),
    };
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
        let Some(place) = crowd.enter(peer.ip()) else {
            tracing::debug!(%peer, "an address has too many connections");
            continue;
        };
        let _ = stream.set_nodelay(true);
        // It is to be watched by the thread that serves it.
        let Ok(stream) = stream.into_std() else { continue };
        let (door, tls, mut stop) = (door.clone(), tls.clone(), stop.clone());
        let serve = async move {
            let Ok(stream) = TcpStream::from_std(stream) else { return };
            let seated = door.standing().seat();
            let (_held, seat) = ((slot, place), seated.seat.clone());
            let stream = Cuttable { stream, seat: seat.clone() };
            let Some(tls) = tls else { return converse(stream, peer, None, door, stop, seat).await };
            let secured = tokio::select! {
                secured = tokio::time::timeout(HANDSHAKE_DEADLINE, secure(stream, &tls)) => secured,
                () = stopped(&mut stop) => return,
            };
            if let Ok(Some(stream)) = secured {
                converse(stream, peer, Some(OverTls), door, stop, seat).await;
            }
        };
        connections.spawn_on(serve, &lanes.next());
    }
    connections.close();
    let _ = tokio::time::timeout(SHUTDOWN_GRACE, connections.wait()).await;
}

/// Requests and answers on one connection, until either side ends it.
async fn converse<S, D: Door>(
    stream: S,
    peer: SocketAddr,
    over_tls: Option<OverTls>,
    door: Arc<D>,
    mut stop: watch::Receiver<bool>,
    seat: Arc<Seat>,
) where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let behalf = Behalf(seat.clone());
    let service = service_fn(move |request: hyper::Request<hyper::body::Incoming>| {
        let door = door.clone();
        let mut request = request.map(Body::new);
        // Links that are limited to addresses, or to TLS, are checked against these.
        request.extensions_mut().insert(ConnectInfo(peer));
        behalf.0.clear();
        request.extensions_mut().insert(behalf.clone());
        if let Some(over_tls) = over_tls {
            request.extensions_mut().insert(over_tls);
        }
        async move { Ok::<_, Infallible>(door.answer(request).await) }
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
        // What is in flight is dropped with the connection.
        () = seat.cut() => tracing::info!(%peer, "a connection is cut: what its caller showed is no longer good"),
        () = stopped(&mut stop) => {
            connection.as_mut().graceful_shutdown();
            let _ = tokio::time::timeout(SHUTDOWN_GRACE, connection).await;
        }
    }
}

/// A socket that, once cut, forgets what its client has not been sent yet.
struct Cuttable {
    stream: TcpStream,
    seat: Arc<Seat>,
}

impl Drop for Cuttable {
    fn drop(&mut self) {
        if self.seat.is_cut() {
            let _ = self.stream.set_zero_linger();
        }
    }
}

impl AsyncRead for Cuttable {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Cuttable {
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

/// The stream inside TLS; `None` when there is none to be had. Somebody who speaks plain HTTP is told what to do.
async fn secure(mut stream: Cuttable, tls: &Tls) -> Option<TlsStream<Cuttable>> {
    let mut first = [0; 1];
    let looks_like_http = stream.stream.peek(&mut first).await.ok()? == 1 && first[0].is_ascii_uppercase();
    if looks_like_http {
        let _ = stream.write_all(plain_answer().as_bytes()).await;
        let _ = stream.shutdown().await;
        // What was sent is read, so that the answer is not lost to a reset.
        let _ = tokio::time::timeout(PLAIN_FAREWELL, tokio::io::copy(&mut stream, &mut tokio::io::sink())).await;
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

/// How long somebody who speaks plain HTTP may go on.
const PLAIN_FAREWELL: Duration = Duration::from_millis(500);

fn plain_answer() -> String {
    let error = ApiError::new(400, "HttpsRequired", "This port speaks TLS only: use https:// instead of http://");
    let body = serde_json::to_string(&error.envelope()).expect("answers are plain data");
    let head = "HTTP/1.1 400 Bad Request\r\ncontent-type: application/json; charset=utf-8\r\nconnection: close";
    format!("{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len())
}

/// How many connections each address has.
#[derive(Clone)]
struct Crowd {
    counts: Arc<Mutex<HashMap<IpAddr, usize>>>,
    /// Of one address, this machine's own excepted: a whole site may be behind it, and no more than a quarter of all.
    most: usize,
}

/// Given back when the connection ends.
struct Place {
    crowd: Crowd,
    address: IpAddr,
}

impl Crowd {
    fn new(limit: usize) -> Self {
        Self { counts: Arc::default(), most: (limit / 4).max(1) }
    }

    fn enter(&self, address: IpAddr) -> Option<Place> {
        let address = address.to_canonical();
        let mut counts = self.counts.lock().expect("no one panics while holding the counts");
        let count = counts.entry(address).or_default();
        if *count >= self.most && !address.is_loopback() {
            return None;
        }
        *count += 1;
        Some(Place { crowd: self.clone(), address })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut counts = self.crowd.counts.lock().expect("no one panics while holding the counts");
        if let Some(count) = counts.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.address);
            }
        }
    }
}

/// By the files that this process may have open, which are raised as far as the system lets us.
fn connection_limit() -> usize {
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    connections_with(getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX))
}

/// Three of four files, but for a reserve that is no more than half.
fn connections_with(files: u64) -> usize {
    let reserve = RESERVED_FILES.max(files / 4).min(files / 2);
    usize::try_from(files - reserve).map_or(MAX_CONNECTIONS, |files| files.min(MAX_CONNECTIONS))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_leave_files_to_others() {
        for (files, connections) in [(256, 128), (1_024, 512), (4_096, 3_072), (20_000, 15_000), (u64::MAX, 65_536)] {
            assert_eq!(connections_with(files), connections, "{files}");
        }
    }

    #[test]
    fn one_address_cannot_take_every_connection() {
        const MAX_PER_ADDRESS: usize = 1_024;
        let crowd = Crowd::new(4 * MAX_PER_ADDRESS);
        let far: IpAddr = "192.0.2.7".parse().expect("an address");
        let mut held: Vec<Place> = (0..MAX_PER_ADDRESS).map(|_| crowd.enter(far).expect("room")).collect();
        assert!(crowd.enter(far).is_none());
        assert!(crowd.enter("::ffff:192.0.2.7".parse().expect("an address")).is_none());
        assert!(crowd.enter("192.0.2.8".parse().expect("an address")).is_some());
        held.pop();
        assert!(crowd.enter(far).is_some());
        drop(held);
        assert!(crowd.counts.lock().expect("free").is_empty());
        let near: IpAddr = "127.0.0.1".parse().expect("an address");
        let held: Vec<_> = (0..=MAX_PER_ADDRESS).map(|_| crowd.enter(near)).collect();
        assert!(held.iter().all(Option::is_some));
    }
}
