//! Where a job without a key-value server meets: an abstract Unix socket and a few TCP ports, all derived from the job's
//! identity, so that nothing has to be told and nothing is left behind. Entered by [`super::host`] and [`super::guest`].

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, ToSocketAddrs};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::SocketAddr as UnixAddr;

use sha2::{Digest, Sha256};

use super::Attempt;
use crate::bootstrap::place::{Host, Hosted};
use crate::transport::peer;

pub struct Spot {
    /// What the connections of this meeting are for; see [`crate::trust::prove`].
    pub context: Vec<u8>,
    pub host: Host,
    pub size: usize,
    /// Whether another run may have the same identity.
    pub is_ambiguous: bool,
    /// Best first; rank 0 listens on all that are free.
    pub ports: [u16; 4],
    name: String,
}

impl Spot {
    pub fn of(hosted: &Hosted, round: u64, size: usize) -> Spot {
        let mut job = hosted.identity.clone();
        if hosted.host == Host::Here
            && let Some(pid) = hosted.kin.and_then(launcher_of)
        {
            job.push_str(&format!("\nlauncher={pid}"));
        }
        // Not the size: worlds of different sizes that were told one place are to find out.
        let context = format!("corro meeting 2, round {round}\n{job}").into_bytes();
        let uid = rustix::process::geteuid().as_raw();
        let digest = Sha256::digest([&context[..], &uid.to_le_bytes()].concat());
        let name = digest.iter().take(16).fold("corro-".to_owned(), |name, byte| format!("{name}{byte:02x}"));
        // The same in every round: reusing what a firewall lets through is a virtue.
        let digest = Sha256::digest(&job);
        let port = |nth: usize| FIRST_PORT + u16::from_le_bytes([digest[2 * nth], digest[2 * nth + 1]]) % N_PORTS;
        let (host, is_ambiguous) = (hosted.host.clone(), !hosted.names_run);
        Spot { context, host, size, is_ambiguous, ports: std::array::from_fn(port), name }
    }

    pub fn unix(&self) -> io::Result<UnixAddr> {
        UnixAddr::from_abstract_name(&self.name)
    }

    /// The addresses of rank 0's host; none when all ranks are on one.
    pub fn addresses(&self) -> Result<Vec<IpAddr>, Attempt> {
        let names = match &self.host {
            Host::Here => return Ok(Vec::new()),
            Host::At(name) => std::slice::from_ref(name),
            Host::Perhaps(names) => names.as_slice(),
        };
        let mut addresses = Vec::new();
        for name in names {
            let bare = name.trim_matches(['[', ']']);
            let found = (bare, 0).to_socket_addrs();
            let found = found.map_err(|source| Attempt::Resolve { host: name.clone(), source })?;
            addresses.extend(found.map(|address| address.ip()));
        }
        addresses.dedup();
        Ok(addresses)
    }

    /// For messages.
    pub fn places(&self) -> String {
        let ports = self.ports.map(|port| port.to_string()).join(", ");
        match &self.host {
            Host::Here => "the job's socket on this host".to_owned(),
            Host::At(name) => format!("{name}, ports {ports}"),
            Host::Perhaps(names) => format!("{}, ports {ports}", names.join(" or ")),
        }
    }
}

/// Above what services use, below what the kernel hands out to clients.
const FIRST_PORT: u16 = 20_000;
const N_PORTS: u16 = 12_000;

/// Whether the address is this host's: only then can a socket be bound to it.
pub fn is_local(address: IpAddr) -> bool {
    address.is_loopback() || TcpListener::bind(SocketAddr::new(address, 0)).is_ok()
}

/// The process that made the other end of an inherited socket pair: the launcher's on this host. `None` when the descriptor
/// is something else.
fn launcher_of(descriptor: i32) -> Option<i32> {
    peer::raw_credentials(descriptor)?.pid
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixStream;

    use super::*;

    fn hosted(identity: &str) -> Hosted {
        Hosted { identity: identity.to_owned(), host: Host::Here, kin: None, names_run: true }
    }

    #[test]
    fn jobs_and_rounds_meet_apart() {
        let one = Spot::of(&hosted("a"), 0, 2);
        assert_eq!(one.name, Spot::of(&hosted("a"), 0, 2).name);
        assert_ne!(one.name, Spot::of(&hosted("b"), 0, 2).name);
        let next = Spot::of(&hosted("a"), 1, 2);
        assert_ne!(one.name, next.name);
        assert_eq!(one.ports, next.ports);
        assert!(one.ports.iter().all(|port| (FIRST_PORT..FIRST_PORT + N_PORTS).contains(port)));
    }

    #[test]
    fn a_socket_to_the_launcher_tells_jobs_apart() {
        let (socket, _other) = UnixStream::pair().unwrap();
        assert_eq!(launcher_of(socket.as_raw_fd()), Some(std::process::id() as i32));
        assert_eq!(launcher_of(-1), None);
        let kin = Hosted { kin: Some(socket.as_raw_fd()), ..hosted("pmi") };
        assert_ne!(Spot::of(&kin, 0, 2).name, Spot::of(&hosted("pmi"), 0, 2).name);
    }

    #[test]
    fn own_addresses_are_known() {
        assert!(is_local("127.0.0.1".parse().unwrap()));
        assert!(!is_local("192.0.2.77".parse().unwrap()), "an address nobody has");
    }
}
