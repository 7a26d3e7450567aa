//! Ports of this machine that lead to a node: `-L LOCALPORT:HOST:REMOTEPORT`. Entered by `node exec`. Listens on loopback
//! only: whoever reaches a forwarded port is inside the cluster.

use std::net::Ipv4Addr;
use std::sync::Arc;

use russh::client::Handle;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use super::ssh::{Connection, Visitor};
use crate::failure::Failure;
use crate::talk::say;

/// From a port here to a port that the node reaches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forwarding {
    local_port: u16,
    host: String,
    port: u16,
}

/// Every port that is forwarded. Dropping it closes them.
pub struct Forwards {
    listeners: JoinSet<()>,
}

pub fn parse(text: &str) -> Result<Forwarding, String> {
    let usage = || "use LOCALPORT:HOST:REMOTEPORT, such as 6006:localhost:6006".to_owned();
    let (local_port, rest) = text.split_once(':').ok_or_else(usage)?;
    let (host, port) = rest.rsplit_once(':').filter(|(host, _)| !host.is_empty()).ok_or_else(usage)?;
    let number = |text: &str| text.parse().map_err(|_| usage());
    Ok(Forwarding { local_port: number(local_port)?, host: host.to_owned(), port: number(port)? })
}

/// Opens all ports before anything is forwarded, so that one that is taken is said at once.
pub async fn listen(connection: &Connection, wanted: &[Forwarding]) -> Result<Forwards, Failure> {
    let mut listeners = JoinSet::new();
    for forwarding in wanted {
        let Forwarding { local_port, host, port } = forwarding;
        let cannot = |error: std::io::Error| Failure {
            causes: vec![error.to_string()],
            ..Failure::new(format!("cannot listen on port {local_port} of this machine"))
        };
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, *local_port)).await.map_err(cannot)?;
        let address = listener.local_addr().map_err(cannot)?;
        say(format_args!("Forwarding {address} to {host}:{port}"));
        listeners.spawn(accept(connection.handle(), listener, forwarding.clone()));
    }
    Ok(Forwards { listeners })
}

impl Forwards {
    /// Forwards until Ctrl-C, which is the way to end it, or until nothing is left to forward.
    pub async fn until_interrupted(mut self) -> Result<(), Failure> {
        tokio::select! {
            _ = tokio::signal::ctrl_c() => Ok(()),
            _ = self.listeners.join_next() => Err(Failure::new("the connection to the node broke")),
        }
    }
}

/// Ends when the connection to the node does.
async fn accept(handle: Arc<Handle<Visitor>>, listener: TcpListener, to: Forwarding) {
    let mut callers = JoinSet::new();
    while !handle.is_closed() {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    callers.spawn(carry(Arc::clone(&handle), stream, to.clone()));
                }
                Err(error) => {
                    say(format_args!("corro: cannot take a caller on port {}: {error}", to.local_port));
                    tokio::time::sleep(std::time::Duration::from_millis(100)).await;
                }
            },
            // Also a chance to see that the node is gone.
            () = tokio::time::sleep(std::time::Duration::from_secs(1)) => while callers.try_join_next().is_some() {},
        }
    }
}

async fn carry(handle: Arc<Handle<Visitor>>, mut stream: TcpStream, to: Forwarding) {
    match handle.channel_open_direct_tcpip(to.host.clone(), to.port.into(), "127.0.0.1", 0).await {
        Ok(channel) => {
            // Either end may hang up; there is nobody to tell.
            let _ = tokio::io::copy_bidirectional(&mut stream, &mut channel.into_stream()).await;
        }
        Err(error) => say(format_args!("corro: the node cannot reach {}:{}: {error}", to.host, to.port)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        let forwarding = |local_port, host: &str, port| Ok(Forwarding { local_port, host: host.to_owned(), port });
        assert_eq!(parse("6006:localhost:80"), forwarding(6006, "localhost", 80));
        assert_eq!(parse("0:::1:80"), forwarding(0, "::1", 80));
        for bad in ["", "1", "1:h", "1::2", "x:h:1", "1:h:x", "70000:h:1"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
