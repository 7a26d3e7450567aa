//! Planner tables: literals in, literals out; and properties over random clusters.

use corro_model::batchai::{DeallocationOption, Priority};
use corro_model::{GroupKey, JobKey, NodeId};
use corro_sched::{ClusterView, Eviction, JobView, NodeStanding, NodeView, Plan, Snapshot, Target, Wait, plan};
use proptest::prelude::*;

fn job(name: &str) -> JobKey {
    GroupKey::new("g").workspace("w").experiment("e").job(name)
}

fn node(index: u32) -> NodeId {
    NodeId::parse(&format!("tvm-1_{index}-20180718t174802z-p")).expect("a node id")
}

fn nodes(standings: &[NodeStanding]) -> Vec<NodeView> {
    let view = |(i, standing): (usize, &NodeStanding)| {
        let index = i as u32 + 1;
        NodeView { id: node(index), index, standing: standing.clone() }
    };
    standings.iter().enumerate().map(view).collect()
}

fn queued(name: &str, sequence: u64, node_count: usize) -> JobView {
    JobView { key: job(name), priority: Priority::Normal, sequence, node_count, queued: true }
}

fn running(name: &str, node_count: usize) -> JobView {
    JobView { queued: false, ..queued(name, 0, node_count) }
}

fn manual(count: usize) -> Target {
    Target::Manual { count, option: DeallocationOption::Requeue }
}

fn planned(target: Target, nodes: Vec<NodeView>, jobs: Vec<JobView>) -> Plan {
    let key = GroupKey::new("g").workspace("w").cluster("c");
    plan(&Snapshot { clusters: vec![ClusterView { key, target, nodes, jobs }] })
}

fn placed(plan: &Plan) -> Vec<(String, usize)> {
    let name = |key: &JobKey| key.as_str().rsplit('/').next().unwrap_or_default().to_owned();
    plan.placements.iter().map(|p| (name(&p.job), p.nodes.len())).collect()
}

use NodeStanding::{Allocating, Busy, Idle, Leaving, Lost, Preparing, Unusable};

#[test]
fn a_gang_starts_whole_on_idle_nodes_in_order() {
    let plan = planned(manual(4), nodes(&[Idle, Idle, Idle, Idle]), vec![queued("a", 1, 4)]);
    assert_eq!(plan.placements[0].nodes, [node(1), node(2), node(3), node(4)]);
    assert!(plan.waits.is_empty());
}

#[test]
fn a_gang_that_does_not_fit_waits_and_holds_back_those_behind_it() {
    let plan =
        planned(manual(4), nodes(&[Idle, Idle, Preparing, Preparing]), vec![queued("b", 2, 1), queued("a", 1, 4)]);
    assert!(plan.placements.is_empty());
    assert_eq!(plan.waits[&job("a")], Wait::NodesBusy { needs: 4, idle: 2 });
    assert_eq!(plan.waits[&job("b")], Wait::Behind { position: 1, first: job("a") });
}

#[test]
fn first_come_is_first_served_inside_a_priority() {
    let mut high = queued("high", 9, 1);
    high.priority = Priority::High;
    let plan = planned(manual(2), nodes(&[Idle, Idle]), vec![queued("late", 2, 1), queued("early", 1, 1), high]);
    assert_eq!(placed(&plan), [("high".to_owned(), 1), ("early".to_owned(), 1)]);
}

#[test]
fn a_job_that_can_never_fit_holds_nobody_back() {
    let plan = planned(manual(2), nodes(&[Idle, Idle]), vec![queued("big", 1, 8), queued("small", 2, 2)]);
    assert_eq!(placed(&plan), [("small".to_owned(), 2)]);
    assert_eq!(plan.waits[&job("big")], Wait::ClusterTooSmall { needs: 8, most: 2 });
}

#[test]
fn scaling_adds_what_is_missing_and_counts_what_is_coming() {
    let allocate = |standings: &[NodeStanding], count| {
        planned(manual(count), nodes(standings), vec![]).allocate.first().map_or(0, |(_, n)| *n)
    };
    assert_eq!(allocate(&[], 4), 4);
    assert_eq!(allocate(&[Allocating, Preparing, Idle], 4), 1);
    assert_eq!(allocate(&[Leaving, Leaving], 2), 2);
    assert_eq!(allocate(&[Unusable, Idle], 2), 0);
    assert_eq!(allocate(&[Lost, Idle], 2), 1);
}

