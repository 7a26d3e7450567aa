//! What the collective engine of a job's ranks shows of itself, and what follows from it: whom the others wait for. Pure.

use serde::{Deserialize, Serialize};

use super::RankStats;

/// The engine of one rank.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EngineStats {
    pub rank: usize,
    /// Ranks in the job.
    pub size: usize,
    /// Since the engine started.
    pub totals: EngineTotals,
    /// Over the last ten seconds or so.
    pub window: EngineTotals,
    /// The last operation that ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<Collective>,
    /// What all ranks have asked for and this one performs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub working_on: Option<Collective>,
    /// What this rank has asked for, longest ago, and others have not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits_for: Option<Collective>,
    /// Told by rank 0, which knows who has asked for what.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub awaited: Option<StalledCollective>,
    /// How old these figures are: an engine within a long operation, or of a stopped process, tells nothing new.
    pub seen_ms_ago: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EngineTotals {
    /// How long this is about.
    pub ms: u64,
    /// How often the tensors of a training step came again.
    pub steps: u64,
    pub operations: u64,
    pub tensors: u64,
    /// Of tensors, as the rank handed them in.
    pub bytes: u64,
    /// With something asked for that others had not asked for yet.
    pub waited_ms: u64,
    /// Performing operations.
    pub worked_ms: u64,
}

impl EngineTotals {
    /// Of the time, 0 to 1.
    pub fn waited_share(&self) -> f64 {
        if self.ms == 0 { 0.0 } else { (self.waited_ms as f64 / self.ms as f64).min(1.0) }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Collective {
    /// The tensor's; the first one's, when several travel together.
    pub name: String,
    /// As Horovod calls it: `ALLREDUCE`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tensors: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// Since it began, or ended.
    pub ms_ago: u64,
}

/// What some ranks have asked for and others not.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StalledCollective {
    pub name: String,
    /// Since the first of them asked.
    pub ms_ago: u64,
    /// Those that have not, the first few.
    pub ranks: Vec<usize>,
    /// How many have not.
    pub count: usize,
}

/// Of the time: if the others wait for less, nobody is slow.
const WORTH_A_MARK: f64 = 0.1;

/// The rank that the others wait for: it waits for less than half as long as the one in the middle of the others does. `None`
/// when they are about alike or nobody waits much.
pub fn straggler<'a>(engines: impl IntoIterator<Item = &'a EngineStats>) -> Option<usize> {
    let mut waits: Vec<(f64, usize)> =
        engines.into_iter().filter(|one| one.window.ms > 0).map(|one| (one.window.waited_share(), one.rank)).collect();
    waits.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    let ((least, rank), others) = waits.split_first()?;
    let (middle, _) = others.get(others.len() / 2)?;
    (*middle >= WORTH_A_MARK && *least < middle / 2.0).then_some(*rank)
}

/// What has been waited for longer than `limit_ms`, and who has not asked for it.
pub fn find_stall<'a>(
    processes: impl Iterator<Item = &'a RankStats> + Clone,
    limit_ms: u64,
) -> Option<StalledCollective> {
    let engines = processes.clone().flat_map(|one| &one.engines);
    let told = engines.clone().filter(|one| one.seen_ms_ago < limit_ms).find_map(|one| one.awaited.clone());
    if let Some(awaited) = told.filter(|awaited| awaited.ms_ago >= limit_ms) {
        return Some(awaited);
    }
    // Rank 0 tells nothing, or all are within one operation: whoever is stopped keeps the others waiting.
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
            // All alike, nobody waits, nobody else is there.
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
