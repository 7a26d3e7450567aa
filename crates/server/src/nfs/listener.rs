//! TCP listener of NFS. The port is reserved when the server starts (bound but not listening, so connections are
//! refused) and listens while there is a file server. Connections are bounded in total and per address, loopback
//! included. A connection that has named neither an export nor a handle of this server is closed after a short time, or
//! evicted for a new one. Calls of a connection run concurrently up to a bound; `record` and `service` bound the memory
//! of their records.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use super::record::{RecordError, read_record};
use super::service::{ExportedFileSystem, NotRpc, Reply, Service};
use crate::connections::{Connection, ConnectionLimits, ConnectionTable};

const BACKLOG: u32 = 1_024;
/// Maximum number of calls of one connection that are running or whose replies are unsent.
const MAX_CALLS: usize = 16;

#[derive(Clone, Copy, Debug)]
pub struct NfsLimits {
    pub connections: ConnectionLimits,
    /// Deadline for a connection to name an export or a handle of this server.
    pub first_call: Duration,
    /// Maximum time between calls; clients reconnect when needed.
    pub idle: Duration,
    /// Maximum time to receive a record or send a reply.
    pub transfer: Duration,
}

impl NfsLimits {
    pub const DEFAULT: NfsLimits = NfsLimits {
        connections: ConnectionLimits { total: 1_024, per_address: 256, per_loopback_address: 768 },
        first_call: Duration::from_secs(10),
        idle: Duration::from_secs(900),
        transfer: Duration::from_secs(60),
    };
}

/// Bound port that does not listen; no other process can listen on it.
pub struct ReservedPort {
    socket: TcpSocket,
    pub address: SocketAddr,
}

impl ReservedPort {
    pub fn bind(address: SocketAddr) -> io::Result<Self> {
        let socket = TcpSocket::new_v4()?;
        // Connections of an earlier run may still be in TIME_WAIT.
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        // With SO_REUSEADDR, another process could listen here before we do.
        socket.set_reuseaddr(false)?;
        let address = socket.local_addr()?;
        Ok(ReservedPort { socket, address })
    }

    pub fn listen(self) -> io::Result<TcpListener> {
        self.socket.set_reuseaddr(true)?;
        self.socket.listen(BACKLOG)
    }
}

/// Accepts connections forever; dropping the future closes them.
pub async fn serve<F: ExportedFileSystem + 'static>(
    listener: TcpListener,
    service: Arc<Service<F>>,
    limits: NfsLimits,
) -> io::Result<()> {
    let table = ConnectionTable::new(limits.connections);
    let mut tasks = JoinSet::new();
    loop {
        let (stream, peer) = tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    // Probably out of file descriptors: wait for some to be closed.
                    tracing::warn!(%error, "an NFS connection cannot be accepted");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                }
            },
            Some(_) = tasks.join_next(), if !tasks.is_empty() => continue,
        };
        let connection = match table.admit(peer.ip()) {
            Ok(connection) => connection,
            Err(refusal) => {
                tracing::debug!(%peer, ?refusal, "an NFS connection is refused: all are in use");
                continue;
            }
        };
        let service = service.clone();
        tasks.spawn(async move {
            let _ = stream.set_nodelay(true);
            let connection = Arc::new(connection);
            let ended = tokio::select! {
                ended = serve_connection(stream, service, Some(connection.clone()), limits) => ended,
                () = connection.evicted() => return tracing::debug!(%peer, "an NFS connection is evicted for a new one"),
            };
            if let Err(error) = ended {
                tracing::debug!(%peer, error = &error as &dyn std::error::Error, "an NFS connection is closed");
            }
        });
    }
}

