//! When a waiting job may start: an estimate, never a promise. Jobs are let start one after another, in the order of the
//! queue, as nodes become free. A running job ends when its own progress says so; without any, a job is taken to run as long as jobs like it usually
//! did (`RunTimes`), and one that has taken longer than that already, or has no history, for its whole limit: an estimate that has passed is
//! none. Beyond `MAX_SIMULATED_JOBS` jobs only their work is added up. Jobs that may start before their turn are not looked for.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use corro_model::{JobKey, Timestamp};

use crate::forecast::Forecast;
use crate::view::ClusterView;

/// So many jobs are followed one by one.
const MAX_SIMULATED_JOBS: usize = 2_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StartEstimate {
    pub start: Timestamp,
    pub basis: Basis,
}

/// What an estimate rests on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Basis {
    /// Nodes that are idle or may be ready any moment.
    Nodes,
    /// How long jobs of the same experiment took, and how far the running ones are.
    History,
    /// Wall-clock limits: it is the latest time.
    Limits,
    HistoryAndLimits,
}

/// How long jobs run.
pub trait RunTimes {
    /// `None` when no job like this one has ended well.
    fn usual(&self, job: &JobKey) -> Option<Duration>;

    /// How much longer a running job takes by its own account; `None` when it gives none.
    fn remaining(&self, job: &JobKey) -> Option<Duration>;
}

pub(crate) struct StartEstimator {
    /// From when on how many nodes are free, and what that rests on.
    free: BTreeMap<(Timestamp, Basis), usize>,
    nodes: usize,
    simulated: usize,
    /// When the last job before the next one starts: nobody starts before the one in front.
    last: Timestamp,
    basis: Basis,
    /// Work of jobs that were not followed, in node-milliseconds.
    work: u64,
}

impl StartEstimator {
    pub fn new(view: &ClusterView, forecast: &Forecast, idle: usize, now: Timestamp, times: &dyn RunTimes) -> Self {
        let mut free = BTreeMap::from([((now, Basis::Nodes), idle + forecast.coming)]);
        let started = view.jobs.running().map(|job| (job.key, job.started));
        let started: HashMap<_, _> = started.collect();
        for (ends_by, job, nodes) in &forecast.ends {
            let by_progress = || times.remaining(job).map(|remaining| now.plus(remaining));
            let by_history = || times.usual(job).zip(started.get(job)).map(|(usual, started)| started.plus(usual));
            let end = by_progress().or_else(by_history).map(|end| end.min(*ends_by));
            let end = end.filter(|end| *end > now).map(|end| (end, Basis::History));
            *free.entry(end.unwrap_or((*ends_by, Basis::Limits))).or_default() += nodes;
        }
        let nodes = free.values().sum();
        Self { free, nodes, simulated: 0, last: now, basis: Basis::Nodes, work: 0 }
    }

    /// Lets the next job of the queue start; `None` when there will never be so many nodes.
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

/// As many as fit: this is asked for every job of a long queue, and wide division is slow.
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
