//! Which rank of which job this process is, and where the ranks meet. Whoever starts an engine enters here. Pure but for
//! [`Launch::from_environment`]: the variables are handed in, nothing is asked of a network.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::time::Duration;

use super::launchers;
use super::variables::{LaunchError, Variables};
use crate::trust::Secret;

/// What the launcher told this process.
#[derive(Clone, Debug)]
pub struct Launch {
    /// Which rank this is.
    pub place: Place,
    /// Where it finds the others.
    pub meeting: Meeting,
    /// Of the job, from `CORRO_JOB_SECRET`; ranks prove to each other that they know it.
    pub secret: Option<Secret>,
    /// Of the network, for traffic between ranks; may be a comma list, best first. `None`: any.
    pub interface: Option<String>,
    /// On which this rank may listen, from `CORRO_PORTS`. `None`: any.
    pub ports: Option<RangeInclusive<u16>>,
    /// For connecting, and for every wait on a peer.
    pub timeout: Duration,
}

/// Ranks count within the job; local ones within a host; cross ones among the hosts that have this local rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// From 0.
    pub rank: usize,
    /// Ranks of the job.
    pub size: usize,
    /// Among the ranks of this host: the number of the device to use.
    pub local_rank: usize,
    /// Ranks of the job on this host.
    pub local_size: usize,
    /// This host among those that have this local rank.
    pub cross_rank: usize,
    /// How many hosts have this local rank.
    pub cross_size: usize,
    /// As the launcher calls it.
    pub hostname: String,
    /// Whether the launcher gave the local numbers; until [`Place::complete`] they mean nothing otherwise.
    pub local_known: bool,
    /// The same of the cross numbers.
    pub cross_known: bool,
}

/// Where the ranks find each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Meeting {
    /// There is only one.
    Alone,
    /// At the launcher's key-value server.
    KeyValue { addr: String, port: u16 },
    /// At rank 0, because the launcher offers nothing.
    Hosted(Hosted),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hosted {
    /// The same in all ranks of the job, and unlike that of any other job.
    pub identity: String,
    pub host: Host,
    /// An inherited socket whose other end is the launcher's process on this host, which then is part of the identity:
    /// for launchers that give a job no name. Of use on one host only.
    pub kin: Option<i32>,
    /// Whether the launcher gave the run a name of its own, so that `identity` is not shared by another run with the same settings.
    pub names_run: bool,
}

/// Where rank 0 is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Host {
    /// With all the others.
    Here,
    /// At this name or address, by somebody's word.
    At(String),
    /// Probably at one of these addresses: the launcher is.
    Perhaps(Vec<String>),
}

impl Launch {
    /// From this process' environment; alone when no launcher has set anything.
    ///
    /// # Errors
    /// When variables are missing, unreadable or contradict each other.
    pub fn from_environment() -> Result<Launch, LaunchError> {
        // A value that is no text fails to parse later, and is then named.
        let read = |name: &str| std::env::var_os(name).map(|value| value.to_string_lossy().into_owned());
        let mut launch = Launch::from_variables(read)?;
        if launch.place.hostname == UNKNOWN_HOST
            && let Ok(name) = std::fs::read_to_string("/proc/sys/kernel/hostname")
        {
            launch.place.hostname = name.trim().to_owned();
        }
        Ok(launch)
    }

    /// Tries the launchers in turn. Horovod's variables win, because they are written for us and other launchers' may be
    /// set beside them. Then torchrun's, whose user may have started it under any of the rest. `mpirun` before `srun`,
    /// since it starts its daemons through Slurm and the ranks inherit those daemons' places.
    pub fn from_variables(read: impl Fn(&str) -> Option<String>) -> Result<Launch, LaunchError> {
        let variables = Variables::new(&read);
        let found = [
            launchers::horovod,
            launchers::torchrun,
            launchers::open_mpi,
            launchers::hydra,
            launchers::slurm,
            launchers::bare_pmi,
        ]
        .into_iter()
        .find_map(|launcher| launcher(&variables).transpose());
        let (place, meeting) = found.unwrap_or_else(|| Ok((Place::alone(), Meeting::Alone)))?;
        Ok(Launch {
            meeting: if place.size == 1 { Meeting::Alone } else { meeting },
            place: place.complete_alone(),
            secret: variables.secret()?,
            interface: variables.text("HOROVOD_GLOO_IFACE"),
            ports: variables.ports()?,
            timeout: variables.timeout()?,
        })
    }
}

