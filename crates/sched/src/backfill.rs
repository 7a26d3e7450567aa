//! Chooses the queued jobs that start: gang scheduling with backfill. Jobs are examined in queue order, and each gang
//! starts as a whole or not at all. The first gang that does not fit is the blocked head. It gets a reservation: the
//! earliest time at which enough nodes are free if every running job uses its whole wall-clock limit.
//!
//! A later job may start before the blocked head only if that does not delay it: the job ends by the reserved time, or
//! uses only nodes that are surplus at that time. A job ends at its wall-clock limit at the latest. A job with only the
//! default limit, which is days, is expected to take twice the longest recent run of its experiment. A job larger than
//! its cluster can become blocks no other job.
//!
//! Nodes above the minima of elastic jobs count like idle ones, only that a job which needs them waits until they are free:
//! the idle nodes are kept for it, and the others are asked back. Idle nodes that no job waits for make elastic jobs larger.
//!
//! `wait_explanation` uses the same [`BackfillState`], so explanations and placements agree.

use std::collections::HashMap;
use std::time::Duration;

use corro_model::batchai::DEFAULT_WALL_CLOCK_TIME;
use corro_model::{JobKey, Timestamp};

use crate::Policy;
use crate::elastic::{ElasticPool, StartingJob};
use crate::forecast::{Forecast, Reservation};
use crate::order::in_order;
use crate::plan::{Placement, Plan, Resize};
use crate::scale::{Scaling, max_nodes};
use crate::view::{ClusterView, Jobs, NodeAvailability, NodeView, Target, WaitingView};

pub fn plan_placements<'a>(
    cluster: &'a ClusterView<'a>,
    scaling: &'a Scaling<'a>,
    now: Timestamp,
    policy: &'a Policy,
    plan: &mut Plan,
) {
    if cluster.target == Target::Deleting {
        return;
    }
    let mut backfill = BackfillState::new(cluster, scaling, now, policy);
    if !backfill.may_start_more() {
        return;
    }
    let mut starting = Vec::new();
    let mut all_start = true;
    let mut queue = in_order(&*cluster.jobs, now, policy);
    while backfill.may_start_more()
        && let Some(job) = queue.next()
    {
        match backfill.consider(&job) {
            Verdict::Start => starting.push(job),
            Verdict::Wait(Wait::ClusterTooSmall { .. }) => {}
            Verdict::Wait(_) => all_start = false,
        }
    }
    // Jobs that are too large for the cluster are no reason to leave nodes idle.
    let all_start = all_start && queue.all(|job| job.node_count > backfill.most);
    let mut free = in_rank_order(idle_nodes(cluster, scaling).collect()).into_iter().map(|node| node.id.clone());
    let first = plan.placements.len();
    plan.placements.extend(
        starting
            .iter()
            .map(|job| Placement { job: job.key.clone(), nodes: free.by_ref().take(job.node_count).collect() }),
    );
    plan.resize.append(&mut backfill.reclaimed);
    if all_start {
        let elastic: Vec<_> = starting.iter().filter_map(StartingJob::new).collect();
        plan.resize.extend(backfill.pool.grow(&elastic, free, (now, policy), &mut plan.placements[first..]));
    }
}

/// Progress of one scan of the queue: nodes left, and the blocked head once there is one.
pub struct BackfillState<'a> {
    now: Timestamp,
    most: usize,
    jobs: &'a dyn Jobs,
    pub idle: usize,
    pub pool: ElasticPool<'a>,
    /// Nodes that elastic jobs give back and that no job was promised yet.
    returning: usize,
    /// Nodes that are asked back for jobs that wait for them.
    pub reclaimed: Vec<Resize>,
    release_timeout: Duration,
    /// Forecast before anything starts. Built only when a job does not fit, since nothing else needs it.
    make_forecast: Box<dyn Fn() -> Forecast<'a> + 'a>,
    /// Jobs that start before the blocked head: latest end, job, number of nodes.
    starting: Vec<(Timestamp, &'a JobKey, usize)>,
    first: Option<BlockedHead<'a>>,
    /// Jobs behind the blocked head that may still be examined.
    depth: usize,
}

/// First gang in the queue that does not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockedHead<'a> {
    pub job: &'a JobKey,
    pub needs: usize,
    /// `None` if no known event ever frees enough nodes.
    pub reservation: Option<Reservation>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict<'a> {
    Start,
    Wait(Wait<'a>),
}

