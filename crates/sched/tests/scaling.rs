//! Tables: how many nodes a cluster gets, which are released first, and which jobs are evicted.

mod world;

use corro_model::NodeId;
use corro_model::batchai::DeallocationOption;
use corro_sched::{Eviction, Plan, Target};
use world::*;

fn planned(target: Target, nodes: &str, running: &str, queue: &str) -> Plan {
    World::drawn(target, nodes, running, queue).plan(&POLICY)
}

fn allocated(plan: &Plan) -> usize {
    plan.allocate.first().map_or(0, |(_, count)| *count)
}

fn retired(plan: &Plan) -> Vec<u32> {
    let index = |id: &NodeId| (1..99).find(|index| node_id(*index) == *id).expect("a drawn node");
    plan.retire.iter().map(index).collect()
}

#[test]
fn missing_nodes_are_added_and_pending_ones_count() {
    let check =
        |nodes, count, expected| assert_eq!(allocated(&planned(manual(count), nodes, "", "")), expected, "{nodes}");
    check("", 4, 4);
    check("* + .", 4, 1);
    check("- -", 2, 2);
    check("x .", 2, 0);
    check("! .", 2, 1);
}

#[test]
fn idle_nodes_go_before_busy_ones_and_the_youngest_first() {
    let plan = planned(manual(2), "a . . x", "a:1", "");
    assert_eq!(retired(&plan), [4, 3]);
    assert!(plan.evict.is_empty());
}

/// The three deallocation options. Rows: nodes, target; then for each option the retired nodes and the evicted jobs.
#[test]
fn a_resize_takes_nodes_as_its_option_says() {
    use DeallocationOption::{Requeue, Terminate, WaitForJobCompletion};
    let check = |nodes, running, count, goes: &[u32], evicted: &str| {
        for option in [Requeue, Terminate, WaitForJobCompletion] {
            let plan = planned(Target::Manual { count, option }, nodes, running, "late:1");
            assert_eq!(retired(&plan), goes, "{nodes} to {count}, {option:?}: a busy node never leaves at once");
            let names: Vec<_> = plan.evict.keys().map(name).collect();
            let (expected, how) = match option {
                Requeue => (evicted, Some(Eviction::Requeue)),
                Terminate => (evicted, Some(Eviction::Terminate)),
                WaitForJobCompletion => ("", None),
            };
            assert_eq!(names.join(" "), expected, "{nodes} to {count}, {option:?}");
            assert!(plan.evict.values().all(|got| Some(*got) == how), "{option:?}");
        }
    };
    check("a b", "a:1 b:1", 2, &[], "");
    check("a b", "a:1 b:1", 1, &[], "b");
    check("a b", "a:1 b:1", 0, &[], "a b");
    check("a a b .", "a:2 b:1", 3, &[4], "");
    check("a a b .", "a:2 b:1", 2, &[4], "b");
    check("b a a .", "a:2 b:1", 2, &[4], "a");
    check("a . . .", "a:1", 1, &[4, 3, 2], "");
}

#[test]
fn nodes_that_wait_for_the_end_of_their_job_take_no_other() {
    let shrink = Target::Manual { count: 1, option: DeallocationOption::WaitForJobCompletion };
    // The youngest node is to leave and still runs b; node 1 becomes free first.
    let mut world = World::drawn(shrink, "a b", "a:1@5 b:1@50", "late:1@5");
    world.follow_plan(&POLICY);
    for _ in 0..5 {
        world.pass_second();
    }
    // An idle node leaves rather than a busy one, so b keeps its node and `late` waits for it.
    let plan = world.follow_plan(&POLICY);
    assert_eq!((retired(&plan), plan.placements.len()), (vec![1], 0));
    for _ in 0..45 {
        world.pass_second();
    }
    assert_eq!(world.starts(&POLICY), "late");
}

#[test]
fn a_node_that_leaves_takes_no_job() {
    let plan = planned(manual(1), ". .", "", "a:1 b:1");
    assert_eq!(plan.placements[0].nodes, [node_id(1)]);
    assert_eq!((retired(&plan), plan.placements.len()), (vec![2], 1));
}

#[test]
fn a_deleted_cluster_ends_its_jobs_and_lets_its_nodes_go() {
    let plan = planned(Target::Deleting, "a .", "a:1", "b:1");
    assert_eq!(retired(&plan), [2]);
    assert_eq!(plan.evict.keys().map(name).collect::<Vec<_>>(), ["a", "b"]);
    assert!(plan.evict.values().all(|how| *how == Eviction::Terminate));
    assert!(plan.placements.is_empty());
}

#[test]
fn auto_scale_grows_with_demand_at_once_between_its_bounds() {
    let check = |nodes, running, queue, expected| {
        let plan = planned(Target::Auto { min: 1, max: 4 }, nodes, running, queue);
        assert_eq!(allocated(&plan), expected, "{nodes} | {running} | {queue}");
    };
    check("", "", "", 1);
    check("", "", "a:3", 3);
    check("", "", "a:3 b:3", 4);
    check("a a .", "a:2", "b:1", 0);
    check("a a .", "a:2", "b:2", 1);
    // A job that can never fit is no demand.
    check("", "", "a:9", 1);
    check("", "", "a:9 b:2", 2);
}

#[test]
fn auto_scale_begins_with_the_initial_count_once() {
    let mut world = World::drawn(Target::Auto { min: 0, max: 4 }, "", "", "");
    assert_eq!(allocated(&world.plan(&POLICY)), 0);
    world.initial = 3;
    assert_eq!(allocated(&world.plan(&POLICY)), 3);
    world.initial = 9;
    assert_eq!(allocated(&world.plan(&POLICY)), 4, "never more than the maximum");
}

#[test]
fn auto_scale_shrinks_when_nodes_were_idle_for_a_while_and_never_evicts() {
    let check = |target, idle_for: u64, nodes, running, queue, expected: &[u32]| {
        let mut world = World::drawn(target, nodes, running, queue);
        let since = world.now - idle_for;
        world.nodes.iter_mut().for_each(|node| node.since = since);
        let plan = world.plan(&POLICY);
        assert_eq!(retired(&plan), expected, "{nodes} | {running} | {queue} after {idle_for} s");
        assert!(plan.evict.is_empty());
    };
    let auto = |min, max| Target::Auto { min, max };
    check(auto(0, 4), 59, ". . a", "a:1", "", &[]);
    check(auto(0, 4), 60, ". . a", "a:1", "", &[2, 1]);
    check(auto(2, 4), 60, ". . a", "a:1", "", &[2]);
    check(auto(0, 4), 60, ". . a", "a:1", "b:2", &[]);
    // A preparing node is kept. A node whose agent never joins is given up.
    check(auto(0, 4), 200, "+ *", "", "", &[]);
    check(auto(0, 4), 300, "+ *", "", "", &[2]);
    // Beyond a lowered maximum, nodes leave at once, except busy ones.
    check(auto(0, 1), 0, ". . a", "a:1", "", &[2, 1]);
    check(auto(0, 1), 0, "a b", "a:1 b:1", "", &[]);
}
