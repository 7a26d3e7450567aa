//! Inventory of this machine: cores, memory limited by cgroups, its GPUs, addresses of its interfaces.

use std::collections::BTreeMap;
use std::ffi::CStr;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use corro_base::procfs;
use corro_model::host::{Capacity, Inventory};

use crate::gpu;
use crate::limits::gpus;

/// Takes the inventory. `labels` and `offered` are set by the operator.
pub fn find(labels: BTreeMap<String, String>, offered: Option<Capacity>) -> Inventory {
    let mut cards = gpu::inventory();
    cards.truncate(gpus::n_given().unwrap_or(cards.len()));
    Inventory {
        cores: std::thread::available_parallelism().map_or(1, |n| n.get() as u32),
        memory_bytes: memory(),
        gpus: cards,
        addresses: addresses(),
        labels,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        offered,
    }
}

/// Environment variable that restricts agents to the first `count` GPUs. The agents divide these among themselves.
pub fn restrict_gpus(count: u32) -> Option<(&'static str, String)> {
    gpus::restrict_to_first(count, &gpus::inventory())
}

/// The machine's host name.
pub fn machine_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

fn memory() -> u64 {
    let whole = procfs::Memory::read().map_or(0, |memory| memory.total);
    // In a container, memory is limited by its cgroup.
    let limit = fs::read_to_string("/sys/fs/cgroup/memory.max").ok().and_then(|text| text.trim().parse().ok());
    limit.map_or(whole, |limit: u64| limit.min(whole))
}

/// Addresses at which other machines may reach this one: no loopback, no link-local and no Docker bridge addresses.
fn addresses() -> Vec<String> {
    let mut found: Vec<IpAddr> = Vec::new();
    let mut first: *mut libc::ifaddrs = std::ptr::null_mut();
    // SAFETY: `getifaddrs` succeeded, so `first` is a valid list until `freeifaddrs`, which is called once, after the
    // last use. `ifa_name` is a C string, and `ifa_addr`, checked for null, is a socket address of the family that it
    // names, as `ip_of` requires.
    unsafe {
        if libc::getifaddrs(&mut first) != 0 {
            return Vec::new();
        }
        let mut entry = first;
        while !entry.is_null() {
            let interface = &*entry;
            let up = interface.ifa_flags & libc::IFF_UP as u32 != 0;
            if up
                && !interface.ifa_addr.is_null()
                && !CStr::from_ptr(interface.ifa_name).to_bytes().starts_with(b"docker")
            {
                found.extend(ip_of(interface.ifa_addr));
            }
            entry = interface.ifa_next;
        }
        libc::freeifaddrs(first);
    }
    found.retain(|ip| match ip {
        IpAddr::V4(ip) => !ip.is_loopback() && !ip.is_link_local(),
        IpAddr::V6(ip) => !ip.is_loopback() && !ip.is_unicast_link_local(),
    });
    found.sort();
    found.dedup();
    found.truncate(64);
    found.into_iter().map(|ip| ip.to_string()).collect()
}

/// IP address in a socket address; `None` for other address families.
///
/// # Safety
/// `address` must point to a socket address that is complete for the family in `sa_family` and stays valid during the
/// call.
unsafe fn ip_of(address: *const libc::sockaddr) -> Option<IpAddr> {
    // SAFETY: `address` points to a complete socket address of family `sa_family` (obligation of this function), so it
    // may be read as the structure of that family.
    unsafe {
        match i32::from((*address).sa_family) {
            libc::AF_INET => {
                let v4 = &*address.cast::<libc::sockaddr_in>();
                Some(Ipv4Addr::from(u32::from_be(v4.sin_addr.s_addr)).into())
            }
            libc::AF_INET6 => {
                let v6 = &*address.cast::<libc::sockaddr_in6>();
                Some(Ipv6Addr::from(v6.sin6_addr.s6_addr).into())
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_inventory_of_this_machine_is_not_empty() {
        let found = find(BTreeMap::from([("rack".to_owned(), "a".to_owned())]), None);
        assert!(found.cores >= 1 && found.memory_bytes > 64 << 20, "{found:?}");
        assert!(found.addresses.iter().all(|ip| ip != "127.0.0.1"), "{found:?}");
        corro_model::host::check_inventory(&found).expect("it is within the bounds");
        assert!(!machine_name().is_empty());
        eprintln!("{found:?}");
    }
}
