//! CPU pinning of ranks. The launcher's local rank is not enough: several nodes of a cluster may be parts of one
//! machine, and their ranks would use the same CPUs.

use std::hash::{DefaultHasher, Hash, Hasher};

use corro_collectives::affinity::{self, AllowedCores};
use corro_collectives::{Engine, RankInfo, SetId};

use super::TrainError;

/// Pins this rank, and the threads that it starts afterwards, to its share of the CPUs that it and other ranks may use.
/// Returns the number of threads that can run there. Ranks with disjoint CPU sets keep theirs. Collective over all
/// ranks.
pub fn pin(engine: &Engine) -> Result<usize, TrainError> {
    let own = AllowedCores::of_current_thread();
    let all = engine.allgather("processors", &[cpu_set_key(&own)?], SetId::GLOBAL).map_err(TrainError::Ranks)?;
    let (local_rank, local_size) = local_position(&all, engine.rank_info().rank);
    let share =
        affinity::pin(&RankInfo { local_rank, local_size, ..engine.rank_info().clone() }).map_err(TrainError::Pin)?;
    let quota = own.quota.map_or(usize::MAX, |quota| usize::from(quota) / local_size);
    Ok(share.len().min(quota).max(1))
}

/// A key that is equal for ranks with the same CPU set on the same machine.
fn cpu_set_key(cores: &AllowedCores) -> Result<i64, TrainError> {
    let machine = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").map_err(TrainError::Pin)?;
    let mut hasher = DefaultHasher::new();
    (machine, &cores.allowed).hash(&mut hasher);
    Ok(hasher.finish() as i64)
}

/// Index of a rank among those with the same key, and their number.
fn local_position(keys: &[i64], rank: usize) -> (usize, usize) {
    let alike = |some: &[i64]| some.iter().filter(|key| **key == keys[rank]).count();
    (alike(&keys[..rank]), alike(keys))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_with_the_same_cpus_are_counted_in_any_order() {
        let keys = [7, 8, 7, 7, 9];
        let places: Vec<_> = (0..keys.len()).map(|rank| local_position(&keys, rank)).collect();
        assert_eq!(places, [(0, 3), (0, 1), (1, 3), (2, 3), (0, 1)]);
    }
}
