//! Addresses of a rendezvous at rank 0: an abstract Unix socket and a few TCP ports, derived from the job id, so that no rank
//! needs an address as an argument and no file is left behind.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, ToSocketAddrs};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::SocketAddr as UnixAddr;

use sha2::{Digest, Sha256};

use super::error::DialError;
use crate::bootstrap::rendezvous_method::{Rank0Host, Rank0Rendezvous};
use crate::peer_process;

pub struct Rank0Address {
    /// Authentication context of the connections; see [`crate::auth::authenticate`].
    pub context: Vec<u8>,
    pub host: Rank0Host,
    pub size: usize,
    /// Whether another run may have the same job id.
    pub is_ambiguous: bool,
    /// In the order in which they are tried; rank 0 listens on all that are free.
    pub ports: [u16; 4],
    /// Name of the abstract Unix socket.
    name: String,
}

impl Rank0Address {
    pub fn new(rank0: &Rank0Rendezvous, round: u64, size: usize) -> Rank0Address {
        let mut job = rank0.job_id.clone();
        if rank0.host == Rank0Host::SameHost
            && let Some(pid) = rank0.launcher_socket.and_then(launcher_pid)
        {
            job.push_str(&format!("\nlauncher={pid}"));
        }
        // Without the size, so that worlds of different sizes with the same job id notice each other.
        let context = format!("corro meeting 2, round {round}\n{job}").into_bytes();
        let uid = rustix::process::geteuid().as_raw();
        let digest = Sha256::digest([&context[..], &uid.to_le_bytes()].concat());
        let name = digest.iter().take(16).fold("corro-".to_owned(), |name, byte| format!("{name}{byte:02x}"));
        // The same ports in every round, because a firewall may allow only these.
        let digest = Sha256::digest(&job);
        let port = |nth: usize| FIRST_PORT + u16::from_le_bytes([digest[2 * nth], digest[2 * nth + 1]]) % N_PORTS;
        let (host, is_ambiguous) = (rank0.host.clone(), !rank0.has_unique_id);
        Rank0Address { context, host, size, is_ambiguous, ports: std::array::from_fn(port), name }
    }

    pub fn unix(&self) -> io::Result<UnixAddr> {
        UnixAddr::from_abstract_name(&self.name)
    }

    /// IP addresses of rank 0's host; empty when all ranks are on one host.
    pub fn ip_addresses(&self) -> Result<Vec<IpAddr>, DialError> {
        let names = match &self.host {
            Rank0Host::SameHost => return Ok(Vec::new()),
            Rank0Host::Address(name) => std::slice::from_ref(name),
            Rank0Host::Candidates(names) => names.as_slice(),
        };
        let mut addresses = Vec::new();
        for name in names {
            let bare = name.trim_matches(['[', ']']);
            let found = (bare, 0).to_socket_addrs();
            let found = found.map_err(|source| DialError::Resolve { host: name.clone(), source })?;
            addresses.extend(found.map(|address| address.ip()));
        }
        addresses.dedup();
        Ok(addresses)
    }

    /// Text for messages.
    pub fn describe(&self) -> String {
        let ports = self.ports.map(|port| port.to_string()).join(", ");
        match &self.host {
            Rank0Host::SameHost => "the job's socket on this host".to_owned(),
            Rank0Host::Address(name) => format!("{name}, ports {ports}"),
            Rank0Host::Candidates(names) => format!("{}, ports {ports}", names.join(" or ")),
        }
    }
}

/// Above the ports of services, below the kernel's ephemeral ports.
const FIRST_PORT: u16 = 20_000;
const N_PORTS: u16 = 12_000;

/// Whether the address belongs to this host, which is tested by binding a socket to it.
pub fn is_local(address: IpAddr) -> bool {
    address.is_loopback() || TcpListener::bind(SocketAddr::new(address, 0)).is_ok()
}

/// The pid of the process that created an inherited socket pair: the launcher's process on this host. `None` when the descriptor
/// is not such a socket.
fn launcher_pid(descriptor: i32) -> Option<i32> {
    peer_process::raw_credentials(descriptor)?.pid
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixStream;

    use super::*;

    fn hosted(job_id: &str) -> Rank0Rendezvous {
        Rank0Rendezvous {
            job_id: job_id.to_owned(),
            host: Rank0Host::SameHost,
            launcher_socket: None,
            has_unique_id: true,
        }
    }

    #[test]
    fn jobs_and_rounds_have_different_sockets() {
        let one = Rank0Address::new(&hosted("a"), 0, 2);
        assert_eq!(one.name, Rank0Address::new(&hosted("a"), 0, 2).name);
        assert_ne!(one.name, Rank0Address::new(&hosted("b"), 0, 2).name);
        let next = Rank0Address::new(&hosted("a"), 1, 2);
        assert_ne!(one.name, next.name);
        assert_eq!(one.ports, next.ports);
        assert!(one.ports.iter().all(|port| (FIRST_PORT..FIRST_PORT + N_PORTS).contains(port)));
    }

    #[test]
    fn the_launchers_pid_distinguishes_jobs() {
        let (socket, _other) = UnixStream::pair().unwrap();
        assert_eq!(launcher_pid(socket.as_raw_fd()), Some(std::process::id() as i32));
        assert_eq!(launcher_pid(-1), None);
        let launcher_socket = Rank0Rendezvous { launcher_socket: Some(socket.as_raw_fd()), ..hosted("pmi") };
        assert_ne!(Rank0Address::new(&launcher_socket, 0, 2).name, Rank0Address::new(&hosted("pmi"), 0, 2).name);
    }

    #[test]
    fn addresses_of_this_host_are_local() {
        assert!(is_local("127.0.0.1".parse().unwrap()));
        assert!(!is_local("192.0.2.77".parse().unwrap()), "an address nobody has");
    }
}
