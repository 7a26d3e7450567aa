//! Sizes of elastic jobs: which idle nodes they take, and which they give back.
//!
//! An elastic job starts with its minimum. Idle nodes go to elastic jobs only while no job waits in their cluster that
//! the cluster could ever run. The nodes above the minimum of an elastic job count as available for every job that
//! waits, whatever the priorities: they are free `Policy::release_timeout` after the request at the latest. Jobs of low
//! priority give first, and among equals the largest. A job never gets fewer nodes than its minimum: if it loses so
//! many, it is evicted as a whole.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, HashSet};

use corro_model::batchai::Priority;
use corro_model::{JobKey, NodeId, Timestamp};

use crate::Policy;
use crate::plan::{Placement, Resize, ResizeCause};
use crate::view::{ClusterView, ElasticRange, NodeAvailability, NodeView, WaitingView};

/// A running elastic job with the nodes that it may keep or give back.
#[derive(Clone, Debug)]
pub struct ElasticJob<'a> {
    pub key: &'a JobKey,
    priority: Priority,
    sequence: u64,
    min: usize,
    max: usize,
    asked: usize,
    resized: Timestamp,
    /// Nodes in rank order, without those that it gives back and those that leave the cluster.
    held: Vec<&'a NodeId>,
    refused: &'a [NodeId],
    /// Whether nodes of it are being given back or are leaving.
    is_shrinking: bool,
}

impl ElasticJob<'_> {
    fn surplus(&self) -> usize {
        self.held.len().saturating_sub(self.min)
    }
}

/// The elastic jobs of a cluster, and the nodes that they give back.
#[derive(Clone, Debug, Default)]
pub struct ElasticPool<'a> {
    jobs: Vec<ElasticJob<'a>>,
    /// Latest times at which nodes that are given back are free, soonest first, with the job that gives.
    returning: Vec<(Timestamp, &'a JobKey)>,
}

impl<'a> ElasticPool<'a> {
    pub fn new(cluster: &'a ClusterView<'a>, leaving: &HashSet<&NodeId>) -> Self {
        let running: Vec<_> = cluster.jobs.elastic().collect();
        if running.is_empty() {
            return Self::default();
        }
        let nodes: HashMap<&NodeId, &NodeView> = cluster.nodes.iter().map(|node| (node.id, node)).collect();
        let mut pool = Self::default();
        for job in running {
            let Some(elastic) = job.elastic else { continue };
            let (mut held, mut is_shrinking) = (Vec::new(), false);
            for id in elastic.nodes {
                let busy = |node: &&&NodeView| node.availability == NodeAvailability::Busy(job.key);
                let Some(node) = nodes.get(id).filter(busy) else { continue };
                match node.releasing {
                    _ if leaving.contains(id) => is_shrinking = true,
                    Some(by) => {
                        is_shrinking = true;
                        pool.returning.push((by, job.key));
                    }
                    None => held.push(node.id),
                }
            }
            let (priority, sequence, resized) = (elastic.priority, elastic.sequence, elastic.resized);
            let (min, max, asked) = (elastic.range.min, elastic.range.max, elastic.range.asked);
            pool.jobs.push(ElasticJob {
                key: job.key,
                priority,
                sequence,
                min,
                max,
                asked,
                resized,
                held,
                refused: elastic.refused,
                is_shrinking,
            });
        }
        pool.returning.sort();
        pool
    }

    /// Nodes above the minima, which can be asked back.
    pub fn surplus(&self) -> usize {
        self.jobs.iter().map(ElasticJob::surplus).sum()
    }

    /// Nodes that are being given back.
    pub fn returning(&self) -> &[(Timestamp, &'a JobKey)] {
        &self.returning
    }

    /// Jobs that have nodes above their minimum or give some back.
    pub fn givers(&self) -> Vec<&'a JobKey> {
        let with_surplus = self.jobs.iter().filter(|job| job.surplus() > 0).map(|job| job.key);
        let mut givers: Vec<_> = with_surplus.chain(self.returning.iter().map(|(_, job)| *job)).collect();
        givers.sort();
        givers.dedup();
        givers
    }

