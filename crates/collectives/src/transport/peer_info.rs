//! The description of a rank that the others need to connect to it, exchanged as bytes through the rendezvous. Pure.

use std::net::{IpAddr, SocketAddr};

use crate::affinity::AllowedCores;
use crate::algorithm_override::{Algorithm, AlgorithmOverride};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerInfo {
    /// Random; that of rank 0 identifies the world.
    pub token: [u8; 16],
    /// Equal for ranks that can share memory: same kernel, same network namespace.
    pub machine: String,
    /// The host name, for messages.
    pub hostname: String,
    pub pid: u32,
    /// Inode of the PID namespace in which `pid` counts; 0 when it is not known.
    pub pid_namespace: u64,
    /// The abstract name of the socket for ranks of the same machine.
    pub local_socket: [u8; 16],
    /// The cores of its host that it may use.
    pub cores: AllowedCores,
    /// Algorithms that override the selection table.
    pub algorithm_override: AlgorithmOverride,
    pub addresses: Vec<SocketAddr>,
}

const VERSION: u8 = 3;

impl PeerInfo {
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![VERSION];
        bytes.extend_from_slice(&self.token);
        bytes.extend_from_slice(&self.local_socket);
        bytes.extend_from_slice(&self.pid.to_le_bytes());
        bytes.extend_from_slice(&self.pid_namespace.to_le_bytes());
        for text in [&self.machine, &self.hostname] {
            bytes.extend_from_slice(&(text.len() as u32).to_le_bytes());
            bytes.extend_from_slice(text.as_bytes());
        }
        bytes.extend_from_slice(&self.cores.quota.unwrap_or(0).to_le_bytes());
        bytes.extend_from_slice(&(self.cores.allowed.len() as u16).to_le_bytes());
        self.cores.allowed.iter().for_each(|core| bytes.extend_from_slice(&core.to_le_bytes()));
        let (algorithm, chunk) = match self.algorithm_override.allreduce {
            None => (0u8, 0),
            Some(Algorithm::OneShot) => (1, 0),
            Some(Algorithm::PipelinedShm { chunk }) => (2, chunk as u64),
            Some(Algorithm::Cma) => (3, 0),
        };
        bytes.push(algorithm);
        bytes.extend_from_slice(&chunk.to_le_bytes());
        for address in &self.addresses {
            match address.ip() {
                IpAddr::V4(ip) => bytes.extend_from_slice(&ip.to_ipv6_mapped().octets()),
                IpAddr::V6(ip) => bytes.extend_from_slice(&ip.octets()),
            }
            bytes.extend_from_slice(&address.port().to_le_bytes());
        }
        bytes
    }

    /// `None` for malformed bytes, or those of another version.
    pub fn decode(bytes: &[u8]) -> Option<PeerInfo> {
        let (version, mut rest) = bytes.split_first()?;
        if *version != VERSION {
            return None;
        }
        let token = split_bytes::<16>(&mut rest)?;
        let local_socket = split_bytes::<16>(&mut rest)?;
        let pid = u32::from_le_bytes(split_bytes(&mut rest)?);
        let pid_namespace = u64::from_le_bytes(split_bytes(&mut rest)?);
        let mut text = || {
            let length = u32::from_le_bytes(split_bytes(&mut rest)?) as usize;
            let (text, after) = rest.split_at_checked(length)?;
            rest = after;
            String::from_utf8(text.to_vec()).ok()
        };
        let (machine, hostname) = (text()?, text()?);
        let mut number = || split_bytes(&mut rest).map(u16::from_le_bytes);
        let quota = number()?;
        let n_allowed = number()?;
        let allowed: Vec<u16> = (0..n_allowed).map(|_| number()).collect::<Option<_>>()?;
        let cores = AllowedCores { allowed, quota: (quota > 0).then_some(quota) };
        let [algorithm] = split_bytes::<1>(&mut rest)?;
        let chunk = usize::try_from(u64::from_le_bytes(split_bytes(&mut rest)?)).ok()?;
        let allreduce = match algorithm {
            0 => None,
            1 => Some(Algorithm::OneShot),
            2 => Some(Algorithm::PipelinedShm { chunk }),
            3 => Some(Algorithm::Cma),
            _ => return None,
        };
        let algorithm_override = AlgorithmOverride { allreduce };
        let mut addresses = Vec::new();
        while !rest.is_empty() {
            let ip = IpAddr::from(split_bytes::<16>(&mut rest)?).to_canonical();
            addresses.push(SocketAddr::new(ip, u16::from_le_bytes(split_bytes(&mut rest)?)));
        }
        Some(PeerInfo {
            token,
            machine,
            hostname,
            pid,
            pid_namespace,
            local_socket,
            cores,
            algorithm_override,
            addresses,
        })
    }
}

fn split_bytes<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (taken, after) = rest.split_first_chunk::<N>()?;
    *rest = after;
    Some(*taken)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_peer_info_round_trips() {
        let mine = |algorithm_override| PeerInfo {
            token: [1; 16],
            machine: "b 4".into(),
            hostname: "nodeé".into(),
            pid: 77,
            pid_namespace: 4_026_531_836,
            local_socket: [2; 16],
            cores: AllowedCores { allowed: vec![0, 3, 700], quota: Some(2) },
            algorithm_override,
            addresses: vec!["10.0.0.1:5".parse().expect("v4"), "[2001:db8::1]:65535".parse().expect("v6")],
        };
        for text in ["", "allreduce=flat", "allreduce=staged:77", "allreduce=direct"] {
            let mine = mine(AlgorithmOverride::parse(text).expect("a known algorithm"));
            assert_eq!(PeerInfo::decode(&mine.encode()), Some(mine));
        }
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_do_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = PeerInfo::decode(&bytes);
            let _ = PeerInfo::decode(&[&[VERSION][..], &bytes].concat());
        }
    }
}
