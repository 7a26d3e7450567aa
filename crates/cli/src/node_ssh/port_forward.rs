//! Local port forwarding over SSH: `-L LOCALPORT:HOST:REMOTEPORT`. Listens on loopback addresses only, because a forwarded port gives access to
//! the cluster.

use std::net::Ipv4Addr;
use std::sync::Arc;

use russh::client::Handle;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use super::connection::{Connection, HostKeyHandler};
use crate::error::CliError;
use crate::stdio::note;

/// One `-L`: a local port, and the host and port to which the node connects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortForward {
    local_port: u16,
    host: String,
    port: u16,
}

/// Listeners of all forwarded ports. Dropping it closes them.
pub struct ForwardListeners {
    listeners: JoinSet<()>,
}

pub fn parse(text: &str) -> Result<PortForward, String> {
    let usage = || "use LOCALPORT:HOST:REMOTEPORT, such as 6006:localhost:6006".to_owned();
    let (local_port, rest) = text.split_once(':').ok_or_else(usage)?;
    let (host, port) = rest.rsplit_once(':').filter(|(host, _)| !host.is_empty()).ok_or_else(usage)?;
    let number = |text: &str| text.parse().map_err(|_| usage());
    Ok(PortForward { local_port: number(local_port)?, host: host.to_owned(), port: number(port)? })
}

/// Opens all ports. A port that is in use is an error at once.
pub async fn listen(connection: &Connection, wanted: &[PortForward]) -> Result<ForwardListeners, CliError> {
    let mut listeners = JoinSet::new();
    for forwarding in wanted {
        let PortForward { local_port, host, port } = forwarding;
        let cannot_listen = |error: std::io::Error| {
            CliError::new(format!("cannot listen on port {local_port} of this machine")).cause(error)
        };
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, *local_port)).await.map_err(cannot_listen)?;
        let address = listener.local_addr().map_err(cannot_listen)?;
        note(format_args!("Forwarding {address} to {host}:{port}"));
        listeners.spawn(accept_loop(connection.handle(), listener, forwarding.clone()));
    }
    Ok(ForwardListeners { listeners })
}

impl ForwardListeners {
    /// Forwards until Ctrl-C, or until the connection to the node ends.
    pub async fn run_until_interrupted(mut self) -> Result<(), CliError> {
        tokio::select! {
            _ = tokio::signal::ctrl_c() => Ok(()),
            _ = self.listeners.join_next() => Err(CliError::new("the connection to the node broke")),
        }
    }
}

/// Accepts connections on a port until the connection to the node ends.
async fn accept_loop(handle: Arc<Handle<HostKeyHandler>>, listener: TcpListener, to: PortForward) {
    let mut streams = JoinSet::new();
    while !handle.is_closed() {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    streams.spawn(forward_stream(Arc::clone(&handle), stream, to.clone()));
                }
                Err(error) => {
                    note(format_args!("corro: cannot accept a connection on port {}: {error}", to.local_port));
                    tokio::time::sleep(std::time::Duration::from_millis(100)).await;
                }
            },
            // The loop then checks the connection to the node.
            () = tokio::time::sleep(std::time::Duration::from_secs(1)) => while streams.try_join_next().is_some() {},
        }
    }
}

/// Forwards one accepted connection until either end closes it.
async fn forward_stream(handle: Arc<Handle<HostKeyHandler>>, mut stream: TcpStream, to: PortForward) {
    match handle.channel_open_direct_tcpip(to.host.clone(), to.port.into(), "127.0.0.1", 0).await {
        Ok(channel) => {
            // Either end may close the stream, which is no error.
            let _ = tokio::io::copy_bidirectional(&mut stream, &mut channel.into_stream()).await;
        }
        Err(error) => note(format_args!("corro: the node cannot reach {}:{}: {error}", to.host, to.port)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forward_arguments_are_parsed() {
        let forwarding = |local_port, host: &str, port| Ok(PortForward { local_port, host: host.to_owned(), port });
        assert_eq!(parse("6006:localhost:80"), forwarding(6006, "localhost", 80));
        assert_eq!(parse("0:::1:80"), forwarding(0, "::1", 80));
        for bad in ["", "1", "1:h", "1::2", "x:h:1", "1:h:x", "70000:h:1"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
