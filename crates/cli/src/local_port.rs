//! A local port whose connections go to a port of a running job's node: each is a tunnel through the server with the login of this user. Listens on the
//! loopback address only. The destination may change while the port stays; connections that come while there is none wait for it.

use std::io;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use corro_base::error_chain;
use corro_client::tunnel::{Tunnel, TunnelError};
use corro_client::{Client, ClientError};
use corro_model::node::TunnelTarget;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout_at};

use crate::error::CliError;
use crate::resource::resource_ref::ResourceRef;
use crate::stdio::note;

/// How long a connection waits for a destination, and for a server that restarts.
const DESTINATION_TIMEOUT: Duration = Duration::from_secs(60);
const RETRY_PAUSE: Duration = Duration::from_millis(300);
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Limit of open connections, as the server has it for a job; further ones wait in the queue of the listener.
const MAX_CONNECTIONS: usize = 64;

/// A port of a job's node.
#[derive(Clone)]
pub struct Destination {
    pub client: Client,
    pub job: ResourceRef,
    /// Id of the node; the first one if it is absent.
    pub node: Option<String>,
    pub port: u16,
}

/// A local port. Dropping it closes the port and all its connections.
pub struct LocalPort {
    pub number: u16,
    destination: watch::Sender<Option<Destination>>,
    _accepting: JoinSet<()>,
}

impl LocalPort {
    /// Opens the given port, or without one the `usual` port, or any that is free. Port 0 is any that is free.
    pub async fn open(port: Option<u16>, usual: u16) -> Result<LocalPort, CliError> {
        let bind = |port: u16| TcpListener::bind((Ipv4Addr::LOCALHOST, port));
        let bound = match (port, bind(port.unwrap_or(usual)).await) {
            (None, Err(error)) if error.kind() == io::ErrorKind::AddrInUse => bind(0).await,
            (_, bound) => bound,
        };
        let cannot = |error: io::Error| {
            let port = port.map_or_else(|| "a port".to_owned(), |port| format!("port {port}"));
            CliError::new(format!("cannot listen on {port} of this machine")).cause(error)
        };
        let listener = bound.map_err(cannot)?;
        let number = listener.local_addr().map_err(cannot)?.port();
        let (destination, destinations) = watch::channel(None);
        let mut accepting = JoinSet::new();
        accepting.spawn(accept_loop(listener, destinations));
        Ok(LocalPort { number, destination, _accepting: accepting })
    }

    /// Sets the destination of all further connections.
    pub fn set_destination(&self, destination: Option<Destination>) {
        self.destination.send_replace(destination);
    }
}

async fn accept_loop(listener: TcpListener, destinations: watch::Receiver<Option<Destination>>) {
    let mut connections = JoinSet::new();
    let notes = Arc::new(FailureNotes::default());
    loop {
        tokio::select! {
            accepted = listener.accept(), if connections.len() < MAX_CONNECTIONS => match accepted {
                Ok((stream, _)) => {
                    let _ = stream.set_nodelay(true);
                    connections.spawn(forward(stream, destinations.clone(), Arc::clone(&notes)));
                }
                // Too many open files, for example.
                Err(_) => sleep(ACCEPT_PAUSE).await,
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

/// Serves one connection. Its failure is noted, and resets it.
async fn forward(stream: TcpStream, destinations: watch::Receiver<Option<Destination>>, notes: Arc<FailureNotes>) {
    match open_tunnel(destinations).await {
        Ok(tunnel) => {
            notes.clear();
            match tunnel.run(stream).await {
                // The program on this machine may close its connection at any time.
                Ok(()) | Err(TunnelError::Local { .. }) => {}
                Err(error) => notes.say(format!("a connection broke off: {}", error_chain::join(&error))),
            }
        }
        Err(reason) => {
            let _ = stream.set_zero_linger();
            notes.say(reason);
        }
    }
}

/// Opens a tunnel to the current destination. Waits for a destination, and for a server that is away.
async fn open_tunnel(mut destinations: watch::Receiver<Option<Destination>>) -> Result<Tunnel, String> {
    let deadline = Instant::now() + DESTINATION_TIMEOUT;
    loop {
        let waiting = destinations.wait_for(Option::is_some);
        let no_destination = || "a connection was given up: the job has no such port now".to_owned();
        let current = timeout_at(deadline, waiting).await.map_err(|_| no_destination())?;
        let current = current.ok().and_then(|current| current.clone()).ok_or_else(no_destination)?;
        let Destination { client, job, node, port } = current;
        match client.open_tunnel(&job.values(), TunnelTarget::Port(port), node.as_deref()).await {
            Ok(tunnel) => return Ok(tunnel),
            Err(error) if is_worth_waiting(&error) && Instant::now() + RETRY_PAUSE < deadline => {
                sleep(RETRY_PAUSE).await
            }
            Err(error) => return Err(error_chain::join(&error)),
        }
    }
}

/// Whether the server or the node's agent is away for a moment, or the node still prepares the job. A limit of connections is none of these.
fn is_worth_waiting(error: &ClientError) -> bool {
    let is_in_preparation = error.api().is_some_and(|error| error.code == "JobNotReady");
    is_in_preparation || (error.is_transient() && error.status() != Some(429))
}

/// Says a failure once, not for each connection of a browser that tries again.
#[derive(Default)]
struct FailureNotes {
    last: Mutex<Option<String>>,
}

impl FailureNotes {
    fn say(&self, text: String) {
        let mut last = self.last.lock().expect("no one panics while holding the last note");
        if last.as_ref() != Some(&text) {
            note(format_args!("corro: {text}"));
            *last = Some(text);
        }
    }

    fn clear(&self) {
        *self.last.lock().expect("no one panics while holding the last note") = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use corro_model::ApiError;

    #[tokio::test]
    async fn a_port_that_was_given_is_the_only_choice() {
        let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port");
        let port = taken.local_addr().expect("bound").port();
        let error = LocalPort::open(Some(port), 8888).await.err().expect("taken");
        assert_eq!(error.message, format!("cannot listen on port {port} of this machine"));
        let other = LocalPort::open(None, port).await.expect("any");
        assert_ne!(other.number, port);
        drop(taken);
        assert_eq!(LocalPort::open(Some(port), 8888).await.expect("free").number, port);
    }

    #[test]
    fn only_what_passes_is_waited_for() {
        let waits = |status| is_worth_waiting(&ClientError::Api(ApiError::new(status, "Code", "text")));
        for (status, expected) in [(503, true), (504, true), (409, false), (403, false), (404, false), (429, false)] {
            assert_eq!(waits(status), expected, "{status}");
        }
    }
}
