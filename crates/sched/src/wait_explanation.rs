//! Explains why a queued job waits: reason, position, estimated start, and actions that would help. The reason comes
//! from the same [`BackfillState`] that places jobs, advanced further down the queue.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use corro_model::{JobKey, Timestamp};

use crate::Policy;
use crate::backfill::{BackfillState, Verdict, Wait};
use crate::elastic::ElasticPool;
use crate::forecast::Forecast;
use crate::order::in_order;
use crate::scale::Scaling;
use crate::start_estimate::{Basis, RunTimes, StartEstimate, StartEstimator};
use crate::view::{ClusterView, NodeAvailability, Target};

/// Running jobs that an explanation names at most.
const MAX_NAMED_JOBS: usize = 3;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitExplanation<'a> {
    /// `None` if the job starts in the next pass.
    pub wait: Option<Wait<'a>>,
    /// Position in the queue, from 1. Jobs that are too large for the cluster are not counted.
    pub position: usize,
    pub needs: usize,
    /// `None` if no known event lets the job start.
    pub estimate: Option<StartEstimate>,
    /// Alternatives; each one alone would help.
    pub unblock: Vec<Unblock<'a>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unblock<'a> {
    /// Nodes that are starting become ready.
    NodesCome {
        nodes: usize,
    },
    /// Elastic jobs give nodes back, by the given time at the latest; `more` further jobs are not named.
    NodesReturn {
        nodes: usize,
        jobs: Vec<&'a JobKey>,
        more: usize,
        by: Timestamp,
    },
    /// These jobs end, each at the given time at the latest; `more` further jobs are not named.
    JobsEnd {
        nodes: usize,
        jobs: Vec<(&'a JobKey, Timestamp)>,
        more: usize,
    },
    /// The blocked head starts.
    FirstStarts {
        first: &'a JobKey,
        by: Option<Timestamp>,
    },
    /// A wall-clock limit this short would let the job start now.
    ShorterLimit {
        at_most: Duration,
    },
    /// Nodes that failed preparation or never became ready are repaired.
    NodesMended {
        nodes: usize,
    },
    /// The region gets free cores for this many nodes that the cluster should have.
    CoresFree {
        nodes: usize,
    },
    Resize {
        to: usize,
    },
    RaiseMaximum {
        to: usize,
    },
}

/// Explanation of each job in `wanted` that is queued in the cluster `view`.
pub fn explain_waits<'a>(
    view: &'a ClusterView<'a>,
    scaling: &'a Scaling<'a>,
    now: Timestamp,
    policy: &'a Policy,
    times: &dyn RunTimes,
    wanted: &HashSet<&JobKey>,
) -> HashMap<&'a JobKey, WaitExplanation<'a>> {
    let mut found = HashMap::with_capacity(wanted.len());
    let mut backfill = BackfillState::new(view, scaling, now, policy);
    let cluster =
        Cluster { view, scaling, forecast: Forecast::new(view, scaling, now, policy), idle: backfill.idle, now };
    let release_timeout = policy.release_timeout;
    let mut estimator = StartEstimator::new(view, &cluster.forecast, cluster.idle, (now, release_timeout), times);
    // Jobs and nodes up to and including the job under examination.
    let (mut position, mut demand) = (0, 0);
    for job in in_order(&*view.jobs, now, policy) {
        if found.len() == wanted.len() {
            break;
        }
        let verdict = backfill.consider(&job);
        let fits = !matches!(verdict, Verdict::Wait(Wait::ClusterTooSmall { .. }));
        position += usize::from(fits);
        demand += if fits { job.node_count } else { 0 };
        let usual = times.typical_run_time(job.key).map(|usual| usual.min(job.limit));
        let estimate = match verdict {
            // A backfilled job delays no other job, so it is left out of the simulation.
            Verdict::Start if backfill.blocked_head().is_some() => {
                Some(StartEstimate { start: now, basis: Basis::Nodes })
            }
            _ if !fits => None,
            _ => estimator.start(job.node_count, usual, job.limit),
        };
        if wanted.contains(job.key) {
            let (wait, unblock) = match verdict {
                Verdict::Start => (None, Vec::new()),
                Verdict::Wait(wait) => (Some(wait), cluster.unblock(wait, &backfill, job.node_count, demand)),
            };
            let position = position + usize::from(!fits);
            found.insert(job.key, WaitExplanation { wait, position, needs: job.node_count, estimate, unblock });
        }
    }
    found
}

