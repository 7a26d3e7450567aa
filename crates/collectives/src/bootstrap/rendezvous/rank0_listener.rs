//! The listening sockets of rank 0: an abstract Unix socket for ranks of its host, TCP ports for others.

use std::io;
use std::net::TcpListener;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixListener;
use std::thread;
use std::time::{Duration, Instant};

use super::error::RendezvousError;
use super::rank0_address::{Rank0Address, is_local};
use super::rank0_client;
use super::timed_stream::Stream;
use crate::auth::Secret;
use crate::bootstrap::rendezvous_method::Rank0Host;
use crate::close_on_fork::CloseOnFork;

pub enum Listener {
    Tcp(CloseOnFork<TcpListener>),
    Unix(CloseOnFork<UnixListener>),
}

impl Listener {
    /// The next connection, if there is one. An error means that the peer has closed it already.
    pub fn accept(&self) -> Option<Stream> {
        Some(match self {
            Listener::Tcp(listener) => {
                let stream = listener.accept().ok()?.0;
                // Without Nagle's delay for replies. A failure only makes them slower.
                let _ = stream.set_nodelay(true);
                stream.into()
            }
            Listener::Unix(listener) => listener.accept().ok()?.0.into(),
        })
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Listener::Tcp(listener) => listener.as_fd(),
            Listener::Unix(listener) => listener.as_fd(),
        }
    }
}

/// Opens all sockets of rank 0. A socket that is in use may belong to an earlier process that is about to end, so this is retried until the deadline.
pub fn listen(
    address: &Rank0Address,
    secret: Option<&Secret>,
    deadline: Instant,
) -> Result<Vec<Listener>, RendezvousError> {
    if let Rank0Host::Candidates(_) = address.host
        && !address.ip_addresses().is_ok_and(|addresses| addresses.into_iter().any(is_local))
    {
        return Err(RendezvousError::WrongHost { addresses: address.describe() });
    }
    loop {
        let failure = match try_listen(address) {
            Ok(listeners) => return Ok(listeners),
            Err(failure) => failure,
        };
        if failure.kind() != io::ErrorKind::AddrInUse {
            return Err(RendezvousError::Listen { addresses: address.describe(), source: failure });
        }
        if let Some(refused) = rank0_client::query_existing_rank0(address, secret, deadline) {
            return Err(refused);
        }
        let pause = Duration::from_millis(20);
        if Instant::now() + pause > deadline {
            return Err(RendezvousError::AddressTaken { addresses: address.describe(), source: failure });
        }
        thread::sleep(pause);
    }
}

fn try_listen(address: &Rank0Address) -> io::Result<Vec<Listener>> {
    let unix = CloseOnFork::new(UnixListener::bind_addr(&address.unix()?)?);
    unix.set_nonblocking(true)?;
    let mut listeners = vec![Listener::Unix(unix)];
    let interfaces: &[&str] = match &address.host {
        Rank0Host::SameHost => return Ok(listeners),
        // Loopback only if the user or launcher named it literally: a host's own name may resolve to loopback there and to another address
        // elsewhere.
        Rank0Host::Address(name) if matches!(name.as_str(), "localhost" | "127.0.0.1") => &["127.0.0.1"],
        Rank0Host::Address(name) if matches!(name.as_str(), "::1" | "[::1]") => &["::1"],
        // `::` also accepts IPv4, where the host has IPv6 at all.
        Rank0Host::Address(_) | Rank0Host::Candidates(_) => &["::", "0.0.0.0"],
    };
    for port in address.ports {
        let mut bound = interfaces.iter().map(|interface| TcpListener::bind((*interface, port)));
        if let Some(listener) = bound.find_map(Result::ok) {
            listener.set_nonblocking(true)?;
            listeners.push(Listener::Tcp(CloseOnFork::new(listener)));
        }
    }
    if listeners.len() == 1 { Err(io::ErrorKind::AddrInUse.into()) } else { Ok(listeners) }
}
