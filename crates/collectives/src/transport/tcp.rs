//! Connections between hosts: which addresses a rank can be reached at, who dials whom, and what is said first. Entered when a
//! world or a communicator is made. Everybody is asked for its proof before anything else is read.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::ops::RangeInclusive;
use std::os::fd::AsRawFd;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::net::sockopt;

use crate::fork::ForkClosed;
use crate::transport::connect::{ConnectError, Credentials, time_left};
use crate::transport::control::peer_table::PeerTable;
use crate::transport::handshake_pool::HandshakePool;
use crate::trust::Role;

/// A connection of this process, which its forked children do not share.
pub type Socket = ForkClosed<TcpStream>;

/// What a connection is for, as its dialler says after the proof.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Visit {
    pub area: u64,
    pub rank: u32,
    pub stream: u32,
}

const LONGEST_PROOF: Duration = Duration::from_secs(5);

/// The area of connections that carry no data but news.
pub const CONTROL: u64 = u64::MAX;

/// Where this rank is reached, and who has come already for something that has not begun here yet.
pub struct Listening {
    listener: ForkClosed<TcpListener>,
    pub addresses: Vec<SocketAddr>,
    early: Mutex<HashMap<Visit, Socket>>,
    handshake_pool: HandshakePool<(Visit, Socket)>,
}

impl Listening {
    /// On any port, or on one of these. The highest first: launchers take theirs from below.
    pub fn open(hosts: &[IpAddr], ports: Option<&RangeInclusive<u16>>) -> Result<Listening, ConnectError> {
        let listener = match ports {
            None => bind(hosts, 0).map_err(ConnectError::Network)?,
            Some(ports) => {
                let mut tried = ports.clone().rev().map(|port| bind(hosts, port));
                let found =
                    tried.find(|bound| !matches!(bound, Err(error) if error.kind() == io::ErrorKind::AddrInUse));
                let none = ConnectError::Ports { first: *ports.start(), last: *ports.end() };
                found.ok_or(none)?.map_err(ConnectError::Network)?
            }
        };
        let listener = ForkClosed::new(listener);
        listener.set_nonblocking(true).map_err(ConnectError::Network)?;
        let port = listener.local_addr().map_err(ConnectError::Network)?.port();
        let addresses = hosts.iter().map(|host| SocketAddr::new(*host, port)).collect();
        let handshake_pool = HandshakePool::open().map_err(ConnectError::Network)?;
        Ok(Listening { listener, addresses, early: Mutex::new(HashMap::new()), handshake_pool })
    }

    /// Until all of `visits` have come, or a rank of the world is known to have died.
    pub fn receive(
        &self,
        visits: &[Visit],
        rank: usize,
        credentials: &Credentials,
        peer_table: &PeerTable,
        deadline: Instant,
    ) -> Result<Vec<Socket>, ConnectError> {
        loop {
            peer_table.check_deaths()?;
            {
                let mut early = self.early.lock().unwrap_or_else(PoisonError::into_inner);
                early.extend(self.handshake_pool.take_authenticated());
                if visits.iter().all(|visit| early.contains_key(visit)) {
                    return Ok(visits.iter().filter_map(|visit| early.remove(visit)).collect());
                }
            }
            match self.listener.accept() {
                Ok((stream, _)) => {
                    let stream = ForkClosed::new(stream);
                    self.admit(stream, rank, credentials, deadline).map_err(ConnectError::Network)?;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && Instant::now() < deadline => {
                    self.handshake_pool.wait(&self.listener, deadline).map_err(ConnectError::Network)?;
                }
                // It came and went.
                Err(error) if matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted) => {
                }
                Err(error) => return Err(self.missing(visits, error)),
            }
        }
    }

    fn admit(&self, stream: Socket, rank: usize, credentials: &Credentials, deadline: Instant) -> io::Result<()> {
        let credentials = credentials.clone();
        let patience = deadline.min(Instant::now() + LONGEST_PROOF);
        self.handshake_pool.admit(stream, move |stream| {
            let visit = welcome(&stream, rank, &credentials, patience).ok()?;
            Some((visit, stream))
        })
    }