/// Cluster before anything starts.
struct Cluster<'a> {
    pub view: &'a ClusterView<'a>,
    pub scaling: &'a Scaling<'a>,
    pub forecast: Forecast<'a>,
    pub idle: usize,
    pub now: Timestamp,
}

impl<'a> Cluster<'a> {
    /// Actions that would help a job of `needs` nodes; `demand` is the sum over it and all jobs ahead of it.
    fn unblock(&self, wait: Wait<'a>, backfill: &BackfillState<'a>, needs: usize, demand: usize) -> Vec<Unblock<'a>> {
        let mut ways = Vec::new();
        let first_starts = |first| {
            let reservation = backfill.blocked_head().and_then(|first| first.reservation);
            Unblock::FirstStarts { first, by: reservation.map(|reservation| reservation.at) }
        };
        match wait {
            Wait::ClusterTooSmall { most } => ways.extend(self.suggest_growth(needs.saturating_sub(most))),
            Wait::NodesBusy { idle } => {
                let missing = needs.saturating_sub(idle + self.forecast.returning);
                let coming = self.forecast.coming.min(missing);
                if coming > 0 {
                    ways.push(Unblock::NodesCome { nodes: coming });
                }
                ways.extend(self.suggest_job_ends(missing - coming));
                let short = self.scaling.shortfall.min(missing - coming);
                if short > 0 {
                    ways.push(Unblock::CoresFree { nodes: short });
                }
                let broken = self.count_broken();
                if broken > 0 && backfill.blocked_head().is_some_and(|first| first.reservation.is_none()) {
                    ways.push(Unblock::NodesMended { nodes: broken });
                }
                if short == 0 {
                    ways.extend(self.suggest_growth(missing - coming));
                }
            }
            Wait::NodesReturn { nodes, by } => {
                let mut jobs = ElasticPool::new(self.view, &self.scaling.leaving).givers();
                let more = jobs.len().saturating_sub(MAX_NAMED_JOBS);
                jobs.truncate(MAX_NAMED_JOBS);
                ways.push(Unblock::NodesReturn { nodes, jobs, more, by });
            }
            Wait::Behind { first } => {
                ways.push(first_starts(first));
                ways.extend(self.suggest_growth(demand.saturating_sub(self.idle + self.forecast.coming)));
            }
            Wait::WouldDelay { first, first_starts_by } => {
                ways.push(first_starts(first));
                ways.push(Unblock::ShorterLimit { at_most: first_starts_by.since(self.now) });
                ways.extend(self.suggest_growth(demand.saturating_sub(self.idle + self.forecast.coming)));
            }
        }
        ways
    }

    /// Running jobs whose ends free `missing` nodes, in order of their latest end.
    fn suggest_job_ends(&self, missing: usize) -> Option<Unblock<'a>> {
        let mut ends = self.forecast.ends.clone();
        ends.sort_by_key(|(at, ..)| *at);
        let mut nodes = 0;
        let needed = ends.iter().take_while(|(_, _, n)| {
            let more = nodes < missing;
            nodes += if more { n } else { &0 };
            more
        });
        let mut jobs: Vec<_> = needed.map(|(at, job, _)| (*job, *at)).collect();
        let more = jobs.len().saturating_sub(MAX_NAMED_JOBS);
        jobs.truncate(MAX_NAMED_JOBS);
        (!jobs.is_empty()).then_some(Unblock::JobsEnd { nodes: missing.min(nodes), jobs, more })
    }

    fn suggest_growth(&self, by: usize) -> Option<Unblock<'a>> {
        match self.view.target {
            _ if by == 0 => None,
            Target::Manual { count, .. } => Some(Unblock::Resize { to: count + by }),
            Target::Auto { max, .. } => Some(Unblock::RaiseMaximum { to: max + by }),
            Target::Deleting => None,
        }
    }

    /// Nodes that count towards the target but cannot run jobs.
    fn count_broken(&self) -> usize {
        let late = |availability| matches!(availability, NodeAvailability::Allocating | NodeAvailability::Preparing);
        let nodes = self.view.nodes.iter().filter(|node| !self.scaling.leaving.contains(node.id));
        let counted =
            nodes.filter(|node| node.availability == NodeAvailability::Unusable || late(node.availability)).count();
        (counted + self.scaling.allocate).saturating_sub(self.forecast.coming)
    }
}
