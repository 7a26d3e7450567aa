//! Options of a world, from settings, and the check that the options of all ranks are compatible. Pure.

use std::time::Duration;

use crate::algorithm_override::AlgorithmOverride;
use crate::settings::{Settings, SettingsError, TransportChoice};
use crate::transport::connect::error::ConnectError;
use crate::transport::peer_info::PeerInfo;

/// Transport between ranks of one machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// Shared memory where possible, else TCP.
    Auto,
    /// Shared memory; connecting fails if a rank is on another machine.
    SharedMemory,
    /// TCP even within a machine.
    Tcp,
}

/// Use of `process_vm_readv` between ranks of one machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DirectRead {
    Never,
    /// Used if the kernel allows it and it is faster.
    Auto,
    /// Connecting fails if the kernel does not allow it.
    Require,
}

/// Options of a world. The same on every rank.
#[derive(Clone, Debug)]
pub struct Options {
    /// Between ranks of one machine.
    pub transport: Transport,
    /// TCP connections between two ranks of different hosts, for each communicator; at least 1.
    pub n_streams: usize,
    pub direct_read: DirectRead,
    /// A wait for other ranks that is longer than this is reported on standard error; `None`: never.
    pub report_after: Option<Duration>,
    /// Overrides the algorithm selection. Connecting fails if ranks have different overrides.
    pub algorithm_override: AlgorithmOverride,
}

impl Options {
    /// Shared memory where possible, 2 TCP connections between hosts, waits reported after 10 s.
    pub const DEFAULT: Options = Options {
        transport: Transport::Auto,
        n_streams: 2,
        direct_read: DirectRead::Auto,
        report_after: Some(Duration::from_secs(10)),
        algorithm_override: AlgorithmOverride { allreduce: None },
    };

    /// Options from the environment variables of [`crate::settings`].
    pub fn from_settings(settings: &Settings) -> Result<Options, SettingsError> {
        let algorithm_override = settings.algorithm.as_deref().map(|text| {
            AlgorithmOverride::parse(text).ok_or_else(|| SettingsError {
                variable: "CORRO_ALGORITHM",
                value: text.to_owned(),
                expected: "allreduce=flat, allreduce=staged, allreduce=staged:BYTES or allreduce=direct",
            })
        });
        Ok(Options {
            transport: match settings.transport {
                TransportChoice::Auto => Transport::Auto,
                TransportChoice::SharedMemory => Transport::SharedMemory,
                TransportChoice::Tcp => Transport::Tcp,
            },
            n_streams: settings.streams.unwrap_or(Options::DEFAULT.n_streams),
            direct_read: match settings.direct_read {
                None => DirectRead::Auto,
                Some(false) => DirectRead::Never,
                Some(true) => DirectRead::Require,
            },
            report_after: settings.stall_check,
            algorithm_override: algorithm_override.transpose()?.unwrap_or_default(),
        })
    }
}

/// Checks that the peer infos of all ranks, by rank, are compatible. Every rank checks the same infos, so all of them fail together, except that
/// `transport` is this rank's own option.
pub(crate) fn check_compatible(transport: Transport, peer_infos: &[PeerInfo]) -> Result<(), ConnectError> {
    let first = &peer_infos[0];
    let mut peers = peer_infos.iter().enumerate();
    if let Some((rank, odd)) = peers.find(|(_, peer)| peer.algorithm_override != first.algorithm_override) {
        let (theirs, first) = (odd.algorithm_override.to_string(), first.algorithm_override.to_string());
        return Err(ConnectError::AlgorithmMismatch { rank, host: odd.hostname.clone(), theirs, first });
    }
    let mut peers = peer_infos.iter().enumerate();
    match peers.find(|(_, peer)| peer.machine != first.machine) {
        Some((rank, remote)) if transport == Transport::SharedMemory => {
            Err(ConnectError::NotOneMachine { rank, host: remote.hostname.clone() })
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::affinity::AllowedCores;
    use crate::algorithm_override::Algorithm;

    fn options(variables: &[(&str, &str)]) -> Result<Options, SettingsError> {
        let read = |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).into());
        Options::from_settings(&Settings::from_variables(read).expect("the settings do not parse algorithms"))
    }

    fn peer(rank: usize, machine: &str, algorithm_override: AlgorithmOverride) -> PeerInfo {
        PeerInfo {
            token: [0; 16],
            machine: machine.into(),
            hostname: format!("host{rank}"),
            pid: 1,
            pid_namespace: 0,
            local_socket: [0; 16],
            cores: AllowedCores { allowed: vec![0], quota: None },
            algorithm_override,
            addresses: Vec::new(),
        }
    }

    #[test]
    fn options_follow_the_variables() {
        let plain = options(&[]).expect("nothing is fine");
        assert_eq!((plain.transport, plain.n_streams), (Transport::Auto, Options::DEFAULT.n_streams));
        assert_eq!((plain.direct_read, plain.algorithm_override), (DirectRead::Auto, AlgorithmOverride::default()));
        let error = options(&[
            ("CORRO_TRANSPORT", "tcp"),
            ("CORRO_STREAMS", "5"),
            ("CORRO_DIRECT_READ", "0"),
            ("CORRO_ALGORITHM", "allreduce=staged:4096"),
        ])
        .expect("all are good");
        assert_eq!((error.transport, error.n_streams, error.direct_read), (Transport::Tcp, 5, DirectRead::Never));
        assert_eq!(
            error.algorithm_override,
            AlgorithmOverride { allreduce: Some(Algorithm::PipelinedShm { chunk: 4096 }) }
        );
        let required = options(&[("CORRO_TRANSPORT", "shm"), ("CORRO_DIRECT_READ", "1")]).expect("both are good");
        assert_eq!((required.transport, required.direct_read), (Transport::SharedMemory, DirectRead::Require));
    }

    #[test]
    fn an_unknown_algorithm_is_refused_with_the_known_ones() {
        for bad in ["ring", "allreduce=ring", "allgather=flat", "allreduce=flat,allreduce=staged:many"] {
            let error = options(&[("CORRO_ALGORITHM", bad)]).expect_err(bad);
            assert_eq!((error.variable, error.value.as_str()), ("CORRO_ALGORITHM", bad));
            assert!(error.to_string().contains("allreduce=staged:BYTES"), "{error}");
        }
    }

    #[test]
    fn the_rank_with_another_algorithm_is_named() {
        let [plain, flat] =
            ["", "allreduce=flat"].map(|text| AlgorithmOverride::parse(text).expect("a known algorithm"));
        let alike = [peer(0, "a", flat), peer(1, "a", flat)];
        check_compatible(Transport::Auto, &alike).expect("all have the same");
        let error = check_compatible(Transport::Auto, &[peer(0, "a", flat), peer(1, "a", flat), peer(2, "b", plain)]);
        let error = error.expect_err("the algorithms differ").to_string();
        assert_eq!(
            error,
            "CORRO_ALGORITHM must be the same on all ranks: rank 2 on host host2 has none, rank 0 has allreduce=flat"
        );
    }

    #[test]
    fn shared_memory_needs_one_machine() {
        let plain = AlgorithmOverride::default();
        let (near, far) = ([peer(0, "a", plain), peer(1, "a", plain)], [peer(0, "a", plain), peer(1, "b", plain)]);
        check_compatible(Transport::SharedMemory, &near).expect("one machine");
        check_compatible(Transport::Auto, &far).expect("TCP is allowed");
        let error = check_compatible(Transport::SharedMemory, &far).expect_err("two machines");
        assert!(matches!(&error, ConnectError::NotOneMachine { rank: 1, host } if host == "host1"), "{error}");
    }
}
