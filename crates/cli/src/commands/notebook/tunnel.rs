//! The local port of a notebook: accepts connections on the loopback address and forwards each of them through the current SSH connection to the port of
//! the job's Jupyter. The port stays open while the SSH connection is made again; connections that come meanwhile wait.

use std::io;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::error::CliError;
use crate::node_ssh::connection::Connection;
use crate::node_ssh::port_forward::{PortForward, forward_stream};

/// Port of the first choice, which users of Jupyter know.
const USUAL_PORT: u16 = 8888;
/// How long a connection waits for its way to the node.
const ROUTE_TIMEOUT: Duration = Duration::from_secs(60);
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The way to Jupyter. `None` while there is none.
type Route = Option<(Arc<Connection>, u16)>;

/// A local port that forwards. Dropping it closes the port and all connections.
pub struct Tunnel {
    pub local_port: u16,
    route: watch::Sender<Route>,
    _accepting: JoinSet<()>,
}

impl Tunnel {
    /// Opens the given port, or the usual one, or any that is free.
    pub async fn open(port: Option<u16>) -> Result<Tunnel, CliError> {
        let bind = |port: u16| TcpListener::bind((Ipv4Addr::LOCALHOST, port));
        let bound = match (port, bind(port.unwrap_or(USUAL_PORT)).await) {
            (None, Err(error)) if error.kind() == io::ErrorKind::AddrInUse => bind(0).await,
            (_, bound) => bound,
        };
        let cannot = |error: io::Error| {
            let port = port.map_or_else(|| "a port".to_owned(), |port| format!("port {port}"));
            CliError::new(format!("cannot listen on {port} of this machine"))
                .cause(error)
                .hint("choose another one with --port, or leave it out")
        };
        let listener = bound.map_err(cannot)?;
        let local_port = listener.local_addr().map_err(cannot)?.port();
        let (route, routes) = watch::channel(None);
        let mut accepting = JoinSet::new();
        accepting.spawn(accept_loop(listener, routes));
        Ok(Tunnel { local_port, route, _accepting: accepting })
    }

    /// Sets the way for all further connections: a port of the loopback address of the node.
    pub fn set_route(&self, connection: Arc<Connection>, port: u16) {
        self.route.send_replace(Some((connection, port)));
    }

    pub fn clear_route(&self) {
        self.route.send_replace(None);
    }
}

async fn accept_loop(listener: TcpListener, routes: watch::Receiver<Route>) {
    let mut streams = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    streams.spawn(forward(stream, routes.clone()));
                }
                // Too many open files, for example.
                Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
            },
            Some(_) = streams.join_next() => {}
        }
    }
}

async fn forward(stream: TcpStream, mut routes: watch::Receiver<Route>) {
    // An error means that there is no way for a long time, or that the tunnel is closed.
    let route =
        timeout(ROUTE_TIMEOUT, async { routes.wait_for(Option::is_some).await.ok().and_then(|route| route.clone()) });
    let Ok(Some((connection, port))) = route.await else { return };
    forward_stream(connection.handle(), stream, PortForward::to_loopback(port)).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_port_that_was_given_is_the_only_choice() {
        let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port");
        let port = taken.local_addr().expect("bound").port();
        let error = Tunnel::open(Some(port)).await.err().expect("taken");
        assert_eq!(error.message, format!("cannot listen on port {port} of this machine"));
        drop(taken);
        assert_eq!(Tunnel::open(Some(port)).await.expect("free").local_port, port);
        let (one, two) = (Tunnel::open(None).await.expect("any"), Tunnel::open(None).await.expect("another"));
        assert_ne!(one.local_port, two.local_port);
    }
}
