//! The login door: an SSH server through which the cluster's administrator reaches the node. Opened, moved and closed by
//! the driver as the server wishes. Whoever comes in runs under guards like any rank: nothing of a visit outlives the
//! door, however the door ends. Never holds a password, never starts anything before the visitor is known.
//!
//! Reading order: [`Door`]; `visitor` (who may come in, and what may be asked for); `session` (a command or a shell) with
//! `terminal`; `forward` (a connection to somewhere the node can reach); `host_key`.

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

use corro_launch::connection_set::{ConnectionSet, Proof};
use corro_launch::sweep::sweep;
use corro_model::node::{FIRST_LOGIN_PORT, Login, LoginDoor};

use crate::task::node_context::Context;
use connection::{Known, Visitor};
pub use host_key::forget as forget_host_key;

/// How many ports are tried.
const N_PORTS: u16 = 1000;
/// Connections at one time; beyond it the oldest that has not logged in gives way.
const MAX_VISITS: usize = 32;
/// Commands, shells and forwarded connections of one visit at one time.
const MAX_CHANNELS: usize = 64;
const MAX_ATTEMPTS: usize = 6;
/// Whoever has not proved who they are by then is shown out.
const LOGIN_WITHIN: Duration = Duration::from_secs(30);
/// A client that is silent for this long is asked whether it is still there; three times, then it is gone.
const ASK_AFTER: Duration = Duration::from_secs(15);
/// For what a visitor ran, after the visitor has left.
const END_WITHIN: Duration = Duration::from_secs(5);

