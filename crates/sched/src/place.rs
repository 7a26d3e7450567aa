//! Which queued jobs start: highest priority first, first come first served inside one, each gang whole or not at all.
//! The first gang that does not fit holds back those behind it, so that it is not overtaken for ever; a job that could
//! never fit holds nobody back.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use corro_model::NodeId;

use crate::plan::{Placement, Plan, Wait};
use crate::scale::most_nodes;
use crate::view::{ClusterView, JobView, NodeStanding, NodeView, Target};

pub fn plan_placements(cluster: &ClusterView, leaving: &BTreeSet<NodeId>, plan: &mut Plan) {
    if cluster.target == Target::Deleting {
        return;
    }
    let mut free: Vec<&NodeView> = cluster
        .nodes
        .iter()
        .filter(|node| node.standing == NodeStanding::Idle && !leaving.contains(&node.id))
        .collect();
    free.sort_by_key(|node| node.index);
    let mut free = free.into_iter().map(|node| node.id.clone()).collect::<Vec<_>>();

    let mut queue: Vec<&JobView> = cluster.jobs.iter().filter(|job| job.queued).collect();
    queue.sort_by_key(|job| (Reverse(job.priority), job.sequence));
    let most = most_nodes(cluster.target);
    let mut blocked: Option<(&JobView, usize)> = None;
    for job in queue {
        let needs = job.node_count;
        let wait = match &mut blocked {
            _ if needs > most => Wait::ClusterTooSmall { needs, most },
            Some((first, behind)) => {
                *behind += 1;
                Wait::Behind { position: *behind, first: first.key.clone() }
            }
            None if needs > free.len() => {
                blocked = Some((job, 0));
                Wait::NodesBusy { needs, idle: free.len() }
            }
            None => {
                plan.placements.push(Placement { job: job.key.clone(), nodes: free.drain(..needs).collect() });
                continue;
            }
        };
        plan.waits.insert(job.key.clone(), wait);
    }
}
