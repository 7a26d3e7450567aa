//! The agent's end of a tunnel: connects to the target in the running job's network, dials a WebSocket to the server,
//! and joins the two. A tunnel ends with the task for which it was ordered.

use std::io::{self, Cursor};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::SinkExt;
use tokio::io::{AsyncReadExt, join, sink};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::http::header::AUTHORIZATION;
use tokio_tungstenite::tungstenite::http::{HeaderValue, Request};
use tokio_tungstenite::tungstenite::{self, Message};
use tokio_tungstenite::{WebSocketStream, client_async_with_config};

use corro_base::error_chain;
use corro_client::tunnel::{TunnelError, socket_config, splice, splice_tcp};
use corro_launch::process_spec::ProcessSpec;
use corro_model::node::{
    PROTOCOL, PROTOCOL_HEADER, SshEndpoint, TUNNEL_HEADER, TUNNEL_PATH, TunnelOrder, TunnelReply, TunnelTarget,
};
use corro_model::notebook::{MAX_DESCRIPTION_BYTES, describe_script};

use super::ws_stream::{self, WsStream};
use crate::config::AgentConfig;
use crate::identity::incarnation::TagPrefix;
use crate::shell;
use crate::task::exec_target::{ExecRequest, ExecTarget, ExecTargets};

/// Limit of tunnels of a node; the server has lower ones for a job and for a user.
const MAX_TUNNELS: usize = 256;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const DIAL_TIMEOUT: Duration = Duration::from_secs(5);
/// Limit on reading where Jupyter listens.
const DESCRIBE_TIMEOUT: Duration = Duration::from_secs(5);

/// Opens the tunnels of a node.
pub(super) struct Tunnels {
    config: AgentConfig,
    tls: TlsConnector,
    authorization: HeaderValue,
    tags: TagPrefix,
    exec_targets: ExecTargets,
    permits: Semaphore,
    n_processes: AtomicU64,
}

/// A connected target.
enum Target {
    Tcp(TcpStream),
    /// Everything that it will ever send.
    Output(Vec<u8>),
}

impl Tunnels {
    pub fn new(
        config: AgentConfig,
        tls: TlsConnector,
        authorization: HeaderValue,
        tags: TagPrefix,
        exec_targets: ExecTargets,
    ) -> Tunnels {
        let (permits, n_processes) = (Semaphore::new(MAX_TUNNELS), AtomicU64::new(0));
        Tunnels { config, tls, authorization, tags, exec_targets, permits, n_processes }
    }

    /// Opens a tunnel and serves it until it ends. `ssh` is the node's SSH server.
    pub async fn serve(&self, order: TunnelOrder, ssh: Option<SshEndpoint>) {
        let Some(exec_target) = self.exec_targets.find_attempt(&order.attempt) else {
            return self.refuse(&order, TunnelReply::NotReady).await;
        };
        let Ok(_permit) = self.permits.try_acquire() else {
            let reason = format!("the node has {MAX_TUNNELS} open connections: close some");
            return self.refuse(&order, TunnelReply::Refused { reason }).await;
        };
        let closing = exec_target.closing();
        // Does not keep the target: the end of the task waits for everything that does.
        let target = match self.connect(order.target, exec_target, ssh).await {
            Ok(target) => target,
            Err(reason) => return self.refuse(&order, TunnelReply::Refused { reason }).await,
        };
        let Some(socket) = self.open(&order, &TunnelReply::Connected).await else { return };
        let ended = async {
            match order.target {
                // Its sessions end with the job and then send their exit status.
                TunnelTarget::Ssh => std::future::pending().await,
                _ => closing.await,
            }
            "the job has ended on its node".to_owned()
        };
        let result: Result<(), TunnelError> = match target {
            Target::Tcp(stream) => splice_tcp(socket, stream, ended).await,
            Target::Output(bytes) => splice(socket, join(Cursor::new(bytes), sink()), ended).await,
        };
        if let Err(error) = result {
            tracing::debug!(error = error_chain::join(&error), target = %order.target, "a tunnel broke off");
        }
    }

    async fn refuse(&self, order: &TunnelOrder, reply: TunnelReply) {
        if let Some(mut socket) = self.open(order, &reply).await {
            let _ = timeout(DIAL_TIMEOUT, socket.close(None)).await;
        }
    }

    /// Opens the WebSocket to the server and sends the reply. A failure is logged; the server notices that nobody came.
    async fn open(&self, order: &TunnelOrder, reply: &TunnelReply) -> Option<WebSocketStream<WsStream>> {
        let reply = serde_json::to_string(reply).expect("messages are plain data");
        let opening = async {
            let mut socket = self.dial(order).await?;
            socket.send(Message::text(reply)).await?;
            Ok::<_, tungstenite::Error>(socket)
        };
        match timeout(DIAL_TIMEOUT, opening).await {
            Ok(Ok(socket)) => Some(socket),
            Ok(Err(error)) => {
                tracing::warn!(%error, "cannot open a tunnel to the server");
                None
            }
            Err(_) => {
                tracing::warn!("cannot open a tunnel to the server: it does not answer");
                None
            }
        }
    }