    /// The nodes above the minima: those that a cluster which shrinks loses first.
    pub fn surplus_nodes(&self) -> HashSet<&'a NodeId> {
        self.jobs.iter().flat_map(|job| job.held.iter().skip(job.min.min(job.held.len())).copied()).collect()
    }

    /// Chooses `count` nodes above the minima for `waiting`, and no longer counts them.
    pub fn reclaim(&mut self, count: usize, waiting: &JobKey) -> Vec<Resize> {
        let mut removed: BTreeMap<&JobKey, Vec<NodeId>> = BTreeMap::new();
        for _ in 0..count {
            let givers = self.jobs.iter_mut().filter(|job| job.surplus() > 0);
            let first = givers.min_by_key(|job| (job.priority, Reverse(job.surplus()), Reverse(job.sequence)));
            let Some(job) = first else { break };
            removed.entry(job.key).or_default().extend(job.held.pop().cloned());
        }
        let resize = |(job, remove): (&JobKey, _)| {
            let cause = ResizeCause::GivesWay { to: waiting.clone() };
            Resize { job: job.clone(), add: Vec::new(), remove, cause }
        };
        removed.into_iter().map(resize).collect()
    }

    /// Whether the job can go on without these nodes. They are the ones that leave; `held` does not contain them.
    pub fn survives(&self, job: &JobKey) -> bool {
        self.jobs.iter().any(|elastic| elastic.key == job && elastic.held.len() >= elastic.min)
    }

    /// Gives idle nodes to the jobs that start now and to those that run: first up to the number of nodes asked for,
    /// then evenly, up to their maxima. A job that has just changed waits for `Policy::settle_time`, so that nodes which
    /// come one by one are one change.
    pub fn grow(
        &self,
        starting: &[StartingJob<'a>],
        idle: impl Iterator<Item = NodeId>,
        (now, policy): (Timestamp, &Policy),
        placements: &mut [Placement],
    ) -> Vec<Resize> {
        struct Candidate<'a> {
            key: &'a JobKey,
            rank: (Priority, u64),
            size: usize,
            asked: usize,
            max: usize,
            refused: &'a [NodeId],
            added: Vec<NodeId>,
        }
        let mut idle: Vec<NodeId> = idle.collect();
        let settled = |job: &&ElasticJob| !job.is_shrinking && now.since(job.resized) >= policy.settle_time;
        let running = self.jobs.iter().filter(settled).map(|job| Candidate {
            key: job.key,
            rank: (job.priority, job.sequence),
            size: job.held.len(),
            asked: job.asked,
            max: job.max,
            refused: job.refused,
            added: Vec::new(),
        });
        let new = starting.iter().map(|job| Candidate {
            key: job.key,
            rank: (job.priority, job.sequence),
            size: job.range.min,
            asked: job.range.asked,
            max: job.range.max,
            refused: &[],
            added: Vec::new(),
        });
        let mut candidates: Vec<_> = running.chain(new).collect();
        loop {
            let fits = |job: &&mut Candidate| job.size < job.max && idle.iter().any(|id| !job.refused.contains(id));
            let next = candidates.iter_mut().filter(fits).min_by_key(|job| {
                let (priority, sequence) = job.rank;
                (job.size >= job.asked, Reverse(priority), job.size, sequence)
            });
            let Some(job) = next else { break };
            let Some(first) = idle.iter().position(|id| !job.refused.contains(id)) else { break };
            job.added.push(idle.remove(first));
            job.size += 1;
        }
        let mut resizes = Vec::new();
        for Candidate { key, added, .. } in candidates.into_iter().filter(|job| !job.added.is_empty()) {
            match placements.iter_mut().find(|placement| placement.job == *key) {
                Some(placement) => placement.nodes.extend(added),
                None => {
                    let (job, remove, cause) = (key.clone(), Vec::new(), ResizeCause::NodesIdle);
                    resizes.push(Resize { job, add: added, remove, cause });
                }
            }
        }
        resizes
    }
}

/// Elastic job that starts in this pass with its minimum.
#[derive(Clone, Copy, Debug)]
pub struct StartingJob<'a> {
    pub key: &'a JobKey,
    pub priority: Priority,
    pub sequence: u64,
    pub range: ElasticRange,
}

impl<'a> StartingJob<'a> {
    /// `None` for a gang of a fixed size.
    pub fn new(job: &WaitingView<'a>) -> Option<Self> {
        let range = job.elastic?;
        Some(Self { key: job.key, priority: job.priority, sequence: job.sequence, range })
    }
}
