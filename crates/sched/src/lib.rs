//! Decides which nodes a cluster needs and where queued jobs run. Called by the scheduling loop with a snapshot; returns
//! a plan. Never reads a clock, never talks to a node, never knows how anything is stored.
//!
//! Reading order: [`view`] (what is looked at), [`policy`], [`plan`] (the answer), [`scale`] (how many nodes), [`capacity`]
//! (how many there is capacity for, and who gives way), [`order`] (who comes first), [`forecast`] and [`place`] (which jobs start), [`explanation`] and `estimator` (why the others wait).

pub mod backfill;
pub mod capacity;
pub mod forecast;
pub mod order;
pub mod plan;
pub mod policy;
pub mod scale;
mod start_estimate;
pub mod view;
pub mod wait_explanation;

pub use backfill::Wait;
pub use plan::{Eviction, Placement, Plan};
pub use policy::Policy;
pub use start_estimate::{Basis, RunTimes, StartEstimate};
pub use view::{
    ClusterView, Jobs, NodeAvailability, NodeView, RegionCapacity, Running, RunningView, Snapshot, Target, Waiting,
    WaitingView,
};
pub use wait_explanation::{Unblock, WaitExplanation};

/// Plans every cluster of the snapshot. Nodes that leave are taken out before jobs are placed.
pub fn plan(snapshot: &Snapshot, policy: &Policy) -> Plan {
    let mut plan = Plan::default();
    let wanted = snapshot.clusters.iter().map(|cluster| scale::plan_scale(cluster, snapshot.now, policy));
    let mut scalings: Vec<_> = wanted.collect();
    plan.preempt = capacity::allocate_and_preempt(snapshot, &mut scalings, policy);
    for (cluster, scaling) in snapshot.clusters.iter().zip(scalings) {
        scaling.add_to(cluster, &mut plan);
        backfill::plan_placements(cluster, &scaling, snapshot.now, policy, &mut plan.placements);
    }
    plan
}
