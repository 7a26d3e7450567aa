//! Gang scheduler: decides how many nodes each cluster gets and which queued jobs start on which nodes. Takes a
//! snapshot, returns a plan. Pure: never reads a clock, never talks to a node, never knows how anything is stored.
//!
//! Reading order: [`view`] (input), [`policy`], [`mod@plan`] (output), [`scale`] (nodes per cluster), [`capacity`] (cores
//! of a region and preemption), [`order`] (queue order), [`forecast`] and [`backfill`] (which jobs start),
//! [`elastic`] (which running jobs grow and shrink),
//! [`wait_explanation`] and `start_estimate` (why the others wait, and until when). Apart from it, [`successive_halving`] decides
//! which trials of a sweep stop early.

pub mod backfill;
pub mod capacity;
pub mod elastic;
pub mod forecast;
pub mod order;
pub mod plan;
pub mod policy;
pub mod scale;
mod start_estimate;
pub mod successive_halving;
pub mod view;
pub mod wait_explanation;

pub use backfill::Wait;
pub use plan::{Eviction, Placement, Plan, Resize, ResizeCause};
pub use policy::Policy;
pub use start_estimate::{Basis, RunTimes, StartEstimate};
pub use view::{
    ClusterView, ElasticRange, Jobs, NodeAvailability, NodeView, RegionCapacity, RunningElastic, RunningIter,
    RunningView, Snapshot, Target, WaitingIter, WaitingView,
};
pub use wait_explanation::{Unblock, WaitExplanation};

/// Plans every cluster of the snapshot. Leaving nodes are excluded before jobs are placed.
pub fn plan(snapshot: &Snapshot, policy: &Policy) -> Plan {
    let mut plan = Plan::default();
    let wanted = snapshot.clusters.iter().map(|cluster| scale::plan_scale(cluster, snapshot.now, policy));
    let mut scalings: Vec<_> = wanted.collect();
    plan.preempt = capacity::allocate_and_preempt(snapshot, &mut scalings, policy);
    for (cluster, scaling) in snapshot.clusters.iter().zip(scalings) {
        scaling.add_to(cluster, &mut plan);
        backfill::plan_placements(cluster, &scaling, snapshot.now, policy, &mut plan);
    }
    plan
}
