//! The node's SSH server, by which the cluster's administrator logs in and `job exec` starts commands. Started and
//! stopped by the driver as the server orders. Sessions run under guards like ranks: nothing outlives the server,
//! however it ends. Never stores a password and starts nothing before authentication.
//!
//! Reading order: [`SshServer`]; `connection` (authentication and accepted requests); `session` (a command or a shell)
//! with `terminal`; `forward` (TCP forwarding); `host_key`.

mod connection;
mod forward;
mod host_key;
mod session;
mod terminal;

use std::io;
use std::net::{Shutdown, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use russh::server::{Config, run_stream};
use russh::{MethodKind, MethodSet, SshId};
use thiserror::Error;
use tokio::net::{TcpListener, TcpStream, lookup_host};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::{JoinHandle, JoinSet, spawn_blocking};
use tokio::time::{sleep, timeout};

use corro_launch::connection_set::{AuthFlag, ConnectionSet};
use corro_launch::kill_tagged::kill_by_tag_prefix;
use corro_model::node::{FIRST_LOGIN_PORT, Login, SshEndpoint};

use crate::task::node_context::NodeContext;
use connection::{AuthState, SshConnection};
pub use host_key::forget as forget_host_key;

/// Number of ports that are tried.
const MAX_PORTS_TRIED: u16 = 1000;
/// Limit of connections; above it the oldest unauthenticated one is closed.
const MAX_CONNECTIONS: usize = 32;
/// Limit of open channels of a connection: commands, shells and forwarded connections.
const MAX_CHANNELS: usize = 64;
const MAX_AUTH_ATTEMPTS: usize = 6;
/// Time limit for authentication.
const LOGIN_TIMEOUT: Duration = Duration::from_secs(30);
/// Interval of keepalives to a silent client; after three without an answer the connection is closed.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(15);
/// How long the end of a connection waits for its sessions.
const SESSION_END_TIMEOUT: Duration = Duration::from_secs(5);

/// Why the SSH server could not be started.
#[derive(Debug, Error)]
pub enum SshServerError {
    #[error("neither the administrator's key nor a password can be used: {0}")]
    Key(russh::keys::ssh_key::Error),
    #[error("cannot load or create the node's SSH host key")]
    HostKey(#[source] io::Error),
    #[error("cannot create the home directory for logins")]
    Home(#[source] io::Error),
    #[error("no port of {address} from {FIRST_LOGIN_PORT} on is free")]
    Port {
        address: String,
        #[source]
        source: io::Error,
    },
}

/// The running SSH server. Dropping it closes it at once.
#[derive(Debug)]
pub struct SshServer {
    pub endpoint: SshEndpoint,
    tag: String,
    task: JoinHandle<()>,
}

/// Handles that all connections share.
#[derive(Debug)]
struct SshContext {
    node: NodeContext,
    login: Login,
    key: Option<russh::keys::PublicKey>,
    home: std::path::PathBuf,
    /// Tag prefix of the sessions' processes.
    tag: String,
    n_sessions: AtomicU64,
    /// One password check at a time, since a check is slow on purpose.
    password_check: Semaphore,
}

impl SshServer {
    pub async fn open(context: &NodeContext, login: &Login) -> Result<SshServer, SshServerError> {
        let key = login.public_key.as_deref().map(russh::keys::PublicKey::from_openssh).transpose();
        let key = match (key, &login.password) {
            (Ok(key), _) => key,
            (Err(error), Some(_)) => {
                tracing::warn!(%error, "the administrator's public key is invalid; only the password can be used to log in");
                None
            }
            (Err(error), None) => return Err(SshServerError::Key(error)),
        };
        let root = context.directories.root().to_owned();
        let host_key = spawn_blocking(move || host_key::load_or_create(&root)).await;
        let host_key =
            host_key.unwrap_or_else(|error| Err(io::Error::other(error))).map_err(SshServerError::HostKey)?;
        let home = context.directories.login_home().map_err(SshServerError::Home)?;
        let address = &context.address;
        let listener = bind_first_free(address).await;
        let listener = listener.map_err(|source| SshServerError::Port { address: address.to_string(), source })?;
        let port = listener.local_addr().map_or(0, |at| at.port());
        let tag = context.tags.with("login/");
        let (n_sessions, password_check) = (AtomicU64::new(0), Semaphore::new(1));
        let context =
            SshContext { node: context.clone(), login: login.clone(), key, home, tag, n_sessions, password_check };
        let (tag, config) = (context.tag.clone(), config(&context, host_key));
        let task = tokio::spawn(accept_connections(listener, Arc::new(config), Arc::new(context)));
        Ok(SshServer { endpoint: SshEndpoint { address: address.to_string(), port }, tag, task })
    }

    /// Stops the server and waits until nothing is left of its sessions.
    pub async fn close(self) {
        self.task.abort();
        let tag = self.tag.clone();
        // Joining fails only when the runtime ends; then the guards kill the processes.
        let _ = spawn_blocking(move || kill_by_tag_prefix(&tag)).await;
    }
}

impl Drop for SshServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl SshContext {
    /// Available authentication methods.
    fn methods(&self) -> MethodSet {
        let mut methods = MethodSet::empty();
        if self.key.is_some() {
            methods.push(MethodKind::PublicKey);
        }
        if self.login.password.is_some() {
            methods.push(MethodKind::Password);
        }
        methods
    }
}

fn config(context: &SshContext, host_key: russh::keys::PrivateKey) -> Config {
    Config {
        server_id: SshId::Standard("SSH-2.0-Corro".into()),
        methods: context.methods(),
        keys: vec![host_key],
        max_auth_attempts: MAX_AUTH_ATTEMPTS,
        // The first request of a client only lists the methods; it is no failed attempt.
        auth_rejection_time_initial: Some(Duration::ZERO),
        inactivity_timeout: None,
        keepalive_interval: Some(KEEPALIVE_INTERVAL),
        nodelay: true,
        ..Config::default()
    }
}

async fn bind_first_free(address: &str) -> io::Result<TcpListener> {
    let mut found = lookup_host((address, 0)).await?;
    let mut at: SocketAddr = found.next().ok_or(io::ErrorKind::AddrNotAvailable)?;
    let mut port = FIRST_LOGIN_PORT;
    loop {
        at.set_port(port);
        match TcpListener::bind(at).await {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && port < FIRST_LOGIN_PORT + MAX_PORTS_TRIED => {
                port += 1
            }
            bound => return bound,
        }
    }
}

/// Accepts connections until aborted, which closes all of them.
async fn accept_connections(listener: TcpListener, config: Arc<Config>, context: Arc<SshContext>) {
    let mut connections = ConnectionSet::new(MAX_CONNECTIONS);
    loop {
        let has_space = connections.has_space();
        tokio::select! {
            accepted = listener.accept(), if has_space => match accepted {
                Ok((stream, _)) => {
                    connections.spawn(|auth_flag| serve_connection(stream, Arc::clone(&config), Arc::clone(&context), auth_flag));
                }
                Err(error) => {
                    tracing::warn!(%error, "the SSH server cannot accept a connection");
                    sleep(Duration::from_secs(1)).await;
                }
            },
            () = connections.ended() => {}
        }
    }
}

/// Shuts the socket down on drop, even if other handles of it exist.
struct ShutdownOnDrop(std::net::TcpStream);

impl Drop for ShutdownOnDrop {
    fn drop(&mut self) {
        // Fails if it is already shut down.
        let _ = self.0.shutdown(Shutdown::Both);
    }
}

async fn serve_connection(stream: TcpStream, config: Arc<Config>, context: Arc<SshContext>, auth_flag: AuthFlag) {
    let split = stream.into_std().and_then(|stream| Ok((stream.try_clone()?, TcpStream::from_std(stream)?)));
    let Ok((socket, stream)) = split else { return };
    let _shutdown = ShutdownOnDrop(socket);
    let (channel_sender, mut channels) = mpsc::channel(MAX_CHANNELS);
    let (connection, mut auth) = SshConnection::new(context, channel_sender, MAX_CHANNELS);
    let running = timeout(LOGIN_TIMEOUT, run_stream(config, stream, connection)).await;
    let Ok(Ok(mut running)) = running else { return };
    let handle = running.handle();
    let mut work = JoinSet::new();
    let mut deadline = std::pin::pin!(sleep(LOGIN_TIMEOUT));
    loop {
        tokio::select! {
            _ = &mut running => break,
            () = &mut deadline, if *auth.borrow_and_update() == AuthState::Pending => return,
            Ok(()) = auth.changed() => {
                if *auth.borrow() != AuthState::Pending {
                    auth_flag.set();
                }
            }
            Some(channel) = channels.recv() => {
                work.spawn(channel.serve(handle.clone()));
            }
            Some(_) = work.join_next(), if !work.is_empty() => {}
        }
    }
    // Sessions notice by themselves that the connection is closed.
    let _ = timeout(SESSION_END_TIMEOUT, async { while work.join_next().await.is_some() {} }).await;
}
