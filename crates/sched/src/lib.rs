//! Decides which nodes a cluster needs and where queued jobs run. Called by the scheduling loop with a snapshot; returns
//! a plan. Never reads a clock, never talks to a node, never knows how anything is stored.
//!
//! Reading order: [`view`] (what is looked at), [`plan`] (the answer), [`scale`] (how many nodes), [`place`] (which jobs).

pub mod place;
pub mod plan;
pub mod scale;
pub mod view;

pub use plan::{Eviction, Placement, Plan, Wait};
pub use view::{ClusterView, JobView, NodeStanding, NodeView, Snapshot, Target};

/// Plans every cluster of the snapshot. Nodes that leave are taken out before jobs are placed.
pub fn plan(snapshot: &Snapshot) -> Plan {
    let mut plan = Plan::default();
    for cluster in &snapshot.clusters {
        let leaving = scale::plan_scale(cluster, &mut plan);
        place::plan_placements(cluster, &leaving, &mut plan);
    }
    plan
}
