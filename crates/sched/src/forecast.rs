//! When nodes become free, as far as it is certain: nodes that come may be there any moment, and a running job gives its
//! nodes back at its wall-clock limit at the latest. The first gang that does not fit gets its reservation from here.

use std::collections::HashMap;

use corro_model::{JobKey, Timestamp};

use crate::Policy;
use crate::scale::Scaling;
use crate::view::{ClusterView, NodeAvailability};

/// Nodes that a job may be placed on later, by the time from which each is free.
#[derive(Clone, Debug, Default)]
pub struct Forecast<'a> {
    /// Nodes that come.
    pub coming: usize,
    /// What running jobs give back: when at the latest, who, how many nodes. In order of time once sorted.
    pub ends: Vec<(Timestamp, &'a JobKey, usize)>,
}

/// The earliest time by which a gang fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reservation {
    pub at: Timestamp,
    /// Nodes that are free then beyond those that the gang needs.
    pub surplus: usize,
}

impl<'a> Forecast<'a> {
    pub fn new(cluster: &'a ClusterView<'a>, scaling: &Scaling<'a>, now: Timestamp, policy: &Policy) -> Self {
        let mut held: HashMap<&JobKey, usize> = HashMap::new();
        let mut coming = scaling.allocate;
        for node in cluster.nodes.iter().filter(|node| !scaling.leaving.contains(node.id)) {
            match node.availability {
                NodeAvailability::Busy(job) => *held.entry(job).or_default() += 1,
                // One that should have come long ago may never come.
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
        Self { coming, ends: ends.collect() }
    }

    /// For a gang of `needs` nodes that finds only `idle`; `None` when nothing that is known will ever make it fit.
    pub fn reserve(&mut self, needs: usize, idle: usize, now: Timestamp) -> Option<Reservation> {
        self.ends.sort_by_key(|(at, ..)| *at);
        let (mut at, mut free) = (now, idle + self.coming);
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
