//! Decides which nodes a cluster needs and where queued jobs run. Called by the scheduling loop with a snapshot; returns
//! a plan. Never reads a clock, never talks to a node, never knows how anything is stored.
//!
//! Reading order: [`view`] (what is looked at), [`policy`], [`plan`] (the answer), [`scale`] (how many nodes), [`room`]
//! (how many there is room for, and who gives way), [`order`] (who comes first), [`forecast`] and [`place`] (which jobs start), [`outlook`] and `future` (why the others wait).

pub mod forecast;
mod future;
pub mod order;
pub mod outlook;
pub mod place;
pub mod plan;
pub mod policy;
pub mod room;
pub mod scale;
pub mod view;

pub use outlook::{Basis, Estimate, Outlook, RunTimes, Unblock};
pub use place::Wait;
pub use plan::{Eviction, Placement, Plan};
pub use policy::Policy;
pub use view::{
    ClusterView, Jobs, NodeStanding, NodeView, Room, Running, RunningView, Snapshot, Target, Waiting, WaitingView,
};

/// Plans every cluster of the snapshot. Nodes that leave are taken out before jobs are placed.
pub fn plan(snapshot: &Snapshot, policy: &Policy) -> Plan {
    let mut plan = Plan::default();
    let wishes = snapshot.clusters.iter().map(|cluster| scale::plan_scale(cluster, snapshot.now, policy));
    let mut scalings: Vec<_> = wishes.collect();
    plan.preempt = room::share_out(snapshot, &mut scalings, policy);
    for (cluster, scaling) in snapshot.clusters.iter().zip(scalings) {
        scaling.add_to(cluster, &mut plan);
        place::plan_placements(cluster, &scaling, snapshot.now, policy, &mut plan.placements);
    }
    plan
}
