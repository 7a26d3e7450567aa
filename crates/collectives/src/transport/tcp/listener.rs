//! The listening socket of a rank. A peer may connect before this rank expects the connection; such connections are kept
//! until they are asked for.

use std::collections::HashMap;
use std::io::{self, Read};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::ops::RangeInclusive;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::auth::Role;
use crate::close_on_fork::CloseOnFork;
use crate::transport::connect::credentials::WorldCredentials;
use crate::transport::connect::error::ConnectError;
use crate::transport::connect::handshake_pool::HandshakePool;
use crate::transport::peer_table::PeerTable;
use crate::transport::tcp::socket::{Socket, clear_timeouts, set_options};

/// The purpose of a connection, which the dialling rank sends after authentication. On the wire: comm id (u64), rank (u32), stream
/// (u32), little-endian.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StreamId {
    pub comm_id: u64,
    /// The dialling rank.
    pub rank: u32,
    /// Index among the connections of this communicator between the two ranks.
    pub stream: u32,
}

pub const STREAM_ID_BYTES: usize = 16;

/// The comm id of control connections.
pub const CONTROL_COMM_ID: u64 = u64::MAX;

const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);

/// The listening socket, and authenticated connections that have not been asked for yet.
pub struct PeerListener {
    listener: CloseOnFork<TcpListener>,
    pub addresses: Vec<SocketAddr>,
    early: Mutex<HashMap<StreamId, Socket>>,
    handshake_pool: HandshakePool<(StreamId, Socket)>,
}

impl PeerListener {
    /// Listens on any port, or on a free one of `ports`. The highest port is tried first, because launchers take theirs from below.
    pub fn open(hosts: &[IpAddr], ports: Option<&RangeInclusive<u16>>) -> Result<PeerListener, ConnectError> {
        let listener = match ports {
            None => bind(hosts, 0).map_err(ConnectError::Network)?,
            Some(ports) => {
                let mut attempts = ports.clone().rev().map(|port| bind(hosts, port));
                let bound =
                    attempts.find(|bound| !matches!(bound, Err(error) if error.kind() == io::ErrorKind::AddrInUse));
                let none_free = ConnectError::NoFreePort { first: *ports.start(), last: *ports.end() };
                bound.ok_or(none_free)?.map_err(ConnectError::Network)?
            }
        };
        let listener = CloseOnFork::new(listener);
        listener.set_nonblocking(true).map_err(ConnectError::Network)?;
        let port = listener.local_addr().map_err(ConnectError::Network)?.port();
        let addresses = hosts.iter().map(|host| SocketAddr::new(*host, port)).collect();
        let handshake_pool = HandshakePool::open().map_err(ConnectError::Network)?;
        Ok(PeerListener { listener, addresses, early: Mutex::new(HashMap::new()), handshake_pool })
    }

    /// Waits until all of `expected` have connected, and returns them in that order. Fails at once when a rank of the world is known to have died.
    pub fn accept_all(
        &self,
        expected: &[StreamId],
        rank: usize,
        credentials: &WorldCredentials,
        peer_table: &PeerTable,
        deadline: Instant,
    ) -> Result<Vec<Socket>, ConnectError> {
        loop {
            peer_table.check_deaths()?;
            {
                let mut early = self.early.lock().unwrap_or_else(PoisonError::into_inner);
                early.extend(self.handshake_pool.take_authenticated());
                if expected.iter().all(|id| early.contains_key(id)) {
                    return Ok(expected.iter().filter_map(|id| early.remove(id)).collect());
                }
            }
            match self.listener.accept() {
                Ok((stream, _)) => {
                    let stream = CloseOnFork::new(stream);
                    self.start_handshake(stream, rank, credentials, deadline).map_err(ConnectError::Network)?;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && Instant::now() < deadline => {
                    self.handshake_pool.wait(&self.listener, deadline).map_err(ConnectError::Network)?;
                }
                // The peer has closed the connection already.
                Err(error) if matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted) => {
                }
                Err(error) => return Err(self.unreachable(expected, error)),
            }
        }
    }

    fn start_handshake(
        &self,
        stream: Socket,
        rank: usize,
        credentials: &WorldCredentials,
        deadline: Instant,
    ) -> io::Result<()> {
        let credentials = credentials.clone();
        let handshake_deadline = deadline.min(Instant::now() + HANDSHAKE_TIMEOUT);
        self.handshake_pool.admit(stream, move |stream| {
            let id = accept_handshake(&stream, rank, &credentials, handshake_deadline).ok()?;
            Some((id, stream))
        })
    }

    fn unreachable(&self, expected: &[StreamId], error: io::Error) -> ConnectError {
        let is_late = error.kind() == io::ErrorKind::WouldBlock;
        let cause = if is_late { io::ErrorKind::TimedOut.into() } else { error };
        let early = self.early.lock().unwrap_or_else(PoisonError::into_inner);
        let missing = expected.iter().filter(|id| !early.contains_key(id));
        let mut ranks: Vec<usize> = missing.map(|id| id.rank as usize).collect();
        ranks.dedup();
        ConnectError::Unreachable { ranks, cause }
    }
}

/// Authenticates an accepted connection and reads its purpose.
fn accept_handshake(
    mut stream: &TcpStream,
    rank: usize,
    credentials: &WorldCredentials,
    deadline: Instant,
) -> Result<StreamId, ConnectError> {
    stream.set_nonblocking(false).map_err(ConnectError::Network)?;
    set_options(stream, deadline).map_err(ConnectError::Network)?;
    credentials.authenticate(stream, "tcp", rank, Role::Listener)?;
    let mut bytes = [0; STREAM_ID_BYTES];
    stream.read_exact(&mut bytes).map_err(ConnectError::Network)?;
    clear_timeouts(stream).map_err(ConnectError::Network)?;
    Ok(StreamId::decode(&bytes))
}

impl StreamId {
    pub fn encode(&self) -> Vec<u8> {
        [&self.comm_id.to_le_bytes()[..], &self.rank.to_le_bytes(), &self.stream.to_le_bytes()].concat()
    }

    fn decode(bytes: &[u8; STREAM_ID_BYTES]) -> StreamId {
        let number = |range: std::ops::Range<usize>| u32::from_le_bytes(bytes[range].try_into().expect("four bytes"));
        let comm_id = u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes"));
        StreamId { comm_id, rank: number(8..12), stream: number(12..16) }
    }
}

/// Binds to the address of a single host address, else to all addresses, IPv6 and IPv4 where the kernel has both.
fn bind(hosts: &[IpAddr], port: u16) -> io::Result<TcpListener> {
    match hosts {
        [one] => TcpListener::bind((*one, port)),
        _ => match TcpListener::bind((Ipv6Addr::UNSPECIFIED, port)) {
            Err(error) if error.kind() != io::ErrorKind::AddrInUse => TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)),
            bound => bound,
        },
    }
}
