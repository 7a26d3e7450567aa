//! Connects ranks of different hosts. The higher of two ranks dials, and both sides authenticate.

use std::io::{self, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use crate::auth::Role;
use crate::close_on_fork::CloseOnFork;
use crate::transport::connect::credentials::{WorldCredentials, remaining_time};
use crate::transport::connect::error::ConnectError;
use crate::transport::peer_table::PeerTable;
use crate::transport::tcp::listener::{PeerListener, StreamId};
use crate::transport::tcp::socket::{Socket, clear_timeouts, set_options};

/// Time limit of one connection attempt to one address.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// Makes `n_streams` connections with each of `peers` (rank and addresses). Returns them by peer. Collective over the ranks concerned.
#[expect(clippy::too_many_arguments, reason = "each is one fact about the connections")]
pub fn connect_mesh(
    listener: &PeerListener,
    rank: usize,
    peers: &[(usize, &[SocketAddr])],
    comm_id: u64,
    n_streams: usize,
    credentials: &WorldCredentials,
    peer_table: &PeerTable,
    deadline: Instant,
) -> Result<Vec<Vec<Socket>>, ConnectError> {
    let streams = || 0..n_streams as u32;
    let diallers = peers.iter().filter(|(peer, _)| *peer > rank);
    let expected: Vec<StreamId> = diallers
        .flat_map(|(peer, _)| streams().map(move |stream| StreamId { comm_id, rank: *peer as u32, stream }))
        .collect();
    std::thread::scope(|scope| {
        let accepted = std::thread::Builder::new()
            .name("corro-accept".into())
            .spawn_scoped(scope, || listener.accept_all(&expected, rank, credentials, peer_table, deadline))
            .map_err(ConnectError::Thread)?;
        let mut dialled = Vec::new();
        for (peer, addresses) in peers.iter().filter(|(peer, _)| *peer < rank) {
            for stream in streams() {
                let id = StreamId { comm_id, rank: rank as u32, stream };
                dialled.push(dial(addresses, *peer, id, credentials, peer_table, deadline)?);
            }
        }
        let accepted = accepted.join().expect("the accepting thread does not panic")?;
        let (mut dialled, mut accepted) = (dialled.into_iter(), accepted.into_iter());
        let streams_of_peer = |peer: usize| {
            if peer < rank {
                dialled.by_ref().take(n_streams).collect()
            } else {
                accepted.by_ref().take(n_streams).collect()
            }
        };
        Ok(peers.iter().map(|(peer, _)| *peer).map(streams_of_peer).collect())
    })
}

/// Dials rank `listener` at each of its addresses in turn, again and again until the deadline: its host may come up late.
fn dial(
    addresses: &[SocketAddr],
    listener: usize,
    id: StreamId,
    credentials: &WorldCredentials,
    peer_table: &PeerTable,
    deadline: Instant,
) -> Result<Socket, ConnectError> {
    let mut pause = Duration::from_millis(5);
    loop {
        peer_table.check_deaths()?;
        let mut last = io::Error::new(io::ErrorKind::AddrNotAvailable, "it has no address");
        for address in addresses {
            match dial_address(address, listener, id, credentials, deadline) {
                Ok(stream) => return Ok(stream),
                Err(ConnectError::Network(error)) => last = error,
                Err(error) => last = io::Error::other(error),
            }
        }
        if Instant::now() + pause >= deadline {
            return Err(ConnectError::Unreachable { ranks: vec![listener], cause: last });
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(200));
    }
}

fn dial_address(
    address: &SocketAddr,
    listener: usize,
    id: StreamId,
    credentials: &WorldCredentials,
    deadline: Instant,
) -> Result<Socket, ConnectError> {
    let timeout = remaining_time(deadline).min(CONNECT_TIMEOUT);
    let stream = CloseOnFork::new(TcpStream::connect_timeout(address, timeout).map_err(ConnectError::Network)?);
    set_options(&stream, deadline).map_err(ConnectError::Network)?;
    credentials.authenticate(&*stream, "tcp", listener, Role::Dialer)?;
    (&*stream).write_all(&id.encode()).map_err(ConnectError::Network)?;
    clear_timeouts(&stream).map_err(ConnectError::Network)?;
    Ok(stream)
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::net::{IpAddr, Ipv4Addr};

    use super::*;

    #[test]
    fn three_ranks_connect_in_any_order_and_unauthenticated_peers_are_dropped() {
        let credentials = WorldCredentials { secret: Some(crate::auth::Secret::new("s")), world: [7; 16] };
        let loopback = [IpAddr::V4(Ipv4Addr::LOCALHOST)];
        let listeners: Vec<PeerListener> =
            (0..3).map(|_| PeerListener::open(&loopback, None).expect("a port")).collect();
        let deadline = Instant::now() + Duration::from_secs(20);
        let peers = (0..3).map(|rank| crate::error::Peer { rank, host: "h".into() });
        let peer_table = PeerTable::new(peers.collect());
        // It does not know the secret.
        let mut stranger = TcpStream::connect(listeners[0].addresses[0]).expect("the port is open");
        stranger.write_all(&[0xff; 200]).expect("sent");
        std::thread::scope(|scope| {
            for rank in [2, 0, 1] {
                let (listeners, credentials, peer_table) = (&listeners, &credentials, &peer_table);
                scope.spawn(move || {
                    let others = (0..3).filter(|peer| *peer != rank);
                    let peers: Vec<(usize, &[SocketAddr])> =
                        others.map(|peer| (peer, listeners[peer].addresses.as_slice())).collect();
                    // Two communicators: a fast rank connects for the second while a slow one still accepts for the first.
                    for comm_id in 1..3u64 {
                        let listener = &listeners[rank];
                        let links = connect_mesh(listener, rank, &peers, comm_id, 2, credentials, peer_table, deadline)
                            .expect("all connect");
                        for ((peer, _), streams) in peers.iter().zip(links) {
                            for (index, stream) in streams.into_iter().enumerate() {
                                let mut stream = &*stream;
                                stream.write_all(&[rank as u8, index as u8, comm_id as u8]).expect("sent");
                                let mut received = [0; 3];
                                stream.read_exact(&mut received).expect("received");
                                assert_eq!(received, [*peer as u8, index as u8, comm_id as u8]);
                            }
                        }
                    }
                });
            }
        });
    }
}
