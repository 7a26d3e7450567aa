//! Estimates when a queued job may start; never a promise. Simulates the queue in order: each job starts as soon as
//! enough nodes are free. A running job ends when its own progress reports say so. Without progress, its usual run time
//! counts ([`RunTimes`]). A job that has already exceeded that time, or that has no history, is assumed to use its
//! whole wall-clock limit, because an estimate in the past is useless.
//!
//! Beyond `MAX_SIMULATED_JOBS`, only the work of the jobs is summed. Backfill is not simulated.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use corro_model::{JobKey, Timestamp};

use crate::forecast::Forecast;
use crate::view::ClusterView;

/// Jobs that are simulated one by one.
const MAX_SIMULATED_JOBS: usize = 2_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StartEstimate {
    pub start: Timestamp,
    pub basis: Basis,
}

/// Source of an estimate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Basis {
    /// Nodes that are idle or starting.
    Nodes,
    /// Run times of earlier jobs of the same experiment, and progress of running ones.
    History,
    /// Wall-clock limits, so the estimate is the latest possible time.
    Limits,
    HistoryAndLimits,
}

/// Source of expected run times.
pub trait RunTimes {
    /// Usual run time of jobs like this one; `None` if none has succeeded.
    fn typical_run_time(&self, job: &JobKey) -> Option<Duration>;

    /// Remaining run time that a running job reports; `None` if it reports none.
    fn remaining(&self, job: &JobKey) -> Option<Duration>;
}

pub(crate) struct StartEstimator {
    /// Number of nodes that become free, by time and basis.
    free: BTreeMap<(Timestamp, Basis), usize>,
    nodes: usize,
    simulated: usize,
    /// Start of the last simulated job. No job starts before the one ahead of it.
    last: Timestamp,
    basis: Basis,
    /// Work of jobs that were not simulated, in node-milliseconds.
    work: u64,
}

impl StartEstimator {
    pub fn new(
        view: &ClusterView,
        forecast: &Forecast,
        idle: usize,
        (now, release_timeout): (Timestamp, Duration),
        times: &dyn RunTimes,
    ) -> Self {
        let mut free = BTreeMap::from([((now, Basis::Nodes), idle + forecast.coming)]);
        if forecast.returning > 0 {
            *free.entry((now.plus(release_timeout), Basis::Nodes)).or_default() += forecast.returning;
        }
        let started = view.jobs.running().map(|job| (job.key, job.started));
        let started: HashMap<_, _> = started.collect();
        for (ends_by, job, nodes) in &forecast.ends {
            let by_progress = || times.remaining(job).map(|remaining| now.plus(remaining));
            let by_history =
                || times.typical_run_time(job).zip(started.get(job)).map(|(usual, started)| started.plus(usual));
            let end = by_progress().or_else(by_history).map(|end| end.min(*ends_by));
            let end = end.filter(|end| *end > now).map(|end| (end, Basis::History));
            *free.entry(end.unwrap_or((*ends_by, Basis::Limits))).or_default() += nodes;
        }
        let nodes = free.values().sum();
        Self { free, nodes, simulated: 0, last: now, basis: Basis::Nodes, work: 0 }
    }

    /// Simulates the start of the next job in the queue; `None` if the cluster never has enough nodes.
    pub fn start(&mut self, needs: usize, usual: Option<Duration>, limit: Duration) -> Option<StartEstimate> {
        if needs > self.nodes {
            return None;
        }
        let (run, rests_on) = usual.map_or((limit, Basis::Limits), |usual| (usual, Basis::History));
        if self.simulated >= MAX_SIMULATED_JOBS {
            let start = self.last.plus(Duration::from_millis(self.work / self.nodes as u64));
            self.work = self.work.saturating_add(millis(run).saturating_mul(needs as u64));
            self.basis = combine_bases(self.basis, rests_on);
            return Some(StartEstimate { start, basis: self.basis });
        }
        self.simulated += 1;
        let mut missing = needs;
        while missing > 0 {
            let Some(mut soonest) = self.free.first_entry() else { break };
            let (at, basis) = *soonest.key();
            self.last = self.last.max(at);
            self.basis = combine_bases(self.basis, basis);
            let taken = missing.min(*soonest.get());
            missing -= taken;
            *soonest.get_mut() -= taken;
            if *soonest.get() == 0 {
                soonest.remove();
            }
        }
        *self.free.entry((self.last.plus(run), rests_on)).or_default() += needs;
        Some(StartEstimate { start: self.last, basis: self.basis })
    }
}

/// Milliseconds of a duration, saturating. Computed in 64 bits: this runs for every job of a long queue, and 128-bit
/// division is slow.
fn millis(span: Duration) -> u64 {
    span.as_secs().saturating_mul(1_000).saturating_add(u64::from(span.subsec_millis()))
}

fn combine_bases(one: Basis, other: Basis) -> Basis {
    match (one, other) {
        (Basis::Nodes, other) => other,
        (one, Basis::Nodes) => one,
        (one, other) if one == other => one,
        _ => Basis::HistoryAndLimits,
    }
}