    fn missing(&self, visits: &[Visit], error: io::Error) -> ConnectError {
        let late = error.kind() == io::ErrorKind::WouldBlock;
        let cause = if late { io::ErrorKind::TimedOut.into() } else { error };
        let early = self.early.lock().unwrap_or_else(PoisonError::into_inner);
        let missing = visits.iter().filter(|visit| !early.contains_key(visit));
        let mut ranks: Vec<usize> = missing.map(|visit| visit.rank as usize).collect();
        ranks.dedup();
        ConnectError::Unreachable { ranks, cause }
    }
}

fn welcome(
    mut stream: &TcpStream,
    rank: usize,
    credentials: &Credentials,
    deadline: Instant,
) -> Result<Visit, ConnectError> {
    stream.set_nonblocking(false).map_err(ConnectError::Network)?;
    prepare(stream, deadline).map_err(ConnectError::Network)?;
    credentials.prove(stream, "tcp", rank, Role::Listener)?;
    let mut said = [0; 16];
    stream.read_exact(&mut said).map_err(ConnectError::Network)?;
    stream.set_read_timeout(None).map_err(ConnectError::Network)?;
    stream.set_write_timeout(None).map_err(ConnectError::Network)?;
    let number = |range: std::ops::Range<usize>| u32::from_le_bytes(said[range].try_into().expect("four bytes"));
    let area = u64::from_le_bytes(said[..8].try_into().expect("eight bytes"));
    Ok(Visit { area, rank: number(8..12), stream: number(12..16) })
}

