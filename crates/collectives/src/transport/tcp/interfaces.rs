//! Addresses of this host at which other ranks can connect (`getifaddrs`).

use std::io;
use std::net::{IpAddr, Ipv6Addr};

use crate::transport::connect::error::ConnectError;

/// The addresses of the named interfaces, or of all interfaces that are up if none is named. Loopback comes last: only ranks
/// of this host can use it.
pub fn local_addresses(interfaces: &[String]) -> Result<Vec<IpAddr>, ConnectError> {
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
    // SAFETY: writes the head of a list to `first`; the list is freed below.
    if unsafe { libc::getifaddrs(&raw mut first) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let mut addresses = Vec::new();
    let mut next = first;
    while !next.is_null() {
        // SAFETY: `next` is an entry of the list, which is freed only after the loop. `ifa_name` is a C string; `ifa_addr` is null, or an
        // address of the family that it states.
        unsafe {
            let entry = &*next;
            let name = std::ffi::CStr::from_ptr(entry.ifa_name).to_string_lossy().into_owned();
            let is_up = entry.ifa_flags & libc::IFF_UP as u32 != 0;
            if is_up && !entry.ifa_addr.is_null() {
                let address = match i32::from((*entry.ifa_addr).sa_family) {
                    libc::AF_INET => {
                        let v4 = &*entry.ifa_addr.cast::<libc::sockaddr_in>();
                        Some(IpAddr::V4(u32::from_be(v4.sin_addr.s_addr).into()))
                    }
                    libc::AF_INET6 => {
                        let v6 = Ipv6Addr::from((*entry.ifa_addr.cast::<libc::sockaddr_in6>()).sin6_addr.s6_addr);
                        // A link-local address is useless without the reader's interface.
                        (!v6.is_unicast_link_local()).then_some(IpAddr::V6(v6))
                    }
                    _ => None,
                };
                addresses.extend(address.map(|address| (name, address)));
            }
            next = entry.ifa_next;
        }
    }
    // SAFETY: the list that `getifaddrs` returned, freed once.
    unsafe { libc::freeifaddrs(first) };
    Ok(addresses)
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn loopback_is_listed_and_an_unknown_interface_refused() {
        let addresses = local_addresses(&["lo".to_owned()]).expect("every machine has one");
        assert!(addresses.contains(&IpAddr::V4(Ipv4Addr::LOCALHOST)));
        let error = local_addresses(&["nosuch0".to_owned()]).expect_err("not there").to_string();
        assert!(error.contains("nosuch0") && error.contains("HOROVOD_GLOO_IFACE"), "{error}");
    }
}
