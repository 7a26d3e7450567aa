//! Port reservation for processes of a job that listen by themselves: from 2222 upwards as Batch AI did, or within the
//! operator's range. Ports are reserved during preparation, so that the whole gang can learn them. A reserved port is free
//! and not reserved by another agent of this machine: nodes may share an address.

use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as AbstractName, UnixListener};
use std::str::FromStr;

use thiserror::Error;

const FIRST_PORT: u16 = 2222;

/// Inclusive range of ports that the operator's firewall lets through between nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortRange {
    first: u16,
    last: u16,
}

/// A text that is not a valid port range.
#[derive(Debug, Error)]
#[error("'{0}' is not a range of at least {MIN_RANGE} ports above 1023, such as 20000-20100")]
pub struct BadPortRange(String);

/// Three ports for a job's nodes, and one for each of a few ranks.
const MIN_RANGE: u16 = 8;

impl FromStr for PortRange {
    type Err = BadPortRange;

    fn from_str(text: &str) -> Result<PortRange, BadPortRange> {
        let ends = text.split_once('-').and_then(|(first, last)| Some((first.parse().ok()?, last.parse().ok()?)));
        let good = |(first, last): &(u16, u16)| {
            *first > 1023 && last.checked_sub(*first).is_some_and(|more| more + 1 >= MIN_RANGE)
        };
        ends.filter(good).map(|(first, last)| PortRange { first, last }).ok_or_else(|| BadPortRange(text.to_owned()))
    }
}

impl fmt::Display for PortRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.first, self.last)
    }
}

/// Reserved ports. Released on drop and when the agent ends in any way.
#[derive(Debug)]
pub struct ReservedPorts {
    pub numbers: Vec<u16>,
    _locks: Vec<UnixListener>,
}

impl ReservedPorts {
    /// Reserves the `count` lowest available ports on `address`.
    pub fn reserve(address: SocketAddr, count: usize, range: Option<PortRange>) -> io::Result<ReservedPorts> {
        let PortRange { first, last } = range.unwrap_or(PortRange { first: FIRST_PORT, last: u16::MAX });
        let mut ports = ReservedPorts { numbers: Vec::new(), _locks: Vec::new() };
        for number in first..=last {
            if let Some(lock) = reserve_one(address, number) {
                ports.numbers.push(number);
                ports._locks.push(lock);
            }
            if ports.numbers.len() == count {
                return Ok(ports);
            }
        }
        Err(io::Error::new(io::ErrorKind::AddrInUse, format!("no {count} ports from {first} to {last} are free")))
    }
}

/// Reserves one port by an abstract Unix socket, which the kernel removes with its process however that ends.
fn reserve_one(mut address: SocketAddr, number: u16) -> Option<UnixListener> {
    address.set_port(number);
    let lock = AbstractName::from_abstract_name(format!("corro/port/{address}")).ok()?;
    let lock = UnixListener::bind_addr(&lock).ok()?;
    TcpListener::bind(address).ok()?;
    Some(lock)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_reserved_once_and_only_if_free() {
        let address: SocketAddr = ([127, 0, 77, 77], 0).into();
        let first = ReservedPorts::reserve(address, 2, None).expect("there are free ports");
        assert!(first.numbers.is_sorted() && first.numbers[0] >= FIRST_PORT);
        let used = TcpListener::bind(SocketAddr::from(([127, 0, 77, 77], first.numbers[1] + 1))).ok();
        let second = ReservedPorts::reserve(address, 3, None).expect("there are free ports");
        assert!(second.numbers.iter().all(|number| !first.numbers.contains(number)), "{first:?} {second:?}");
        if let Some(used) = used {
            assert!(!second.numbers.contains(&used.local_addr().expect("bound").port()));
        }
        let numbers = first.numbers.clone();
        drop((first, second));
        assert_eq!(ReservedPorts::reserve(address, 2, None).expect("they are free again").numbers, numbers);
    }
    #[test]
    fn port_ranges_are_respected_and_validated() {
        let address: SocketAddr = ([127, 0, 77, 78], 0).into();
        let range: PortRange = "29000-29007".parse().expect("a range");
        assert_eq!(range.to_string(), "29000-29007");
        let taken = ReservedPorts::reserve(address, 8, Some(range)).expect("all of them");
        assert!(taken.numbers.iter().copied().eq(29000..=29007));
        let error = ReservedPorts::reserve(address, 1, Some(range)).expect_err("none is left");
        assert_eq!(error.to_string(), "no 1 ports from 29000 to 29007 are free");
        for bad in ["", "29000", "29007-29000", "29000-29003", "80-200", "29000-99999"] {
            let said = bad.parse::<PortRange>().expect_err(bad).to_string();
            assert!(said.starts_with(&format!("'{bad}' is not a range")), "{said}");
        }
    }
}
