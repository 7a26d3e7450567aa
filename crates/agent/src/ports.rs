//! Ports for processes that listen by themselves, from 2222 upwards as the service gave them. Taken while a node is
//! prepared, so that the whole gang can be told. A port that is free, and that no other agent of this machine has taken for
//! a job of its own: nodes may share an address.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as Name, UnixListener};

const FIRST: u16 = 2222;

/// Taken ports. Given back when dropped, and when the agent ends in whatever way.
#[derive(Debug)]
pub struct Ports {
    pub numbers: Vec<u16>,
    _names: Vec<UnixListener>,
}

impl Ports {
    /// The lowest that can be had on `address`.
    pub fn take(address: SocketAddr, count: usize) -> io::Result<Ports> {
        let mut ports = Ports { numbers: Vec::new(), _names: Vec::new() };
        for number in FIRST..u16::MAX {
            if ports.numbers.len() == count {
                return Ok(ports);
            }
            if let Some(name) = reserve(address, number) {
                ports.numbers.push(number);
                ports._names.push(name);
            }
        }
        Err(io::Error::new(io::ErrorKind::AddrInUse, format!("no {count} ports from {FIRST} upwards are free")))
    }
}

/// A name in the kernel's own list, which exists exactly as long as its holder: nothing is left by a killed one.
fn reserve(mut address: SocketAddr, number: u16) -> Option<UnixListener> {
    address.set_port(number);
    let name = Name::from_abstract_name(format!("corro/port/{address}")).ok()?;
    let name = UnixListener::bind_addr(&name).ok()?;
    TcpListener::bind(address).ok()?;
    Some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_port_is_given_twice_and_none_that_is_used() {
        let address: SocketAddr = ([127, 0, 77, 77], 0).into();
        let first = Ports::take(address, 2).expect("there are free ports");
        assert!(first.numbers.is_sorted() && first.numbers[0] >= FIRST);
        let used = TcpListener::bind(SocketAddr::from(([127, 0, 77, 77], first.numbers[1] + 1))).ok();
        let second = Ports::take(address, 3).expect("there are free ports");
        assert!(second.numbers.iter().all(|number| !first.numbers.contains(number)), "{first:?} {second:?}");
        if let Some(used) = used {
            assert!(!second.numbers.contains(&used.local_addr().expect("bound").port()));
        }
        let numbers = first.numbers.clone();
        drop((first, second));
        assert_eq!(Ports::take(address, 2).expect("they are free again").numbers, numbers);
    }
}
