//! Which processors are this rank's. What the launcher says of hosts is not enough: nodes of a cluster may be parts of one machine, and
//! ranks that think they have it to themselves would stand in each other's way.

use std::hash::{DefaultHasher, Hash, Hasher};

use corro_collectives::affinity::{self, AllowedCores};
use corro_collectives::{Engine, RankInfo, SetId};

use super::TrainError;

/// Binds this rank, and the threads it starts from now on, to its share of the processors that it and others may use; returns how many
/// threads have work there. Ranks that their launcher has bound apart keep what they have. Collective over all ranks.
pub fn pin(engine: &Engine) -> Result<usize, TrainError> {
    let own = AllowedCores::of_current_thread();
    let all = engine.allgather("processors", &[cpu_set_key(&own)?], SetId::GLOBAL).map_err(TrainError::Ranks)?;
    let (local_rank, local_size) = local_position(&all, engine.rank_info().rank);
    let share =
        affinity::pin(&RankInfo { local_rank, local_size, ..engine.rank_info().clone() }).map_err(TrainError::Pin)?;
    let quota = own.quota.map_or(usize::MAX, |quota| usize::from(quota) / local_size);
    Ok(share.len().min(quota).max(1))
}

/// The same for ranks that may use the same processors of the same machine.
fn cpu_set_key(cores: &AllowedCores) -> Result<i64, TrainError> {
    let machine = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").map_err(TrainError::Pin)?;
    let mut hasher = DefaultHasher::new();
    (machine, &cores.allowed).hash(&mut hasher);
    Ok(hasher.finish() as i64)
}

/// The place of a rank among those with its key, and how many they are.
fn local_position(keys: &[i64], rank: usize) -> (usize, usize) {
    let alike = |some: &[i64]| some.iter().filter(|key| **key == keys[rank]).count();
    (alike(&keys[..rank]), alike(keys))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_of_one_machine_are_counted_whatever_their_order() {
        let keys = [7, 8, 7, 7, 9];
        let places: Vec<_> = (0..keys.len()).map(|rank| local_position(&keys, rank)).collect();
        assert_eq!(places, [(0, 3), (0, 1), (1, 3), (2, 3), (0, 1)]);
    }
}
