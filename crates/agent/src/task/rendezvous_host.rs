//! The rendezvous server of a gang, which the master node runs during the job, and lookups of addresses and interfaces.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use thiserror::Error;
use tokio::net::TcpListener;
use tokio::sync::mpsc::UnboundedReceiver;

use corro_launch::rank_assignment::{Host, assign_ranks};
use corro_launch::rendezvous::{Rendezvous, RendezvousError, known_scopes};
use corro_model::node::{GangAddress, TaskOrder};

use crate::ports::{PortRange, ReservedPorts};

/// The running rendezvous server. Dropping it stops it.
#[derive(Debug)]
pub struct RendezvousHost {
    pub gang: GangAddress,
    pub rendezvous: Rendezvous,
    _ports: Option<ReservedPorts>,
}

/// Why a listener of the gang could not be opened.
#[derive(Debug, Error)]
pub enum RendezvousHostError {
    #[error("'{address}' is not the address of this machine")]
    Address {
        address: String,
        #[source]
        source: io::Error,
    },
    #[error(transparent)]
    Rendezvous(#[from] RendezvousError),
    #[error("no free port for the job's processes")]
    Port(#[source] io::Error),
}

impl RendezvousHost {
    pub async fn open(
        address: &str,
        order: &TaskOrder,
        range: Option<PortRange>,
    ) -> Result<RendezvousHost, RendezvousHostError> {
        let mut bind = resolve(address).await?;
        let hosts = hosts(order);
        let ports = range
            .map(|range| ReservedPorts::reserve(bind, 2, Some(range)))
            .transpose()
            .map_err(RendezvousHostError::Port)?;
        bind.set_port(ports.as_ref().map_or(0, |ports| ports.numbers[0]));
        let rendezvous = Rendezvous::start(bind, known_scopes(&hosts, &assign_ranks(&hosts))).await?;
        let master_port = match &ports {
            Some(ports) => ports.numbers[1],
            None => free_port(bind).await.map_err(RendezvousHostError::Port)?,
        };
        let gang = GangAddress::new(address, rendezvous.addr().port(), master_port);
        Ok(RendezvousHost { gang, rendezvous, _ports: ports })
    }

    /// Requests of the processes of an elastic attempt; may be taken once.
    pub fn elastic_requests(&self) -> UnboundedReceiver<String> {
        self.rendezvous.elastic_requests()
    }
}

/// The gang's hosts for rank assignment. Nodes of one machine are separate hosts, so they are named by their ids.
pub fn hosts(order: &TaskOrder) -> Vec<Host> {
    order.hosts.iter().map(|host| Host { name: host.node.to_string(), slots: host.slots }).collect()
}

/// Network interface of `address`; `None` leaves the choice to the engine.
pub fn interface_of(address: &str) -> Option<String> {
    match address.parse().ok()? {
        ip if IpAddr::is_loopback(&ip) => Some("lo".to_owned()),
        IpAddr::V4(ip) => interface_in(&std::fs::read_to_string("/proc/net/route").ok()?, ip),
        IpAddr::V6(_) => None,
    }
}

/// Interface whose network contains `ip`, from `/proc/net/route`: hexadecimal numbers, lowest byte first. Routes
/// through a gateway lead to other machines.
fn interface_in(routes: &str, ip: Ipv4Addr) -> Option<String> {
    let number = |text: &str| u32::from_str_radix(text, 16).ok().map(u32::swap_bytes);
    let direct = |line: &str| {
        let columns: Vec<&str> = line.split_whitespace().collect();
        let (name, network, gateway, mask) = (columns.first()?, columns.get(1)?, columns.get(2)?, columns.get(7)?);
        let (network, gateway, mask) = (number(network)?, number(gateway)?, number(mask)?);
        (gateway == 0 && mask != 0 && ip.to_bits() & mask == network).then(|| (mask, (*name).to_owned()))
    };
    routes.lines().skip(1).filter_map(direct).max_by_key(|(mask, _)| *mask).map(|(_, name)| name)
}

/// Socket address of the node's own address with port 0.
pub async fn resolve(address: &str) -> Result<SocketAddr, RendezvousHostError> {
    let failed = |source| RendezvousHostError::Address { address: address.to_owned(), source };
    let mut found = tokio::net::lookup_host((address, 0)).await.map_err(failed)?;
    found.next().ok_or_else(|| failed(io::ErrorKind::AddrNotAvailable.into()))
}

/// A port that is free now; rank 0 of a `torch.distributed` script binds it soon after.
async fn free_port(mut bind: SocketAddr) -> io::Result<u16> {
    bind.set_port(0);
    Ok(TcpListener::bind(bind).await?.local_addr()?.port())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    #[test]
    fn the_interface_is_found_in_the_routing_table() {
        let routes = "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT\n\
            eth0\t00000000\t0100000A\t0003\t0\t0\t0\t00000000\t0\t0\t0\n\
            eth0\t0000000A\t00000000\t0001\t0\t0\t0\t000000FF\t0\t0\t0\n\
            eth1\t0002000A\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n";
        for (ip, expected) in [([10, 0, 0, 4], Some("eth0")), ([10, 0, 2, 9], Some("eth1")), ([8, 8, 8, 8], None)] {
            assert_eq!(interface_in(routes, ip.into()).as_deref(), expected, "{ip:?}");
        }
        assert_eq!(interface_of("127.0.0.9").as_deref(), Some("lo"));
        assert_eq!(interface_of("some-name"), None);
    }

    #[tokio::test]
    async fn the_rendezvous_listens_on_the_nodes_address() {
        let meeting =
            RendezvousHost::open("127.0.0.9", &testing::order(2), None).await.expect("Linux answers on all of 127/8");
        assert_eq!(meeting.gang.address, "127.0.0.9");
        tokio::net::TcpStream::connect(("127.0.0.9", meeting.gang.rendezvous_port)).await.expect("it listens");
        assert_ne!(meeting.gang.master_port, 0);
        let error = RendezvousHost::open("192.0.2.1", &testing::order(1), None).await.expect_err("not our address");
        assert!(matches!(error, RendezvousHostError::Rendezvous(_)));
    }
}
