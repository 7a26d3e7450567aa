//! Number of ranks and the processors each is pinned to: the same for every engine. Pure except for `allowed_cpus`.

use std::io;

use rustix::thread::{CpuSet, sched_getaffinity};

/// Number of ranks and of the cores that they share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuPlacement {
    pub ranks: usize,
    /// Total number of cores.
    pub cores: usize,
}

impl CpuPlacement {
    pub fn name(&self) -> String {
        let count = |n: usize, one: &str| format!("{n} {one}{}", if n == 1 { "" } else { "s" });
        format!("{} on {}", count(self.ranks, "rank"), count(self.cores, "core"))
    }

    /// The processors of each rank, of those that this process may use: no two ranks share one, unless there are more ranks
    /// than processors.
    pub fn cpus_per_rank(&self, allowed: &[usize]) -> Vec<Vec<usize>> {
        let n = self.cores.min(allowed.len());
        // Spread out: neighbours may be hyperthreads of one core.
        let cores: Vec<usize> = (0..n).map(|index| allowed[index * allowed.len() / n]).collect();
        let bound = |rank: usize| rank * n / self.ranks;
        let share = |rank: usize| match cores[bound(rank)..bound(rank + 1)].to_vec() {
            share if share.is_empty() || self.ranks > n => vec![cores[rank % n]],
            share => share,
        };
        (0..self.ranks).map(share).collect()
    }
}

/// The processors that this process may use, ascending.
pub fn allowed_cpus() -> io::Result<Vec<usize>> {
    let set = sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU).filter(|core| set.is_set(*core)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_get_equal_shares_that_do_not_overlap() {
        let check = |ranks, cores, allowed: &[usize], expected: &[&[usize]]| {
            assert_eq!(
                CpuPlacement { ranks, cores }.cpus_per_rank(allowed),
                expected,
                "{ranks} on {cores} of {allowed:?}"
            );
        };
        check(1, 2, &[0, 1], &[&[0, 1]]);
        check(2, 2, &[0, 1], &[&[0], &[1]]);
        check(4, 2, &[0, 1], &[&[0], &[1], &[0], &[1]]);
        check(2, 5, &[2, 3, 5, 8, 9], &[&[2, 3], &[5, 8, 9]]);
        check(1, 1, &[4, 5, 6, 7], &[&[4]]);
        check(2, 2, &[4, 5, 6, 7], &[&[4], &[6]]);
        check(3, 2, &[0, 1], &[&[0], &[1], &[0]]);
    }

    #[test]
    fn a_placement_has_a_name() {
        assert_eq!(CpuPlacement { ranks: 1, cores: 1 }.name(), "1 rank on 1 core");
        assert_eq!(CpuPlacement { ranks: 4, cores: 2 }.name(), "4 ranks on 2 cores");
    }
}
