//! Statistics of the collective engine of each rank, and stall detection from them. Pure.

use serde::{Deserialize, Serialize};

use super::RankStats;

/// Statistics of one rank's engine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EngineStats {
    pub rank: usize,
    /// Ranks in the job.
    pub size: usize,
    /// Since the engine started.
    pub totals: EngineTotals,
    /// About the last ten seconds.
    pub window: EngineTotals,
    /// Last completed operation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<Collective>,
    /// Operation that all ranks have submitted and this one executes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub working_on: Option<Collective>,
    /// Oldest operation that this rank has submitted and others have not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits_for: Option<Collective>,
    /// Reported by rank 0, the coordinator, which knows all submissions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub awaited: Option<StalledCollective>,
    /// Age of these statistics: an engine inside a long operation, or of a stopped process, does not update them.
    pub seen_ms_ago: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EngineTotals {
    /// Length of the period.
    pub ms: u64,
    /// Training steps, counted by repeated tensor names.
    pub steps: u64,
    pub operations: u64,
    pub tensors: u64,
    /// Tensor bytes submitted by the rank.
    pub bytes: u64,
    /// Time with a submitted operation that other ranks had not submitted.
    pub waited_ms: u64,
    /// Time spent executing operations.
    pub worked_ms: u64,
}

impl EngineTotals {
    /// Fraction of the time, 0 to 1.
    pub fn waited_share(&self) -> f64 {
        if self.ms == 0 { 0.0 } else { (self.waited_ms as f64 / self.ms as f64).min(1.0) }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Collective {
    /// Tensor name; the first one of a fused operation.
    pub name: String,
    /// Horovod's name of the operation: `ALLREDUCE`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tensors: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// Since it started or ended.
    pub ms_ago: u64,
}

/// Collective that some ranks have submitted and others have not.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StalledCollective {
    pub name: String,
    /// Since the first submission.
    pub ms_ago: u64,
    /// First few missing ranks.
    pub ranks: Vec<usize>,
    /// Number of missing ranks.
    pub count: usize,
}

/// Minimum waiting fraction of the other ranks for a straggler.
const MIN_STRAGGLER_WAIT_FRACTION: f64 = 0.1;

/// Rank that the others wait for: it waits less than half as long as the median of the others. `None` if ranks are
/// balanced or none waits much.
pub fn straggler<'a>(engines: impl IntoIterator<Item = &'a EngineStats>) -> Option<usize> {
    let mut waits: Vec<(f64, usize)> =
        engines.into_iter().filter(|one| one.window.ms > 0).map(|one| (one.window.waited_share(), one.rank)).collect();
    waits.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    let ((least, rank), others) = waits.split_first()?;
    let (middle, _) = others.get(others.len() / 2)?;
    (*middle >= MIN_STRAGGLER_WAIT_FRACTION && *least < middle / 2.0).then_some(*rank)
}

/// Collective that has waited longer than `limit_ms`, with the missing ranks.
pub fn find_stall<'a>(
    processes: impl Iterator<Item = &'a RankStats> + Clone,
    limit_ms: u64,
) -> Option<StalledCollective> {
    let engines = processes.clone().flat_map(|one| &one.engines);
    let reported = engines.clone().filter(|one| one.seen_ms_ago < limit_ms).find_map(|one| one.awaited.clone());
    if let Some(awaited) = reported.filter(|awaited| awaited.ms_ago >= limit_ms) {
        return Some(awaited);
    }
    // Rank 0 reports nothing, or all ranks are inside one operation: stopped processes keep the others waiting.
    let stopped: Vec<usize> =
        processes.filter(|one| one.state == "T").flat_map(|one| &one.engines).map(|one| one.rank).collect();
    let waits = |one: &'a EngineStats| one.waits_for.as_ref().or(one.working_on.as_ref()).or(one.last.as_ref());
    let others = engines.filter(|one| !stopped.contains(&one.rank));
    let longest = others.filter_map(waits).max_by_key(|what| what.ms_ago).filter(|what| what.ms_ago >= limit_ms)?;
    let count = stopped.len();
    (count > 0).then(|| StalledCollective { name: longest.name.clone(), ms_ago: longest.ms_ago, ranks: stopped, count })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn engines(waited: &[u64]) -> Vec<EngineStats> {
        let engine = |(rank, waited_ms): (usize, &u64)| EngineStats {
            rank,
            window: EngineTotals { ms: 10_000, waited_ms: *waited_ms, ..EngineTotals::default() },
            ..EngineStats::default()
        };
        waited.iter().enumerate().map(engine).collect()
    }

    #[test]
    fn the_straggler_is_whom_the_others_wait_for() {
        for (waited, expected) in [
            (&[5_000, 5_100, 20, 4_900][..], Some(2)),
            (&[9_000, 0], Some(1)),
            (&[0, 10_000, 10_000], Some(0)),
            // Two are slow: the slower one.
            (&[4_000, 300, 100, 4_000, 3_900], Some(2)),
            // Balanced, nobody waits, or only one rank.
            (&[5_000, 5_100, 4_500], None),
            (&[900, 0, 900], None),
            (&[5_000], None),
            (&[], None),
        ] {
            assert_eq!(straggler(&engines(waited)), expected, "{waited:?}");
        }
    }

    fn process(rank: usize, state: &str, change: impl FnOnce(&mut EngineStats)) -> RankStats {
        let mut engine = EngineStats { rank, size: 2, ..EngineStats::default() };
        change(&mut engine);
        RankStats { rank: Some(rank), state: state.into(), engines: vec![engine], ..RankStats::default() }
    }

    #[test]
    fn what_rank_0_says_is_missing_is_believed() {
        let awaited = StalledCollective { name: "loss".into(), ms_ago: 12_000, ranks: vec![1], count: 1 };
        let ranks = [process(0, "S", |engine| engine.awaited = Some(awaited.clone())), process(1, "R", |_| {})];
        assert_eq!(find_stall(ranks.iter(), 10_000), Some(awaited));
        assert_eq!(find_stall(ranks.iter(), 15_000), None);
    }

    #[test]
    fn a_stopped_rank_is_missing_though_nobody_says_so() {
        let waits = Collective { name: "loss".into(), ms_ago: 11_000, ..Collective::default() };
        let ranks =
            [process(0, "T", |engine| engine.seen_ms_ago = 11_000), process(1, "S", |e| e.waits_for = Some(waits))];
        let expected = StalledCollective { name: "loss".into(), ms_ago: 11_000, ranks: vec![0], count: 1 };
        assert_eq!(find_stall(ranks.iter(), 10_000), Some(expected));
        assert_eq!(find_stall(ranks[1..].iter(), 10_000), None, "nobody is known to be missing");
    }
}