#[derive(Debug, Error)]
pub enum DoorError {
    #[error("neither the administrator's key nor a password can be used: {0}")]
    Key(russh::keys::ssh_key::Error),
    #[error("the node's host key cannot be read or made")]
    HostKey(#[source] io::Error),
    #[error("the directory of those who log in cannot be made")]
    Home(#[source] io::Error),
    #[error("no port of {address} from {FIRST_LOGIN_PORT} on is free")]
    Port {
        address: String,
        #[source]
        source: io::Error,
    },
}

/// An open door; dropping it closes it at once.
#[derive(Debug)]
pub struct Door {
    pub at: LoginDoor,
    tag: String,
    keeper: JoinHandle<()>,
}

/// What every visitor of a door shares.
#[derive(Debug)]
struct House {
    context: Context,
    login: Login,
    key: Option<russh::keys::PublicKey>,
    home: std::path::PathBuf,
    /// Names the processes of this door's sessions.
    tag: String,
    n_sessions: AtomicU64,
    /// Checking a password is slow on purpose, so one at a time.
    checking: Semaphore,
}

impl Door {
    pub async fn open(context: &Context, login: &Login) -> Result<Door, DoorError> {
        let key = login.public_key.as_deref().map(russh::keys::PublicKey::from_openssh).transpose();
        let key = match (key, &login.password) {
            (Ok(key), _) => key,
            (Err(error), Some(_)) => {
                tracing::warn!(%error, "the administrator's key cannot be read; only the password opens the login door");
                None
            }
            (Err(error), None) => return Err(DoorError::Key(error)),
        };
        let root = context.directories.root().to_owned();
        let host_key = spawn_blocking(move || host_key::obtain(&root)).await;
        let host_key = host_key.unwrap_or_else(|error| Err(io::Error::other(error))).map_err(DoorError::HostKey)?;
        let home = context.directories.login_home().map_err(DoorError::Home)?;
        let address = &context.address;
        let listener = first_free(address).await;
        let listener = listener.map_err(|source| DoorError::Port { address: address.to_string(), source })?;
        let port = listener.local_addr().map_or(0, |at| at.port());
        let tag = context.tags.with("login/");
        let (n_sessions, checking) = (AtomicU64::new(0), Semaphore::new(1));
        let house = House { context: context.clone(), login: login.clone(), key, home, tag, n_sessions, checking };
        let (tag, config) = (house.tag.clone(), config(&house, host_key));
        let keeper = tokio::spawn(keep(listener, Arc::new(config), Arc::new(house)));
        Ok(Door { at: LoginDoor { address: address.to_string(), port }, tag, keeper })
    }

    /// Closes the door and waits until nothing is left of those who came through it.
    pub async fn close(self) {
        self.keeper.abort();
        let tag = self.tag.clone();
        // Joining fails only when the runtime ends; then the guards see to it.
        let _ = spawn_blocking(move || sweep(&tag)).await;
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        self.keeper.abort();
    }
}

impl House {
    /// How one may show who one is.
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

fn config(house: &House, host_key: russh::keys::PrivateKey) -> Config {
    Config {
        server_id: SshId::Standard("SSH-2.0-Corro".into()),
        methods: house.methods(),
        keys: vec![host_key],
        max_auth_attempts: MAX_ATTEMPTS,
        // Clients ask first which methods there are; that is no attempt.
        auth_rejection_time_initial: Some(Duration::ZERO),
        inactivity_timeout: None,
        keepalive_interval: Some(ASK_AFTER),
        nodelay: true,
        ..Config::default()
    }
}

async fn first_free(address: &str) -> io::Result<TcpListener> {
    let mut found = lookup_host((address, 0)).await?;
    let mut at: SocketAddr = found.next().ok_or(io::ErrorKind::AddrNotAvailable)?;
    let mut port = FIRST_LOGIN_PORT;
    loop {
        at.set_port(port);
        match TcpListener::bind(at).await {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && port < FIRST_LOGIN_PORT + N_PORTS => port += 1,
            bound => return bound,
        }
    }
}

/// Lets visitors in until it is aborted; all of them leave with it.
async fn keep(listener: TcpListener, config: Arc<Config>, house: Arc<House>) {
    let mut visits = ConnectionSet::new(MAX_VISITS);
    loop {
        let has_space = visits.has_space();
        tokio::select! {
            accepted = listener.accept(), if has_space => match accepted {
                Ok((stream, _)) => {
                    visits.spawn(|proof| visit(stream, Arc::clone(&config), Arc::clone(&house), proof));
                }
                Err(error) => {
                    tracing::warn!(%error, "the login door cannot take a connection");
                    sleep(Duration::from_secs(1)).await;
                }
            },
            () = visits.ended() => {}
        }
    }
}

/// Cuts a connection whatever anybody else still holds of it.
struct Line(std::net::TcpStream);

impl Drop for Line {
    fn drop(&mut self) {
        // It may be cut already.
        let _ = self.0.shutdown(Shutdown::Both);
    }
}

async fn visit(stream: TcpStream, config: Arc<Config>, house: Arc<House>, proof: Proof) {
    let split = stream.into_std().and_then(|stream| Ok((stream.try_clone()?, TcpStream::from_std(stream)?)));
    let Ok((line, stream)) = split else { return };
    let _line = Line(line);
    let (channels, mut asked) = mpsc::channel(MAX_CHANNELS);
    let (visitor, mut known) = Visitor::new(house, channels, MAX_CHANNELS);
    let running = timeout(LOGIN_WITHIN, run_stream(config, stream, visitor)).await;
    let Ok(Ok(mut running)) = running else { return };
    let handle = running.handle();
    let mut work = JoinSet::new();
    let mut deadline = std::pin::pin!(sleep(LOGIN_WITHIN));
    loop {
        tokio::select! {
            _ = &mut running => break,
            () = &mut deadline, if *known.borrow_and_update() == Known::No => return,
            Ok(()) = known.changed() => {
                if *known.borrow() != Known::No {
                    proof.give();
                }
            }
            Some(channel) = asked.recv() => {
                work.spawn(channel.serve(handle.clone()));
            }
            Some(_) = work.join_next(), if !work.is_empty() => {}
        }
    }
    // Those still at work notice by themselves that the visitor has left.
    let _ = timeout(END_WITHIN, async { while work.join_next().await.is_some() {} }).await;
}