/// Dials `listener` at the first of its addresses that leads to it, again and again until the deadline: a host may come up late.
pub fn dial(
    addresses: &[SocketAddr],
    listener: usize,
    visit: Visit,
    credentials: &Credentials,
    peer_table: &PeerTable,
    deadline: Instant,
) -> Result<Socket, ConnectError> {
    let mut pause = Duration::from_millis(5);
    loop {
        peer_table.check_deaths()?;
        let mut last = io::Error::new(io::ErrorKind::AddrNotAvailable, "it has no address");
        for address in addresses {
            match dial_one(address, listener, visit, credentials, deadline) {
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

fn dial_one(
    address: &SocketAddr,
    listener: usize,
    visit: Visit,
    credentials: &Credentials,
    deadline: Instant,
) -> Result<Socket, ConnectError> {
    let patience = time_left(deadline).min(Duration::from_secs(2));
    let stream = ForkClosed::new(TcpStream::connect_timeout(address, patience).map_err(ConnectError::Network)?);
    prepare(&stream, deadline).map_err(ConnectError::Network)?;
    credentials.prove(&*stream, "tcp", listener, Role::Dialer)?;
    let said = [&visit.area.to_le_bytes()[..], &visit.rank.to_le_bytes(), &visit.stream.to_le_bytes()].concat();
    (&*stream).write_all(&said).map_err(ConnectError::Network)?;
    stream.set_read_timeout(None).map_err(ConnectError::Network)?;
    stream.set_write_timeout(None).map_err(ConnectError::Network)?;
    Ok(stream)
}

/// Small messages at once; a host that is cut off is noticed within seconds although nothing is sent. The kernel answers for a
/// process that is merely stopped.
fn prepare(stream: &TcpStream, deadline: Instant) -> io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(time_left(deadline)))?;
    stream.set_write_timeout(Some(time_left(deadline)))?;
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, Duration::from_secs(1))?;
    sockopt::set_tcp_keepintvl(stream, Duration::from_secs(1))?;
    sockopt::set_tcp_keepcnt(stream, 6)?;
    Ok(())
}

/// Whether the peer's kernel has left what was sent unanswered again and again, for about 6 seconds. Keepalive does not look as long
/// as something is under way, and the kernel's own limit (`TCP_USER_TIMEOUT`) would also end connections to a process that is merely
/// stopped and whose buffer is full.
pub fn is_cut_off(stream: &TcpStream) -> bool {
    // SAFETY: zero bytes are a valid `tcp_info`, of numbers only.
    let mut found: libc::tcp_info = unsafe { std::mem::zeroed() };
    let mut n_bytes = size_of::<libc::tcp_info>() as libc::socklen_t;
    // SAFETY: writes at most `n_bytes` to `found`, which is as long. A raw call, because rustix does not have this option.
    let status = unsafe {
        let found = (&raw mut found).cast();
        libc::getsockopt(stream.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_INFO, found, &raw mut n_bytes)
    };
    status == 0 && found.tcpi_retransmits >= UNANSWERED
}

/// Repetitions come after 0.2, 0.4, 0.8, 1.6 and 3.2 seconds.
const UNANSWERED: u8 = 5;

/// Connections to each of `peers` (rank and addresses), `n_streams` each: the higher rank dials.
#[expect(clippy::too_many_arguments, reason = "each is one fact about the connections")]
pub fn mesh(
    listening: &Listening,
    rank: usize,
    peers: &[(usize, &[SocketAddr])],
    area: u64,
    n_streams: usize,
    credentials: &Credentials,
    peer_table: &PeerTable,
    deadline: Instant,
) -> Result<Vec<Vec<Socket>>, ConnectError> {
    let streams = || 0..n_streams as u32;
    let callers = peers.iter().filter(|(peer, _)| *peer > rank);
    let visits: Vec<Visit> =
        callers.flat_map(|(peer, _)| streams().map(move |stream| Visit { area, rank: *peer as u32, stream })).collect();
    std::thread::scope(|scope| {
        let received = std::thread::Builder::new()
            .name("corro-accept".into())
            .spawn_scoped(scope, || listening.receive(&visits, rank, credentials, peer_table, deadline))
            .map_err(ConnectError::Thread)?;
        let mut dialled = Vec::new();
        for (peer, addresses) in peers.iter().filter(|(peer, _)| *peer < rank) {
            for stream in streams() {
                let visit = Visit { area, rank: rank as u32, stream };
                dialled.push(dial(addresses, *peer, visit, credentials, peer_table, deadline)?);
            }
        }
        let received = received.join().expect("the accepting thread does not panic")?;
        let (mut dialled, mut received) = (dialled.into_iter(), received.into_iter());
        let of = |peer: usize| {
            if peer < rank {
                dialled.by_ref().take(n_streams).collect()
            } else {
                received.by_ref().take(n_streams).collect()
            }
        };
        Ok(peers.iter().map(|(peer, _)| *peer).map(of).collect())
    })
}

fn bind(hosts: &[IpAddr], port: u16) -> io::Result<TcpListener> {
    match hosts {
        [one] => TcpListener::bind((*one, port)),
        _ => match TcpListener::bind((Ipv6Addr::UNSPECIFIED, port)) {
            Err(error) if error.kind() != io::ErrorKind::AddrInUse => TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)),
            bound => bound,
        },
    }
}

/// The addresses of this host that others may use: those of the named interfaces, else of all that are up. Loopback comes last, and
/// is of use only to who shares the machine.
pub fn own_addresses(interfaces: &[String]) -> Result<Vec<IpAddr>, ConnectError> {
    let all = interface_addresses().map_err(ConnectError::Network)?;
    for name in interfaces {
        if !all.iter().any(|(interface, _)| interface == name) {
            return Err(ConnectError::Interface { name: name.clone() });
        }
    }
    let chosen = all.into_iter().filter(|(interface, _)| interfaces.is_empty() || interfaces.contains(interface));
    let mut addresses: Vec<IpAddr> = chosen.map(|(_, address)| address).collect();
    addresses.sort_by_key(|address| (address.is_loopback(), address.is_ipv6()));
    Ok(addresses)
}

