//! Which processors the ranks of a host may use: how many they have together, and which are one rank's share. The world enters at the
//! start, and users who pin their ranks. Must give the same number on every rank of a host, because algorithms are chosen by it.

use std::io;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::bootstrap::place::Place;

/// What one rank may use, as it tells the others of its host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cores {
    /// Ascending.
    pub allowed: Vec<u16>,
    /// How many the kernel gives it time for, if that is fewer.
    pub quota: Option<u16>,
}

impl Cores {
    /// Of the calling thread.
    pub fn own() -> Cores {
        let allowed = allowed().unwrap_or_else(|_| vec![0]);
        // This one knows quotas of control groups.
        let n_usable = std::thread::available_parallelism().map_or(1, usize::from);
        let quota = (n_usable < allowed.len()).then_some(n_usable as u16);
        Cores { allowed, quota }
    }

    /// How many processors these ranks of one host have together. Ranks that are bound to one each, as `mpirun` and `srun` do,
    /// have as many as there are ranks.
    pub fn together<'a>(ranks: impl Iterator<Item = &'a Cores>) -> usize {
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
}

/// Binds the calling thread, and the threads it starts from now on, to this rank's share of the processors that it may use; returns
/// them. Ranks of a host that may use the same ones, as most launchers leave it, get shares that do not overlap; with more ranks than
/// processors, several ranks share one.
///
/// A launcher that has already bound each rank to processors of its own needs no pinning: do not call it then.
///
/// # Errors
/// When the kernel does not let this thread be bound.
pub fn pin(place: &Place) -> io::Result<Vec<usize>> {
    let share = share(&allowed()?, place.local_rank, place.local_size);
    let mut set = CpuSet::new();
    share.iter().for_each(|core| set.set(*core));
    sched_setaffinity(None, &set)?;
    Ok(share)
}

fn allowed() -> io::Result<Vec<u16>> {
    let set = sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU).filter(|core| set.is_set(*core)).map(|core| core as u16).collect())
}

/// One rank's share of some processors.
fn share(allowed: &[u16], local_rank: usize, local_size: usize) -> Vec<usize> {
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
    fn shares_cover_what_is_there_without_overlap() {
        let shares =
            |n_ranks: usize| (0..n_ranks).map(|rank| share(&[2, 3, 5, 8, 9], rank, n_ranks)).collect::<Vec<_>>();
        assert_eq!(shares(1), [vec![2, 3, 5, 8, 9]]);
        assert_eq!(shares(2), [vec![2, 3], vec![5, 8, 9]]);
        assert_eq!(shares(5).concat(), [2, 3, 5, 8, 9]);
        assert_eq!(shares(7).concat(), [2, 3, 5, 8, 9, 2, 3]);
    }

    #[test]
    fn ranks_bound_apart_have_as_many_as_they_are_and_quotas_count() {
        let cores = |allowed: &[u16], quota| Cores { allowed: allowed.to_vec(), quota };
        let together = |ranks: &[Cores]| Cores::together(ranks.iter());
        assert_eq!(together(&[cores(&[0], None), cores(&[1], None), cores(&[2], None)]), 3);
        assert_eq!(together(&[cores(&[0, 1], None), cores(&[0, 1], None), cores(&[1], None)]), 2);
        assert_eq!(together(&[cores(&[0, 1, 2, 3], Some(2)), cores(&[4, 5], None)]), 2);
        assert_eq!(together(&[]), 1);
    }

    #[test]
    fn a_pinned_thread_runs_on_its_share_alone() {
        let place = Place { local_rank: 1, local_size: 2, ..Place::alone() };
        let (share, seen) = std::thread::spawn(move || (pin(&place).expect("it is ours"), Cores::own().allowed))
            .join()
            .expect("it ends well");
        assert_eq!(share, seen.into_iter().map(usize::from).collect::<Vec<_>>());
    }
}
