//! Rank, size and the local and cross ranks of a process, as Horovod defines them. Pure.

use std::collections::BTreeMap;

/// Ranks count within the job, local ranks within a host, cross ranks among the hosts that have a process with this local rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RankInfo {
    /// From 0.
    pub rank: usize,
    /// Number of ranks of the job.
    pub size: usize,
    /// Rank among the processes of this host: the number of the device to use.
    pub local_rank: usize,
    /// Number of ranks of the job on this host.
    pub local_size: usize,
    /// Index of this host among the hosts that have this local rank.
    pub cross_rank: usize,
    /// Number of hosts that have this local rank.
    pub cross_size: usize,
    /// The host name that the launcher uses.
    pub hostname: String,
    /// Whether the launcher set the local rank and size. If not, they are invalid until [`RankInfo::complete`].
    pub local_known: bool,
    /// Whether the launcher set the cross rank and size. If not, they are invalid until [`RankInfo::complete`].
    pub cross_known: bool,
}

/// Horovod's default.
pub(super) const UNKNOWN_HOST: &str = "localhost";

impl RankInfo {
    /// The only rank of a job of one process.
    pub fn single() -> RankInfo {
        RankInfo::new(0, 1)
    }

    pub(super) fn new(rank: usize, size: usize) -> RankInfo {
        RankInfo {
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

    /// Computes the numbers that the launcher did not set from the host of every rank, by rank. Numbers that it did set stay.
    ///
    /// # Panics
    /// If `hosts` does not have one entry per rank.
    pub fn complete(mut self, hosts: &[impl AsRef<str>]) -> RankInfo {
        assert_eq!(hosts.len(), self.size, "one host per rank");
        // Local ranks follow the ranks of each host; hosts are in the order of their first rank, as launchers number them.
        let mut n_ranks: BTreeMap<&str, usize> = BTreeMap::new();
        let mut host_order: Vec<&str> = Vec::new();
        let mut local_rank = 0;
        for (rank, host) in hosts.iter().enumerate() {
            let n_on_host = n_ranks.entry(host.as_ref()).or_insert(0);
            if *n_on_host == 0 {
                host_order.push(host.as_ref());
            }
            if rank == self.rank {
                local_rank = *n_on_host;
            }
            *n_on_host += 1;
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

    /// Completes the numbers of a job of one process, which needs no other host names.
    pub(super) fn complete_if_single(self) -> RankInfo {
        let host = self.hostname.clone();
        if self.size == 1 { self.complete(&[host]) } else { self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `expected`, rank by rank: local rank, local size, cross rank, cross size.
    fn check(hosts: &[&str], expected: &[[usize; 4]]) {
        let computed: Vec<[usize; 4]> = (0..hosts.len())
            .map(|rank| RankInfo::new(rank, hosts.len()).complete(hosts))
            .map(|info| [info.local_rank, info.local_size, info.cross_rank, info.cross_size])
            .collect();
        assert_eq!(computed, expected, "{hosts:?}");
    }

    #[test]
    fn local_and_cross_ranks_follow_from_the_hosts() {
        check(&["a"], &[[0, 1, 0, 1]]);
        check(&["a", "a", "b", "b"], &[[0, 2, 0, 2], [1, 2, 0, 2], [0, 2, 1, 2], [1, 2, 1, 2]]);
        check(&["z", "a", "z", "a"], &[[0, 2, 0, 2], [0, 2, 1, 2], [1, 2, 0, 2], [1, 2, 1, 2]]);
        check(&["b", "a", "a"], &[[0, 1, 0, 2], [0, 2, 1, 2], [1, 2, 0, 1]]);
    }

    #[test]
    fn numbers_set_by_the_launcher_stay() {
        let from_launcher = RankInfo { local_rank: 3, local_size: 8, local_known: true, ..RankInfo::new(1, 2) };
        let info = from_launcher.complete(&["a", "b"]);
        assert_eq!([info.local_rank, info.local_size, info.cross_rank, info.cross_size], [3, 8, 1, 2]);
        assert!(info.local_known && info.cross_known);
    }
}