/// Reason why a queued job does not start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait<'a> {
    /// The job needs more nodes than the scale settings allow.
    ClusterTooSmall { most: usize },
    /// The job is the blocked head; too few nodes are idle.
    NodesBusy { idle: usize },
    /// The job is behind the blocked head, and too few nodes are idle for backfill.
    Behind { first: &'a JobKey },
    /// Elastic jobs give nodes back, and the job starts on them.
    NodesReturn { nodes: usize, by: Timestamp },
    /// Enough nodes are idle, but the job could still run at the reserved start of the blocked head.
    WouldDelay { first: &'a JobKey, first_starts_by: Timestamp },
}

impl<'a> BackfillState<'a> {
    pub fn new(cluster: &'a ClusterView<'a>, scaling: &'a Scaling<'a>, now: Timestamp, policy: &'a Policy) -> Self {
        let pool = ElasticPool::new(cluster, &scaling.leaving);
        Self {
            now,
            most: max_nodes(cluster.target),
            jobs: &*cluster.jobs,
            idle: idle_nodes(cluster, scaling).count(),
            returning: pool.returning().len(),
            pool,
            reclaimed: Vec::new(),
            release_timeout: policy.release_timeout,
            make_forecast: Box::new(move || Forecast::new(cluster, scaling, now, policy)),
            starting: Vec::new(),
            first: None,
            depth: policy.backfill_depth,
        }
    }

    /// Whether a job that has not been examined can still start.
    pub fn may_start_more(&self) -> bool {
        self.available() > 0 && (self.first.is_none() || self.depth > 0)
    }

    /// Nodes that are idle or that elastic jobs give back soon.
    fn available(&self) -> usize {
        self.idle + self.returning + self.pool.surplus()
    }

    pub fn blocked_head(&self) -> Option<BlockedHead<'a>> {
        self.first
    }

    /// Decides about the next job. Jobs must be passed in queue order.
    pub fn consider(&mut self, job: &WaitingView<'a>) -> Verdict<'a> {
        let needs = job.node_count;
        if needs > self.most {
            return Verdict::Wait(Wait::ClusterTooSmall { most: self.most });
        }
        let available = self.available();
        let starts_by = if needs <= self.idle { self.now } else { self.now.plus(self.release_timeout) };
        let ends_by = starts_by.plus(job.limit);
        let Some(first) = &mut self.first else {
            if needs <= available {
                self.starting.push((ends_by, job.key, needs));
                return self.take(job);
            }
            let mut forecast = (self.make_forecast)();
            forecast.returning = self.returning + self.pool.surplus();
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
        if needs > available {
            return behind;
        }
        match &mut first.reservation {
            None => {}
            Some(reservation) if ends_by <= reservation.at => {}
            Some(reservation) if needs <= reservation.surplus => reservation.surplus -= needs,
            Some(reservation) if starts_by.plus(expected_run_time(job, self.jobs)) <= reservation.at => {}
            Some(reservation) => {
                let first_starts_by = reservation.at;
                return Verdict::Wait(Wait::WouldDelay { first: first.job, first_starts_by });
            }
        }
        self.take(job)
    }

    /// Gives a job nodes that are available: idle ones first, then those that are given back already, then others of
    /// elastic jobs, which are asked back.
    fn take(&mut self, job: &WaitingView<'a>) -> Verdict<'a> {
        let missing = job.node_count.saturating_sub(self.idle);
        self.idle -= job.node_count - missing;
        if missing == 0 {
            return Verdict::Start;
        }
        let returning = missing.min(self.returning);
        let promised = self.pool.returning().len() - self.returning;
        self.returning -= returning;
        let reclaimed = self.pool.reclaim(missing - returning, job.key);
        let by = match reclaimed.is_empty() {
            true => self.pool.returning().get(promised + returning - 1).map_or(self.now, |(by, _)| *by),
            false => self.now.plus(self.release_timeout),
        };
        self.reclaimed.extend(reclaimed);
        Verdict::Wait(Wait::NodesReturn { nodes: missing, by })
    }
}

/// Expected run time of a job: its wall-clock limit, unless that is only the default and jobs of its experiment have
/// succeeded.
fn expected_run_time(job: &WaitingView, jobs: &dyn Jobs) -> Duration {
    let longest = if job.limit >= DEFAULT_WALL_CLOCK_TIME { jobs.longest_run(job.key) } else { None };
    longest.map_or(job.limit, |longest| longest.saturating_mul(2).min(job.limit))
}

/// Sorts nodes by age, but keeps the nodes of one host adjacent, because neighbours in rank order exchange the most
/// data.
fn in_rank_order<'a>(mut nodes: Vec<&'a NodeView<'a>>) -> Vec<&'a NodeView<'a>> {
    nodes.sort_by_key(|node| node.index);
    let mut first_of: HashMap<&str, u32> = HashMap::new();
    for node in &nodes {
        node.host.map(|host| *first_of.entry(host).or_insert(node.index));
    }
    let host_first_index =
        |node: &NodeView| node.host.and_then(|host| first_of.get(host).copied()).unwrap_or(node.index);
    // The sort is stable: nodes of one host stay in order of age.
    nodes.sort_by_key(|node| host_first_index(node));
    nodes
}

fn idle_nodes<'a>(cluster: &'a ClusterView<'a>, scaling: &Scaling<'a>) -> impl Iterator<Item = &'a NodeView<'a>> {
    let idle = |node: &&NodeView| node.availability == NodeAvailability::Idle && !scaling.leaving.contains(node.id);
    cluster.nodes.iter().filter(idle)
}
