//! The address at which other nodes reach this one: the configured address, else the local address of the route to the
//! server. Determined once when an agent starts and reported to the server, which passes it on to the other nodes.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use corro_model::NodeId;
use sha2::{Digest, Sha256};
use tokio::net::{UdpSocket, lookup_host};
use tokio::time::sleep;
use tokio_tungstenite::tungstenite::http::Uri;

use crate::config::AgentConfig;

const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// Determines the node's address. Waits for a route to the server if none is configured. On the server's own machine
/// each node gets a loopback address of its own, like the nodes that the server starts itself: launchers distinguish
/// nodes by address.
pub async fn node_address(config: &AgentConfig, node: &NodeId) -> String {
    if let Some(address) = &config.address {
        return address.clone();
    }
    loop {
        match local_address_towards(&config.present_server()).await {
            Ok(address) if address.is_loopback() => return loopback(node).to_string(),
            Ok(address) => return address.to_string(),
            Err(error) => {
                tracing::debug!(%error, "no route to the server yet");
                sleep(RETRY_INTERVAL).await;
            }
        }
    }
}

/// A loopback address derived from the node's id, outside of 127.0.0.0/16, which servers assign from.
fn loopback(node: &NodeId) -> Ipv4Addr {
    let digest = Sha256::digest(node.as_str());
    Ipv4Addr::new(127, 64 + digest[0] % 64, digest[1], 1 + digest[2] % 254)
}

/// Local address of the route to the server. Connects a UDP socket, which sends no packet.
async fn local_address_towards(server: &str) -> io::Result<IpAddr> {
    let uri: Uri = server.parse().map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    let host = uri.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
    let port = uri.port_u16().unwrap_or(443);
    let mut why = io::Error::from(io::ErrorKind::NotFound);
    for peer in lookup_host((host, port)).await? {
        match local_address_for(peer).await {
            Ok(address) => return Ok(address),
            Err(error) => why = error,
        }
    }
    Err(why)
}

async fn local_address_for(peer: SocketAddr) -> io::Result<IpAddr> {
    let any: IpAddr = if peer.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((any, 0)).await?;
    socket.connect(peer).await?;
    Ok(socket.local_addr()?.ip().to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_address_follows_from_the_route_to_the_server() {
        for server in ["http://127.0.0.1:8470", "https://localhost:1/"] {
            assert!(local_address_towards(server).await.expect("there is a way").is_loopback(), "{server}");
        }
        let [one, two] = [1, 2].map(|index| loopback(&crate::testing::node(index)));
        assert!(one.is_loopback() && one != two && one == loopback(&crate::testing::node(1)), "{one} {two}");
        assert!(
            local_address_towards("https://no-such-host.invalid:1").await.is_err()
                && local_address_towards("nothing").await.is_err()
        );
    }
}
