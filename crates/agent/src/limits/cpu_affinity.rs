//! CPUs that a job's programs are pinned to, so that programs that size their thread pools by the number of CPUs see
//! those of the VM size. Nodes of one machine claim different CPUs. If too few are free, a job is not pinned and shares
//! all of them.

use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use corro_model::node::TaskOrder;
use rustix::thread::{CpuSet, sched_getaffinity};

/// Claim on numbered resources of the machine (CPUs, GPUs), held while the job runs. Each claimed number is an abstract
/// Unix socket: visible to all users, and released by the kernel however its holder ends.
#[derive(Debug)]
pub struct ResourceClaim {
    pub numbers: Vec<u16>,
    _sockets: Vec<UnixDatagram>,
}

/// Claims the first `n` free CPUs, or none.
pub fn claim(n: u32) -> io::Result<ResourceClaim> {
    claim_of(&affinity()?, n, "corro-processor")
}

fn claim_of(usable: &[u16], n: u32, name: &str) -> io::Result<ResourceClaim> {
    let claim = claim_free(usable, n as usize, name)?;
    match claim.numbers.len() == n as usize {
        true => Ok(claim),
        false => Err(io::Error::other(format!("only {} of {} are free", claim.numbers.len(), usable.len()))),
    }
}

/// Claims up to `wanted` free numbers under this name.
pub fn claim_free(usable: &[u16], wanted: usize, name: &str) -> io::Result<ResourceClaim> {
    let (mut numbers, mut sockets) = (Vec::with_capacity(wanted), Vec::with_capacity(wanted));
    for number in usable {
        if sockets.len() == wanted {
            break;
        }
        match UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(format!("{name}-{number}"))?) {
            Ok(socket) => {
                numbers.push(*number);
                sockets.push(socket);
            }
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
            Err(error) => return Err(error),
        }
    }
    Ok(ResourceClaim { numbers, _sockets: sockets })
}

/// Whether all of the job's nodes on this machine can be pinned. If only some were, ranks would run at different speeds
/// and see different CPU counts.
pub fn all_nodes_fit(order: &TaskOrder, cores: u32, usable: u32) -> bool {
    let Some(own) = order.hosts.get(order.host_idx) else { return false };
    let is_loopback = |address: &str| address.starts_with("127.");
    let is_here = |address: &str| address == own.address || is_loopback(address) && is_loopback(&own.address);
    let here = order.hosts.iter().filter(|host| is_here(&host.address)).count() as u64;
    here * u64::from(cores) <= u64::from(usable)
}

fn affinity() -> io::Result<Vec<u16>> {
    let set = sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU).filter(|number| set.is_set(*number)).map(|number| number as u16).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    #[test]
    fn cpus_are_never_shared() {
        let name = format!("corro-test-{}", std::process::id());
        let claim = |n: u32| claim_of(&[0, 1, 4, 6, 7], n, &name);
        let first = claim(2).expect("all are free");
        assert_eq!(first.numbers, [0, 1]);
        let second = claim(2).expect("enough are free");
        assert_eq!(second.numbers, [4, 6]);
        assert_eq!(claim(2).expect_err("one is left").to_string(), "only 1 of 5 are free");
        // A claim that got too few releases them.
        assert_eq!(claim(1).expect("it is still free").numbers, [7]);
        drop(first);
        assert_eq!(claim(3).expect("enough are free").numbers, [0, 1, 7]);
    }

    #[test]
    fn nodes_of_a_job_are_pinned_together_or_not_at_all() {
        let mut order = testing::order(4);
        assert!(all_nodes_fit(&order, 2, 8) && !all_nodes_fit(&order, 3, 8));
        // Two nodes are on other machines.
        let mut hosts = order.hosts.to_vec();
        hosts[2].address = "10.0.0.7".into();
        hosts[3].address = "10.0.0.8".into();
        order.hosts = hosts.into();
        assert!(all_nodes_fit(&order, 4, 8) && !all_nodes_fit(&order, 5, 8));
        order.host_idx = 3;
        assert!(all_nodes_fit(&order, 8, 8));
    }
}
