//! How a world is connected: what the variables say, and whether the ranks said what fits together. Whoever connects a world enters, or
//! starts an engine. Pure.

use std::time::Duration;

use crate::algorithm::choice::Forced;
use crate::settings::{Settings, SettingsError, TransportChoice};
use crate::transport::connect::ConnectError;
use crate::transport::peer_info::PeerInfo;

/// How ranks of one machine talk to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// Shared memory where it can be, else TCP.
    Auto,
    /// Shared memory or nothing: a job that was meant for one machine and is not is told so.
    SharedMemory,
    /// TCP even within a machine.
    Tcp,
}

/// Whether ranks read each other's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DirectRead {
    Never,
    /// Where the kernel lets them, and it is faster.
    Auto,
    /// A kernel that does not let them is an error.
    Insist,
}

/// How a world is connected. The same on every rank.
#[derive(Clone, Debug)]
pub struct Options {
    /// Between ranks of one machine.
    pub transport: Transport,
    /// TCP connections between two ranks of different hosts, for each communicator; at least 1.
    pub n_streams: usize,
    pub direct_read: DirectRead,
    /// After how long a wait for others is talked about on standard error; `None`: never.
    pub report_after: Option<Duration>,
    /// Overrules the table of ways. Ranks that differ in it do not connect.
    pub forced: Forced,
}

impl Options {
    /// What suits almost everybody: shared memory, 2 connections between hosts, a word after 10 s.
    pub const PLAIN: Options = Options {
        transport: Transport::Auto,
        n_streams: 2,
        direct_read: DirectRead::Auto,
        report_after: Some(Duration::from_secs(10)),
        forced: Forced { allreduce: None },
    };

    /// As the variables say.
    pub fn of(settings: &Settings) -> Result<Options, SettingsError> {
        let forced = settings.algorithm.as_deref().map(|text| {
            Forced::parse(text).ok_or_else(|| SettingsError {
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
            n_streams: settings.streams.unwrap_or(Options::PLAIN.n_streams),
            direct_read: match settings.direct_read {
                None => DirectRead::Auto,
                Some(false) => DirectRead::Never,
                Some(true) => DirectRead::Insist,
            },
            report_after: settings.stall_check,
            forced: forced.transpose()?.unwrap_or_default(),
        })
    }
}

/// Whether what all ranks (by rank) have said allows a world. All ranks hear the same, so all of them refuse what does not fit; only
/// shared memory is asked for by each for itself.
pub(crate) fn fit(transport: Transport, peer_infos: &[PeerInfo]) -> Result<(), ConnectError> {
    let first = &peer_infos[0];
    let mut peers = peer_infos.iter().enumerate();
    if let Some((rank, odd)) = peers.find(|(_, peer)| peer.forced != first.forced) {
        let (theirs, ours) = (odd.forced.to_string(), first.forced.to_string());
        return Err(ConnectError::Algorithms { rank, host: odd.hostname.clone(), theirs, first: ours });
    }
    let mut peers = peer_infos.iter().enumerate();
    match peers.find(|(_, peer)| peer.machine != first.machine) {
        Some((rank, far)) if transport == Transport::SharedMemory => {
            Err(ConnectError::NotOneMachine { rank, host: far.hostname.clone() })
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algorithm::choice::Way;
    use crate::cores::Cores;

    fn options(variables: &[(&str, &str)]) -> Result<Options, SettingsError> {
        let read = |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).into());
        Options::of(&Settings::from_variables(read).expect("the settings leave ways to the options"))
    }

    fn peer(rank: usize, machine: &str, forced: Forced) -> PeerInfo {
        PeerInfo {
            token: [0; 16],
            machine: machine.into(),
            hostname: format!("host{rank}"),
            pid: 1,
            pid_namespace: 0,
            door: [0; 16],
            cores: Cores { allowed: vec![0], quota: None },
            forced,
            addresses: Vec::new(),
        }
    }

    #[test]
    fn options_are_what_the_variables_say() {
        let plain = options(&[]).expect("nothing is fine");
        assert_eq!((plain.transport, plain.n_streams), (Transport::Auto, Options::PLAIN.n_streams));
        assert_eq!((plain.direct_read, plain.forced), (DirectRead::Auto, Forced::default()));
        let told = options(&[
            ("CORRO_TRANSPORT", "tcp"),
            ("CORRO_STREAMS", "5"),
            ("CORRO_DIRECT_READ", "0"),
            ("CORRO_ALGORITHM", "allreduce=staged:4096"),
        ])
        .expect("all are good");
        assert_eq!((told.transport, told.n_streams, told.direct_read), (Transport::Tcp, 5, DirectRead::Never));
        assert_eq!(told.forced, Forced { allreduce: Some(Way::Staged { chunk: 4096 }) });
        let insists = options(&[("CORRO_TRANSPORT", "shm"), ("CORRO_DIRECT_READ", "1")]).expect("both are good");
        assert_eq!((insists.transport, insists.direct_read), (Transport::SharedMemory, DirectRead::Insist));
    }

    #[test]
    fn an_unknown_algorithm_is_told_with_what_is_known() {
        for bad in ["ring", "allreduce=ring", "allgather=flat", "allreduce=flat,allreduce=staged:many"] {
            let told = options(&[("CORRO_ALGORITHM", bad)]).expect_err(bad);
            assert_eq!((told.variable, told.value.as_str()), ("CORRO_ALGORITHM", bad));
            assert!(told.to_string().contains("allreduce=staged:BYTES"), "{told}");
        }
    }

    #[test]
    fn ranks_that_differ_in_the_algorithm_are_told_who() {
        let [plain, flat] = ["", "allreduce=flat"].map(|text| Forced::parse(text).expect("a known way"));
        let alike = [peer(0, "a", flat), peer(1, "a", flat)];
        fit(Transport::Auto, &alike).expect("all say the same");
        let told = fit(Transport::Auto, &[peer(0, "a", flat), peer(1, "a", flat), peer(2, "b", plain)]);
        let told = told.expect_err("they would compute nonsense").to_string();
        assert_eq!(
            told,
            "CORRO_ALGORITHM must be the same on all ranks: rank 2 on host host2 has none, rank 0 has allreduce=flat"
        );
    }

    #[test]
    fn shared_memory_needs_one_machine() {
        let plain = Forced::default();
        let (near, far) = ([peer(0, "a", plain), peer(1, "a", plain)], [peer(0, "a", plain), peer(1, "b", plain)]);
        fit(Transport::SharedMemory, &near).expect("one machine");
        fit(Transport::Auto, &far).expect("nobody asked for one");
        let told = fit(Transport::SharedMemory, &far).expect_err("two machines");
        assert!(matches!(&told, ConnectError::NotOneMachine { rank: 1, host } if host == "host1"), "{told}");
    }
}
