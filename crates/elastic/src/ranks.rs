//! Rank numbers of the members of a generation: global, within the host (local), and among the processes with the same local rank
//! (cross). Hosts need not have consecutive ranks: survivors come before new processes.

use std::collections::BTreeMap;

use crate::action::{Member, ProcessId};

/// Numbers the members, given as processes and hosts in the order of their ranks.
pub(crate) fn assign(members: &[(ProcessId, &str)]) -> Vec<Member> {
    let mut local_sizes: BTreeMap<&str, usize> = BTreeMap::new();
    // Number of processes so far for each local rank; hosts count in the order of their first rank.
    let mut assigned: Vec<Member> = Vec::with_capacity(members.len());
    for (rank, (process, host)) in members.iter().enumerate() {
        let local_rank = local_sizes.entry(host).or_default();
        assigned.push(Member {
            process: *process,
            host: (*host).to_owned(),
            rank,
            local_rank: *local_rank,
            local_size: 0,
            cross_rank: 0,
            cross_size: 0,
        });
        *local_rank += 1;
    }
    let mut hosts: Vec<&str> = Vec::new();
    for (_, host) in members {
        if !hosts.contains(host) {
            hosts.push(host);
        }
    }
    for member in &mut assigned {
        let has_local_rank = |host: &&&str| local_sizes[**host] > member.local_rank;
        member.local_size = local_sizes[member.host.as_str()];
        member.cross_size = hosts.iter().filter(has_local_rank).count();
        let before = hosts.iter().take_while(|host| **host != member.host);
        member.cross_rank = before.filter(has_local_rank).count();
    }
    assigned
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(members: &[(ProcessId, &str)], expected: &[[usize; 5]]) {
        let assigned = assign(members);
        let numbers: Vec<[usize; 5]> = assigned
            .iter()
            .map(|member| [member.rank, member.local_rank, member.local_size, member.cross_rank, member.cross_size])
            .collect();
        assert_eq!(numbers, expected, "{members:?}");
        assert!(
            assigned
                .iter()
                .zip(members)
                .all(|(member, (process, host))| (member.process, member.host.as_str()) == (*process, *host))
        );
    }

    #[test]
    fn ranks_are_numbered_as_horovod_does() {
        check(&[(1, "a"), (2, "a")], &[[0, 0, 2, 0, 1], [1, 1, 2, 0, 1]]);
        check(&[(1, "a"), (2, "a"), (3, "b")], &[[0, 0, 2, 0, 2], [1, 1, 2, 0, 1], [2, 0, 1, 1, 2]]);
        // A replacement on `a` comes after the survivors on `b`; `b` alone has three processes.
        check(
            &[(1, "a"), (3, "b"), (4, "b"), (5, "a"), (6, "b")],
            &[[0, 0, 2, 0, 2], [1, 0, 3, 1, 2], [2, 1, 3, 1, 2], [3, 1, 2, 0, 2], [4, 2, 3, 0, 1]],
        );
        check(&[], &[]);
    }
}
