//! Cores that ranks may use (`sched_getaffinity` and cgroup quotas), the core count of a host, and pinning of ranks. The core count must
//! be equal on all ranks of a host, because the algorithm is selected by it.

use std::io;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::bootstrap::rank_info::RankInfo;

/// Cores that one rank may use, as sent to the other ranks of its host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AllowedCores {
    /// Core numbers, ascending.
    pub allowed: Vec<u16>,
    /// Cores' worth of CPU time that the cgroup quota allows, if that is less.
    pub quota: Option<u16>,
}

impl AllowedCores {
    /// Affinity mask and quota of the calling thread.
    pub fn of_current_thread() -> AllowedCores {
        let allowed = affinity_mask().unwrap_or_else(|_| vec![0]);
        // Takes cgroup quotas into account.
        let n_usable = std::thread::available_parallelism().map_or(1, usize::from);
        let quota = (n_usable < allowed.len()).then_some(n_usable as u16);
        AllowedCores { allowed, quota }
    }
}

/// Number of cores that the ranks of one host have together: the union of their masks, at most the smallest quota. Ranks that are bound to
/// one core each, as `mpirun` and `srun` do, have as many cores as ranks.
pub fn host_core_count<'a>(ranks: impl Iterator<Item = &'a AllowedCores>) -> usize {
    let mut union: Vec<u16> = Vec::new();
    let mut quota = usize::MAX;
    for cores in ranks {
        union.extend_from_slice(&cores.allowed);
        quota = quota.min(cores.quota.map_or(usize::MAX, usize::from));
    }
    union.sort_unstable();
    union.dedup();
    union.len().min(quota).max(1)
}

/// Pins the calling thread, and the threads it starts from now on, to this rank's share of its allowed cores; returns
/// them. Ranks of a host with the same mask, which is what most launchers leave, get shares that do not overlap; with more ranks than
/// cores, several ranks share one.
///
/// Do not call it under a launcher that has already bound each rank to cores of its own.
///
/// # Errors
/// When the kernel refuses the affinity mask.
pub fn pin(rank_info: &RankInfo) -> io::Result<Vec<usize>> {
    let share = core_share(&affinity_mask()?, rank_info.local_rank, rank_info.local_size);
    let mut set = CpuSet::new();
    share.iter().for_each(|core| set.set(*core));
    sched_setaffinity(None, &set)?;
    Ok(share)
}

fn affinity_mask() -> io::Result<Vec<u16>> {
    let set = sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU).filter(|core| set.is_set(*core)).map(|core| core as u16).collect())
}

/// The cores of one rank when `local_size` ranks divide the allowed ones.
fn core_share(allowed: &[u16], local_rank: usize, local_size: usize) -> Vec<usize> {
    let n = allowed.len();
    if local_size >= n {
        return vec![allowed[local_rank % n].into()];
    }
    let bound = |rank: usize| rank * n / local_size;
    allowed[bound(local_rank)..bound(local_rank + 1)].iter().map(|core| usize::from(*core)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_cover_all_cores_without_overlap() {
        let shares =
            |n_ranks: usize| (0..n_ranks).map(|rank| core_share(&[2, 3, 5, 8, 9], rank, n_ranks)).collect::<Vec<_>>();
        assert_eq!(shares(1), [vec![2, 3, 5, 8, 9]]);
        assert_eq!(shares(2), [vec![2, 3], vec![5, 8, 9]]);
        assert_eq!(shares(5).concat(), [2, 3, 5, 8, 9]);
        assert_eq!(shares(7).concat(), [2, 3, 5, 8, 9, 2, 3]);
    }

    #[test]
    fn ranks_bound_to_one_core_each_count_together_and_quotas_limit() {
        let cores = |allowed: &[u16], quota| AllowedCores { allowed: allowed.to_vec(), quota };
        let count = |ranks: &[AllowedCores]| host_core_count(ranks.iter());
        assert_eq!(count(&[cores(&[0], None), cores(&[1], None), cores(&[2], None)]), 3);
        assert_eq!(count(&[cores(&[0, 1], None), cores(&[0, 1], None), cores(&[1], None)]), 2);
        assert_eq!(count(&[cores(&[0, 1, 2, 3], Some(2)), cores(&[4, 5], None)]), 2);
        assert_eq!(count(&[]), 1);
    }

    #[test]
    fn a_pinned_thread_runs_on_its_share_only() {
        let rank_info = RankInfo { local_rank: 1, local_size: 2, ..RankInfo::single() };
        let pinned = move || (pin(&rank_info).expect("it is ours"), AllowedCores::of_current_thread().allowed);
        let (share, mask) = std::thread::spawn(pinned).join().expect("it does not panic");
        assert_eq!(share, mask.into_iter().map(usize::from).collect::<Vec<_>>());
    }
}
