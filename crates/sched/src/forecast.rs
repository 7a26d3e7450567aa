//! Forecast of free nodes from certain facts only: nodes that are starting may be ready at any moment, and a running
//! job releases its nodes at its wall-clock limit at the latest. Nodes above the minimum of an elastic job count as free
//! at once, since it gives them back within a short time. The blocked head of the queue gets its reservation
//! from this forecast.

use std::collections::HashMap;

use corro_model::{JobKey, Timestamp};

use crate::Policy;
use crate::elastic::ElasticPool;
use crate::scale::Scaling;
use crate::view::{ClusterView, NodeAvailability};

/// Nodes on which a job may be placed later, with the time from which each is free.
#[derive(Clone, Debug, Default)]
pub struct Forecast<'a> {
    /// Nodes that are starting.
    pub coming: usize,
    /// Nodes above the minima of elastic jobs, and those that they give back.
    pub returning: usize,
    /// Nodes that running jobs release: latest time, job, number of nodes. Sorted by time only after
    /// [`Forecast::reserve`].
    pub ends: Vec<(Timestamp, &'a JobKey, usize)>,
}

/// Earliest time at which a gang is certain to fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reservation {
    pub at: Timestamp,
    /// Nodes free at that time beyond those the gang needs.
    pub surplus: usize,
}

impl<'a> Forecast<'a> {
    pub fn new(cluster: &'a ClusterView<'a>, scaling: &Scaling<'a>, now: Timestamp, policy: &Policy) -> Self {
        let mut held: HashMap<&JobKey, usize> = HashMap::new();
        let mut coming = scaling.allocate;
        let elastic = ElasticPool::new(cluster, &scaling.leaving);
        let returning = elastic.surplus() + elastic.returning().len();
        let is_returning = elastic.surplus_nodes();
        for node in cluster.nodes.iter().filter(|node| !scaling.leaving.contains(node.id)) {
            match node.availability {
                NodeAvailability::Busy(_) if node.releasing.is_some() || is_returning.contains(node.id) => {}
                NodeAvailability::Busy(job) => *held.entry(job).or_default() += 1,
                // A node that is overdue may never become ready.
                NodeAvailability::Allocating | NodeAvailability::Preparing => {
                    coming += usize::from(now.since(node.since) < policy.node_start_timeout);
                }
                NodeAvailability::Idle
                | NodeAvailability::Leaving
                | NodeAvailability::Unusable
                | NodeAvailability::Lost => {}
            }
        }
        let ends = cluster.jobs.running().filter_map(|job| {
            let nodes = held.get(job.key)?;
            Some((job.ends_by.max(now), job.key, *nodes))
        });
        Self { coming, returning, ends: ends.collect() }
    }

    /// Reservation for a gang of `needs` nodes when only `idle` are free. `None` if no known event ever frees enough
    /// nodes.
    pub fn reserve(&mut self, needs: usize, idle: usize, now: Timestamp) -> Option<Reservation> {
        self.ends.sort_by_key(|(at, ..)| *at);
        let (mut at, mut free) = (now, idle + self.coming + self.returning);
        for (end, _, nodes) in &self.ends {
            if free >= needs && *end > at {
                break;
            }
            at = *end;
            free += nodes;
        }
        (free >= needs).then(|| Reservation { at, surplus: free - needs })
    }
}