    /// Connects to the target. The error says why that is impossible.
    async fn connect(
        &self,
        target: TunnelTarget,
        exec_target: Arc<ExecTarget>,
        ssh: Option<SshEndpoint>,
    ) -> Result<Target, String> {
        match target {
            TunnelTarget::Port(port) => connect_to_loopback(port).await.map(Target::Tcp),
            TunnelTarget::Ssh => {
                let SshEndpoint { address, port } = ssh.ok_or("the node has no SSH server")?;
                let connected = connect_within_limit(TcpStream::connect((address.as_str(), port))).await;
                connected.map(Target::Tcp).map_err(|error| format!("the node's SSH server cannot be reached: {error}"))
            }
            TunnelTarget::Notebook => {
                let described = timeout(DESCRIBE_TIMEOUT, self.describe_notebook(exec_target)).await;
                described
                    .unwrap_or_else(|_| Err("the job's files could not be read in time".to_owned()))
                    .map(Target::Output)
            }
        }
    }

    /// Runs the script that prints where Jupyter listens, in the job's environment.
    async fn describe_notebook(&self, exec_target: Arc<ExecTarget>) -> Result<Vec<u8>, String> {
        let number = self.n_processes.fetch_add(1, Ordering::Relaxed);
        let tag = self.tags.with(&format!("tunnel/{number}"));
        // The job's directory is not removed before this process has ended.
        let _guard = exec_target.guard();
        let spec = spawn_blocking(move || -> Result<ProcessSpec, String> {
            // With the secrets, because the token of Jupyter is one and would be masked.
            let request = ExecRequest { with_secrets: true, ..ExecRequest::default() };
            let spec = exec_target.process_spec(&request, |path| shell::command(&describe_script(), path), tag)?;
            Ok(exec_target.wrap(spec, &request))
        });
        let spec = spec.await.map_err(|error| error.to_string())??;
        let started = self.config.guard.spawn(spec).await;
        let mut process = started.map_err(|error| error_chain::join(&error))?;
        let mut output = Vec::new();
        if let Some(stdout) = process.stdout.take() {
            let read = stdout.take(MAX_DESCRIPTION_BYTES as u64).read_to_end(&mut output).await;
            read.map_err(|error| error.to_string())?;
        }
        // Dropping the process ends what is left of it.
        Ok(output)
    }

    /// Opens the WebSocket to the server.
    async fn dial(&self, order: &TunnelOrder) -> Result<WebSocketStream<WsStream>, tungstenite::Error> {
        let url = self.config.ws_url(TUNNEL_PATH).unwrap_or_default();
        let mut request: Request<()> = url.as_str().into_client_request()?;
        let mut secret = HeaderValue::from_str(order.secret.expose())?;
        secret.set_sensitive(true);
        let headers = request.headers_mut();
        headers.insert(AUTHORIZATION, self.authorization.clone());
        headers.insert(PROTOCOL_HEADER, HeaderValue::from(PROTOCOL));
        headers.insert(TUNNEL_HEADER, secret);
        let stream = ws_stream::open(request.uri(), &self.tls).await?;
        Ok(client_async_with_config(request, stream, Some(socket_config())).await?.0)
    }
}

/// Connects to a port of the loopback address; jobs and containers share the node's network. IPv6 is tried second: some
/// programs listen on `::1` alone.
async fn connect_to_loopback(port: u16) -> Result<TcpStream, String> {
    let first = connect_within_limit(TcpStream::connect(SocketAddr::from((Ipv4Addr::LOCALHOST, port)))).await;
    let error = match first {
        Ok(stream) => return Ok(stream),
        Err(error) => error,
    };
    if error.kind() == io::ErrorKind::ConnectionRefused {
        let second = TcpStream::connect(SocketAddr::from((Ipv6Addr::LOCALHOST, port)));
        if let Ok(stream) = connect_within_limit(second).await {
            return Ok(stream);
        }
        return Err(format!("nothing listens on port {port} of the loopback address there"));
    }
    Err(format!("port {port} cannot be reached: {error}"))
}

async fn connect_within_limit(connecting: impl Future<Output = io::Result<TcpStream>>) -> io::Result<TcpStream> {
    let stream = timeout(CONNECT_TIMEOUT, connecting).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn a_port_is_reached_on_either_loopback_address() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port");
        let port = listener.local_addr().expect("bound").port();
        connect_to_loopback(port).await.expect("it listens");
        drop(listener);
        let error = connect_to_loopback(port).await.expect_err("nobody listens");
        assert_eq!(error, format!("nothing listens on port {port} of the loopback address there"));
        // Machines without IPv6 have no such address.
        if let Ok(listener) = TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).await {
            let port = listener.local_addr().expect("bound").port();
            connect_to_loopback(port).await.expect("it listens");
        }
    }
}