#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    #[error("a record cannot be read")]
    Record(#[from] RecordError),
    #[error("a record is not an RPC call")]
    NotRpc,
    #[error("a reply cannot be sent")]
    Write(#[source] io::Error),
    #[error("the client did not read a reply within {0:?}")]
    ReplyNotTaken(Duration),
    #[error("no call named an export or a file handle of this server within {0:?}")]
    Unauthorized(Duration),
}

type Outgoing = (Result<Reply, NotRpc>, OwnedSemaphorePermit, Option<CallGuard>);

/// Reads calls and sends replies until the client closes the stream or exceeds a limit.
pub async fn serve_connection<F: ExportedFileSystem + 'static>(
    stream: impl AsyncRead + AsyncWrite,
    service: Arc<Service<F>>,
    connection: Option<Arc<Connection>>,
    limits: NfsLimits,
) -> Result<(), SessionError> {
    let (input, output) = tokio::io::split(stream);
    let (replies, outgoing) = mpsc::channel(MAX_CALLS);
    let receive = receive_calls(input, service, connection, limits, replies);
    let (received, sent) = tokio::join!(receive, send_replies(output, outgoing, limits.transfer));
    received.and(sent)
}

async fn receive_calls<F: ExportedFileSystem + 'static>(
    mut input: impl AsyncRead + Unpin,
    service: Arc<Service<F>>,
    connection: Option<Arc<Connection>>,
    limits: NfsLimits,
    replies: mpsc::Sender<Outgoing>,
) -> Result<(), SessionError> {
    let slots = Arc::new(Semaphore::new(MAX_CALLS));
    let (is_authorized, in_progress) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let deadline = Instant::now() + limits.first_call;
    let mut calls = JoinSet::new();
    loop {
        while calls.try_join_next().is_some() {}
        let was_authorized = is_authorized.load(Ordering::Acquire);
        let idle = if was_authorized { limits.idle } else { deadline.saturating_duration_since(Instant::now()) };
        if idle.is_zero() {
            return Err(SessionError::Unauthorized(limits.first_call));
        }
        let next = tokio::select! {
            next = read_record(&mut input, &*service, idle, limits.transfer.min(idle)) => next?,
            // A reply could not be sent.
            () = replies.closed() => return Ok(()),
        };
        let Some(record) = next else { break };
        let slot = slots.clone().acquire_owned().await.expect("the semaphore is never closed");
        let guard = match &connection {
            Some(connection) if was_authorized => match CallGuard::begin(connection, &in_progress) {
                Some(guard) => Some(guard),
                None => return Ok(()),
            },
            _ => None,
        };
        let (service, replies, now_authorized) = (service.clone(), replies.clone(), is_authorized.clone());
        calls.spawn(async move {
            let reply = service.answer(&record.bytes).await;
            drop(record);
            if reply.as_ref().is_ok_and(|reply| reply.is_authorized) {
                now_authorized.store(true, Ordering::Release);
            }
            let _ = replies.send((reply, slot, guard)).await;
        });
        if !was_authorized {
            // Sequential until a call proves that the client knows a secret of this server.
            calls.join_next().await;
            if is_authorized.load(Ordering::Acquire)
                && let Some(connection) = &connection
            {
                connection.begin_request();
                connection.end_request();
            }
        }
    }
    while calls.join_next().await.is_some() {}
    Ok(())
}

async fn send_replies(
    mut output: impl AsyncWrite + Unpin,
    mut outgoing: mpsc::Receiver<Outgoing>,
    write_timeout: Duration,
) -> Result<(), SessionError> {
    while let Some((reply, slot, guard)) = outgoing.recv().await {
        let Reply { bytes, permit, .. } = reply.map_err(|NotRpc| SessionError::NotRpc)?;
        let sent = timeout(write_timeout, output.write_all(&bytes)).await;
        sent.map_err(|_| SessionError::ReplyNotTaken(write_timeout))?.map_err(SessionError::Write)?;
        drop((bytes, permit, slot, guard));
    }
    Ok(())
}

/// Marks the connection as having a call in progress while it exists.
struct CallGuard {
    connection: Arc<Connection>,
    in_progress: Arc<AtomicUsize>,
}

impl CallGuard {
    /// `None` if the connection was evicted.
    fn begin(connection: &Arc<Connection>, in_progress: &Arc<AtomicUsize>) -> Option<Self> {
        let guard = CallGuard { connection: connection.clone(), in_progress: in_progress.clone() };
        let is_first = in_progress.fetch_add(1, Ordering::AcqRel) == 0;
        (!is_first || connection.begin_request()).then_some(guard)
    }
}

impl Drop for CallGuard {
    fn drop(&mut self) {
        if self.in_progress.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.connection.end_request();
        }
    }
}