fn interface_addresses() -> io::Result<Vec<(String, IpAddr)>> {
    let mut first = std::ptr::null_mut();
    // SAFETY: fills in the address of a list that is freed below.
    if unsafe { libc::getifaddrs(&raw mut first) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let mut found = Vec::new();
    let mut next = first;
    while !next.is_null() {
        // SAFETY: an entry of the list; its name is a C string, its address null or of the family it states.
        unsafe {
            let entry = &*next;
            let name = std::ffi::CStr::from_ptr(entry.ifa_name).to_string_lossy().into_owned();
            let up = entry.ifa_flags & libc::IFF_UP as u32 != 0;
            if up && !entry.ifa_addr.is_null() {
                let address = match i32::from((*entry.ifa_addr).sa_family) {
                    libc::AF_INET => {
                        let v4 = &*entry.ifa_addr.cast::<libc::sockaddr_in>();
                        Some(IpAddr::V4(u32::from_be(v4.sin_addr.s_addr).into()))
                    }
                    libc::AF_INET6 => {
                        let v6 = Ipv6Addr::from((*entry.ifa_addr.cast::<libc::sockaddr_in6>()).sin6_addr.s6_addr);
                        // An address of the link alone means nothing without the reader's interface.
                        (!v6.is_unicast_link_local()).then_some(IpAddr::V6(v6))
                    }
                    _ => None,
                };
                found.extend(address.map(|address| (name, address)));
            }
            next = entry.ifa_next;
        }
    }
    // SAFETY: the list from above, once.
    unsafe { libc::freeifaddrs(first) };
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_known_and_named() {
        let addresses = own_addresses(&["lo".to_owned()]).expect("every machine has one");
        assert!(addresses.contains(&IpAddr::V4(Ipv4Addr::LOCALHOST)));
        let told = own_addresses(&["nosuch0".to_owned()]).expect_err("not there").to_string();
        assert!(told.contains("nosuch0") && told.contains("HOROVOD_GLOO_IFACE"), "{told}");
    }

    #[test]
    fn three_ranks_connect_in_any_order_and_strangers_are_turned_away() {
        let credentials = Credentials { secret: Some(crate::trust::Secret::new("s")), world: [7; 16] };
        let here = [IpAddr::V4(Ipv4Addr::LOCALHOST)];
        let doors: Vec<Listening> = (0..3).map(|_| Listening::open(&here, None).expect("a port")).collect();
        let deadline = Instant::now() + Duration::from_secs(20);
        let peers = (0..3).map(|rank| crate::error::Peer { rank, host: "h".into() });
        let peer_table = PeerTable::new(peers.collect());
        // It knows no secret, and another is only silent.
        let mut stranger = TcpStream::connect(doors[0].addresses[0]).expect("the door is open");
        stranger.write_all(&[0xff; 200]).expect("sent");
        std::thread::scope(|scope| {
            for rank in [2, 0, 1] {
                let (doors, credentials, peer_table) = (&doors, &credentials, &peer_table);
                scope.spawn(move || {
                    let others = (0..3).filter(|peer| *peer != rank);
                    let peers: Vec<(usize, &[SocketAddr])> =
                        others.map(|peer| (peer, doors[peer].addresses.as_slice())).collect();
                    // Two areas after each other: whoever is ahead meets whoever is behind.
                    for area in 1..3u64 {
                        let links = mesh(&doors[rank], rank, &peers, area, 2, credentials, peer_table, deadline)
                            .expect("all come");
                        for ((peer, _), streams) in peers.iter().zip(links) {
                            for (index, stream) in streams.into_iter().enumerate() {
                                let mut stream = &*stream;
                                stream.write_all(&[rank as u8, index as u8, area as u8]).expect("sent");
                                let mut seen = [0; 3];
                                stream.read_exact(&mut seen).expect("received");
                                assert_eq!(seen, [*peer as u8, index as u8, area as u8]);
                            }
                        }
                    }
                });
            }
        });
    }
}
