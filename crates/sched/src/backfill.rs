//! Which queued jobs start. They are looked at in order, each gang whole or not at all. The first that does not fit gets
//! a reservation: the earliest time by which enough nodes are free if every running job uses its whole wall-clock limit.
//! A later one may start before it only if that does not delay it: it ends by then, or takes only nodes that are left
//! over then. It ends at its wall-clock limit at the latest; one that has only the default limit, of days, is expected to
//! end after twice the longest time that jobs of its experiment took of late. A job that is larger than its cluster can
//! become holds nobody back.
//!
//! The same [`BackfillState`] answers why a job waits; see `explanation`.

use std::collections::HashMap;
use std::time::Duration;

use corro_model::batchai::DEFAULT_WALL_CLOCK_TIME;
use corro_model::{JobKey, Timestamp};

use crate::Policy;
use crate::forecast::{Forecast, Reservation};
use crate::order::in_order;
use crate::plan::Placement;
use crate::scale::{Scaling, max_nodes};
use crate::view::{ClusterView, Jobs, NodeAvailability, NodeView, Target, WaitingView};

pub fn plan_placements<'a>(
    cluster: &'a ClusterView<'a>,
    scaling: &'a Scaling<'a>,
    now: Timestamp,
    policy: &'a Policy,
    placements: &mut Vec<Placement>,
) {
    if cluster.target == Target::Deleting {
        return;
    }
    let mut backfill = BackfillState::new(cluster, scaling, now, policy);
    if !backfill.may_start_more() {
        return;
    }
    let mut starting = Vec::new();
    let mut queue = in_order(&*cluster.jobs, now, policy);
    while backfill.may_start_more()
        && let Some(job) = queue.next()
    {
        if backfill.consider(&job) == Verdict::Start {
            starting.push((job.key, job.node_count));
        }
    }
    if starting.is_empty() {
        return;
    }
    let mut free = in_rank_order(idle_nodes(cluster, scaling).collect()).into_iter().map(|node| node.id.clone());
    placements.extend(
        starting.into_iter().map(|(job, n)| Placement { job: job.clone(), nodes: free.by_ref().take(n).collect() }),
    );
}

/// How far the queue has been looked at: how many nodes are left, and who is the first that does not fit.
pub struct BackfillState<'a> {
    now: Timestamp,
    most: usize,
    jobs: &'a dyn Jobs,
    pub idle: usize,
    /// What is known before anything starts; made when somebody does not fit, for that is all it is needed for.
    make_forecast: Box<dyn Fn() -> Forecast<'a> + 'a>,
    /// Jobs that start before the first that does not fit: until when at the latest, and on how many nodes.
    starting: Vec<(Timestamp, &'a JobKey, usize)>,
    first: Option<BlockedHead<'a>>,
    /// How many more behind the first may be looked at.
    depth: usize,
}

/// The first gang that does not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockedHead<'a> {
    pub job: &'a JobKey,
    pub needs: usize,
    /// `None` when nothing that is known will ever make it fit.
    pub reservation: Option<Reservation>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict<'a> {
    Start,
    Wait(Wait<'a>),
}

/// Why a job waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait<'a> {
    /// The cluster will never have that many nodes with its present scale settings.
    ClusterTooSmall { most: usize },
    /// The first in backfill; not enough nodes are free.
    NodesBusy { idle: usize },
    /// Others come first, and too few nodes are free to start before them.
    Behind { first: &'a JobKey },
    /// There are nodes for it, but it could still run when the first in backfill is to start.
    WouldDelay { first: &'a JobKey, first_starts_by: Timestamp },
}

impl<'a> BackfillState<'a> {
    pub fn new(cluster: &'a ClusterView<'a>, scaling: &'a Scaling<'a>, now: Timestamp, policy: &'a Policy) -> Self {
        Self {
            now,
            most: max_nodes(cluster.target),
            jobs: &*cluster.jobs,
            idle: idle_nodes(cluster, scaling).count(),
            make_forecast: Box::new(move || Forecast::new(cluster, scaling, now, policy)),
            starting: Vec::new(),
            first: None,
            depth: policy.backfill_depth,
        }
    }

    /// Can any job start that has not been looked at?
    pub fn may_start_more(&self) -> bool {
        self.idle > 0 && (self.first.is_none() || self.depth > 0)
    }

    pub fn blocked_head(&self) -> Option<BlockedHead<'a>> {
        self.first
    }

    /// Jobs must come in the order of the queue.
    pub fn consider(&mut self, job: &WaitingView<'a>) -> Verdict<'a> {
        let needs = job.node_count;
        if needs > self.most {
            return Verdict::Wait(Wait::ClusterTooSmall { most: self.most });
        }
        let ends_by = self.now.plus(job.limit);
        let Some(first) = &mut self.first else {
            if needs <= self.idle {
                self.idle -= needs;
                self.starting.push((ends_by, job.key, needs));
                return Verdict::Start;
            }
            let mut forecast = (self.make_forecast)();
            forecast.ends.append(&mut self.starting);
            let reservation = forecast.reserve(needs, self.idle, self.now);
            self.first = Some(BlockedHead { job: job.key, needs, reservation });
            return Verdict::Wait(Wait::NodesBusy { idle: self.idle });
        };
        let behind = Verdict::Wait(Wait::Behind { first: first.job });
        if self.depth == 0 {
            return behind;
        }
        self.depth -= 1;
        if needs > self.idle {
            return behind;
        }
        match &mut first.reservation {
            None => {}
            Some(reservation) if ends_by <= reservation.at => {}
            Some(reservation) if needs <= reservation.surplus => reservation.surplus -= needs,
            Some(reservation) if self.now.plus(expected_run_time(job, self.jobs)) <= reservation.at => {}
            Some(reservation) => {
                let first_starts_by = reservation.at;
                return Verdict::Wait(Wait::WouldDelay { first: first.job, first_starts_by });
            }
        }
        self.idle -= needs;
        Verdict::Start
    }
}

/// How long a job is expected to run: its limit, unless that is only the default and jobs of its experiment have ended well.
fn expected_run_time(job: &WaitingView, jobs: &dyn Jobs) -> Duration {
    let longest = if job.limit >= DEFAULT_WALL_CLOCK_TIME { jobs.longest_run(job.key) } else { None };
    longest.map_or(job.limit, |longest| longest.saturating_mul(2).min(job.limit))
}

/// The oldest first, but nodes of one machine next to each other: neighbours in rank order talk most.
fn in_rank_order<'a>(mut nodes: Vec<&'a NodeView<'a>>) -> Vec<&'a NodeView<'a>> {
    nodes.sort_by_key(|node| node.index);
    let mut first_of: HashMap<&str, u32> = HashMap::new();
    for node in &nodes {
        node.host.map(|host| *first_of.entry(host).or_insert(node.index));
    }
    let host_first_index =
        |node: &NodeView| node.host.and_then(|host| first_of.get(host).copied()).unwrap_or(node.index);
    // Those that compare alike keep their order.
    nodes.sort_by_key(|node| host_first_index(node));
    nodes
}

fn idle_nodes<'a>(cluster: &'a ClusterView<'a>, scaling: &Scaling<'a>) -> impl Iterator<Item = &'a NodeView<'a>> {
    let idle = |node: &&NodeView| node.availability == NodeAvailability::Idle && !scaling.leaving.contains(node.id);
    cluster.nodes.iter().filter(idle)
}