#[test]
fn scaling_down_takes_idle_nodes_before_busy_ones_and_the_youngest_first() {
    let busy = Busy(job("a"));
    let plan = planned(manual(2), nodes(&[busy, Idle, Idle, Unusable]), vec![running("a", 1)]);
    assert_eq!(plan.retire, [node(4), node(3)]);
    assert!(plan.evict.is_empty());
}

#[test]
fn busy_nodes_go_as_the_deallocation_option_says() {
    let busy = || nodes(&[Busy(job("a"))]);
    let evicted = |option| {
        let plan = planned(Target::Manual { count: 0, option }, busy(), vec![running("a", 1)]);
        assert!(plan.retire.is_empty(), "a busy node never leaves at once");
        plan.evict.get(&job("a")).copied()
    };
    assert_eq!(evicted(DeallocationOption::Requeue), Some(Eviction::Requeue));
    assert_eq!(evicted(DeallocationOption::Terminate), Some(Eviction::Terminate));
    assert_eq!(evicted(DeallocationOption::WaitForJobCompletion), None);
}

#[test]
fn a_node_that_leaves_takes_no_job() {
    let plan = planned(manual(1), nodes(&[Idle, Idle]), vec![queued("a", 1, 1), queued("b", 2, 1)]);
    assert_eq!(plan.placements[0].nodes, [node(1)]);
    assert_eq!((plan.retire, plan.placements.len()), (vec![node(2)], 1));
}

#[test]
fn a_deleted_cluster_ends_its_jobs_and_lets_its_nodes_go() {
    let plan = planned(Target::Deleting, nodes(&[Busy(job("a")), Idle]), vec![running("a", 1), queued("b", 2, 1)]);
    assert_eq!(plan.retire, [node(2)]);
    assert_eq!(plan.evict.values().copied().collect::<Vec<_>>(), [Eviction::Terminate, Eviction::Terminate]);
    assert!(plan.placements.is_empty());
}

#[test]
fn auto_scale_follows_demand_between_its_bounds() {
    let auto = Target::Auto { min: 1, max: 4 };
    let allocate = |jobs| planned(auto, vec![], jobs).allocate.first().map_or(0, |(_, n)| *n);
    assert_eq!(allocate(vec![]), 1);
    assert_eq!(allocate(vec![queued("a", 1, 3)]), 3);
    assert_eq!(allocate(vec![queued("a", 1, 3), queued("b", 2, 3)]), 4);
}

proptest! {
    /// No node is given twice, each gang is whole, only idle nodes that stay are used, nothing is both kept and let go.
    #[test]
    fn plans_are_sound(
        kinds in prop::collection::vec(0u8..7, 0..24),
        sizes in prop::collection::vec(1usize..8, 0..24),
        count in 0usize..24,
    ) {
        let standing = |kind: &u8| match kind {
            0 => Allocating, 1 => Preparing, 2 | 3 => Idle, 4 => Busy(job("busy")), 5 => Leaving, _ => Lost,
        };
        let all = nodes(&kinds.iter().map(standing).collect::<Vec<_>>());
        let jobs: Vec<_> = sizes.iter().enumerate().map(|(i, n)| queued(&format!("j{i}"), i as u64, *n)).collect();
        let plan = planned(manual(count), all.clone(), jobs.clone());
        let mut used = std::collections::BTreeSet::new();
        for placement in &plan.placements {
            let wanted = jobs.iter().find(|job| job.key == placement.job).expect("a queued job");
            prop_assert_eq!(placement.nodes.len(), wanted.node_count);
            for id in &placement.nodes {
                prop_assert!(used.insert(id.clone()), "a node in two jobs");
                let view = all.iter().find(|node| node.id == *id).expect("a node of the cluster");
                prop_assert_eq!(&view.standing, &Idle);
                prop_assert!(!plan.retire.contains(id));
            }
        }
        prop_assert_eq!(plan.placements.len() + plan.waits.len(), jobs.len());
    }
}