impl Place {
    /// The only rank.
    pub fn alone() -> Place {
        Place::of(0, 1)
    }

    pub(super) fn of(rank: usize, size: usize) -> Place {
        Place {
            rank,
            size,
            local_rank: 0,
            local_size: 1,
            cross_rank: 0,
            cross_size: 1,
            hostname: UNKNOWN_HOST.to_owned(),
            local_known: false,
            cross_known: false,
        }
    }

    /// Works out what the launcher left open from every rank's host, by rank. What it did say stands.
    ///
    /// # Panics
    /// When `hosts` has not one entry per rank.
    pub fn complete(mut self, hosts: &[impl AsRef<str>]) -> Place {
        assert_eq!(hosts.len(), self.size, "one host per rank");
        // Every host's ranks in order; hosts in the order of their first rank, as launchers number them.
        let mut n_ranks: BTreeMap<&str, usize> = BTreeMap::new();
        let mut host_order: Vec<&str> = Vec::new();
        let mut local_rank = 0;
        for (rank, host) in hosts.iter().enumerate() {
            let seen = n_ranks.entry(host.as_ref()).or_insert(0);
            if *seen == 0 {
                host_order.push(host.as_ref());
            }
            if rank == self.rank {
                local_rank = *seen;
            }
            *seen += 1;
        }
        let host = hosts[self.rank].as_ref();
        if !self.local_known {
            (self.local_rank, self.local_size) = (local_rank, n_ranks[host]);
        }
        if !self.cross_known {
            let with_this_rank = || host_order.iter().filter(|host| n_ranks[**host] > local_rank);
            self.cross_size = with_this_rank().count();
            self.cross_rank = with_this_rank().position(|other| *other == host).expect("this rank is on its host");
        }
        (self.local_known, self.cross_known) = (true, true);
        self
    }

    fn complete_alone(self) -> Place {
        let host = self.hostname.clone();
        if self.size == 1 { self.complete(&[host]) } else { self }
    }
}

/// Horovod's default.
const UNKNOWN_HOST: &str = "localhost";

#[cfg(test)]
mod tests {
    use super::*;

    /// Rank by rank: local rank, local size, cross rank, cross size.
    fn check(hosts: &[&str], expected: &[[usize; 4]]) {
        let seen: Vec<[usize; 4]> = (0..hosts.len())
            .map(|rank| Place::of(rank, hosts.len()).complete(hosts))
            .map(|place| [place.local_rank, place.local_size, place.cross_rank, place.cross_size])
            .collect();
        assert_eq!(seen, expected, "{hosts:?}");
    }

    #[test]
    fn places_follow_from_the_hosts() {
        check(&["a"], &[[0, 1, 0, 1]]);
        check(&["a", "a", "b", "b"], &[[0, 2, 0, 2], [1, 2, 0, 2], [0, 2, 1, 2], [1, 2, 1, 2]]);
        check(&["z", "a", "z", "a"], &[[0, 2, 0, 2], [0, 2, 1, 2], [1, 2, 0, 2], [1, 2, 1, 2]]);
        check(&["b", "a", "a"], &[[0, 1, 0, 2], [0, 2, 1, 2], [1, 2, 0, 1]]);
    }

    #[test]
    fn what_the_launcher_said_stands() {
        let told = Place { local_rank: 3, local_size: 8, local_known: true, ..Place::of(1, 2) };
        let place = told.complete(&["a", "b"]);
        assert_eq!([place.local_rank, place.local_size, place.cross_rank, place.cross_size], [3, 8, 1, 2]);
        assert!(place.local_known && place.cross_known);
    }
}
