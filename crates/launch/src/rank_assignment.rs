//! Assigns ranks to hosts. Pure.

/// A host and its number of slots, one per rank. Names are distinct within a gang.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    pub name: String,
    pub slots: usize,
}

/// The rank numbers of one process, as Horovod defines them: *local* ranks count within a host, *cross* ranks among the processes
/// with the same local rank, one per host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RankAssignment {
    pub rank: usize,
    pub size: usize,
    pub local_rank: usize,
    pub local_size: usize,
    pub cross_rank: usize,
    pub cross_size: usize,
    pub host_idx: usize,
}

/// Assigns all ranks, host by host and slot by slot.
pub fn assign_ranks(hosts: &[Host]) -> Vec<RankAssignment> {
    let size = hosts.iter().map(|host| host.slots).sum();
    let mut assignments = Vec::with_capacity(size);
    for (host_idx, host) in hosts.iter().enumerate() {
        for local_rank in 0..host.slots {
            let has_peer = |other: &&Host| other.slots > local_rank;
            assignments.push(RankAssignment {
                rank: assignments.len(),
                size,
                local_rank,
                local_size: host.slots,
                cross_rank: hosts[..host_idx].iter().filter(has_peer).count(),
                cross_size: hosts.iter().filter(has_peer).count(),
                host_idx,
            });
        }
    }
    assignments
}

/// The first `processes` slots of `hosts`, without hosts that get no rank; `None` if there are fewer slots.
pub fn first_slots(hosts: &[Host], processes: usize) -> Option<Vec<Host>> {
    let mut remaining = processes;
    let mut taken = Vec::new();
    for host in hosts {
        let slots = host.slots.min(remaining);
        remaining -= slots;
        if slots > 0 {
            taken.push(Host { name: host.name.clone(), slots });
        }
    }
    (remaining == 0).then_some(taken)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts(slots: &[usize]) -> Vec<Host> {
        slots.iter().enumerate().map(|(idx, slots)| Host { name: format!("h{idx}"), slots: *slots }).collect()
    }

    /// Expected: (host, local rank, local size, cross rank, cross size) in rank order.
    fn check(slots: &[usize], expected: &[(usize, usize, usize, usize, usize)]) {
        let assignments = assign_ranks(&hosts(slots));
        let computed: Vec<_> =
            assignments.iter().map(|p| (p.host_idx, p.local_rank, p.local_size, p.cross_rank, p.cross_size)).collect();
        assert_eq!(computed, expected, "{slots:?}");
        assert!(assignments.iter().enumerate().all(|(rank, p)| p.rank == rank && p.size == expected.len()));
    }

    #[test]
    fn ranks_go_host_by_host() {
        check(&[], &[]);
        check(&[1], &[(0, 0, 1, 0, 1)]);
        check(&[2, 2], &[(0, 0, 2, 0, 2), (0, 1, 2, 0, 2), (1, 0, 2, 1, 2), (1, 1, 2, 1, 2)]);
        check(&[1, 1, 1], &[(0, 0, 1, 0, 3), (1, 0, 1, 1, 3), (2, 0, 1, 2, 3)]);
    }

    #[test]
    fn uneven_hosts_cross_only_where_there_is_a_peer() {
        check(&[1, 3], &[(0, 0, 1, 0, 2), (1, 0, 3, 1, 2), (1, 1, 3, 0, 1), (1, 2, 3, 0, 1)]);
        check(&[2, 0, 1], &[(0, 0, 2, 0, 2), (0, 1, 2, 0, 1), (2, 0, 1, 1, 2)]);
    }

    #[test]
    fn slots_are_taken_in_order() {
        assert_eq!(first_slots(&hosts(&[2, 2]), 3), Some(vec![hosts(&[2])[0].clone(), hosts(&[0, 1])[1].clone()]));
        assert_eq!(first_slots(&hosts(&[2, 2]), 2), Some(hosts(&[2])));
        assert_eq!(first_slots(&hosts(&[2, 2]), 5), None);
    }
}
