//! Tables and properties of core allocation and preemption in a region with too few cores or machines.

mod world;

use corro_model::NodeId;
use corro_sched::{Eviction, Plan, RegionCapacity, Snapshot, Target};
use proptest::prelude::*;
use world::*;

/// Plans one dedicated and one low-priority cluster in a region of `cores` cores; each node has one core.
fn planned(dedicated: &World, low: &World, cores: u64) -> Plan {
    let capacity = RegionCapacity { cores, machines_join: false };
    corro_sched::plan(
        &Snapshot { now: at(dedicated.now), clusters: vec![dedicated.view(), low.view()], capacity },
        &POLICY,
    )
}

fn allocated(plan: &Plan, cluster: &str) -> usize {
    let of = |key: &corro_model::ClusterKey| key.as_str().rsplit('/').next() == Some(cluster);
    plan.allocate.iter().filter(|(key, _)| of(key)).map(|(_, count)| count).sum()
}

fn preempted(plan: &Plan) -> Vec<u32> {
    let index = |id: &NodeId| (1..999).find(|index| node_id(*index) == *id).expect("a drawn node");
    let mut found: Vec<u32> = plan.preempt.iter().map(index).collect();
    found.sort_unstable();
    found
}

#[test]
fn dedicated_clusters_come_first_and_take_back_what_they_lack() {
    let check = |wanted, own, target, nodes, cores, expected: (usize, usize, &[u32])| {
        let dedicated = World::drawn(manual(wanted), own, "", "");
        let low = World::drawn(manual(target), nodes, "a:2 b:1", "").low_priority();
        let plan = planned(&dedicated, &low, cores);
        let got = (allocated(&plan, "c"), allocated(&plan, "low"), preempted(&plan));
        assert_eq!(got, (expected.0, expected.1, expected.2.to_vec()), "{wanted} of '{own}' | '{nodes}' in {cores}");
    };
    // Enough for all.
    check(2, "", 2, "", 4, (2, 2, &[]));
    // Low-priority clusters get the rest.
    check(2, "", 2, "", 3, (2, 1, &[]));
    check(2, "", 2, "", 2, (2, 0, &[]));
    // Idle nodes are preempted before busy ones, the youngest first, and no more than are missing.
    check(2, ".", 3, ". . .", 4, (0, 0, &[103]));
    check(3, ".", 3, ". . .", 4, (0, 0, &[102, 103]));
    check(2, ".", 2, ". b", 3, (0, 0, &[101]));
    check(3, ".", 2, ". b", 3, (0, 0, &[101, 102]));
    // A whole gang is preempted before a second one is touched.
    check(2, "", 3, "a a b", 3, (0, 0, &[101, 102]));
    // Departing nodes are not preempted again, and their cores go to no other cluster.
    check(2, ".", 3, "- . .", 4, (0, 0, &[]));
    check(2, ".", 1, ". . .", 4, (0, 0, &[]));
    // The request exceeds the region: all low-priority nodes are preempted, and the rest waits.
    check(5, "", 2, ". .", 2, (0, 0, &[101, 102]));
}

#[test]
fn a_node_that_is_taken_back_gives_up_its_job_goes_and_is_replaced() {
    let mut world = World::drawn(manual(3), "a a .", "a:2", "late:1").low_priority();
    world.nodes[1].preempted = true;
    let plan = world.plan(&POLICY);
    assert_eq!(plan.evict.values().collect::<Vec<_>>(), [&Eviction::Preempt]);
    assert_eq!((allocated(&plan, "low"), plan.retire.len()), (1, 0));
    // The whole gang stops. Afterwards the node leaves and takes no other job.
    world.jobs[0].started = None;
    for node in &mut world.nodes {
        node.kind = Kind::Idle;
    }
    let plan = world.plan(&POLICY);
    assert_eq!(plan.retire, [node_id(102)]);
    assert!(plan.placements.iter().all(|placement| !placement.nodes.contains(&node_id(102))));
}

#[test]
fn a_machine_is_taken_back_for_a_dedicated_node_that_waited_long_enough() {
    let check = |waited: u64, own, nodes, expected: &[u32]| {
        let mut dedicated = World::drawn(manual(2), own, "", "");
        let now = dedicated.now;
        dedicated.nodes.iter_mut().for_each(|node| node.since = now - waited);
        let low = World::drawn(manual(2), nodes, "a:1", "").low_priority();
        let capacity = RegionCapacity { machines_join: true, ..RegionCapacity::UNLIMITED };
        let clusters = vec![dedicated.view(), low.view()];
        let plan = corro_sched::plan(&Snapshot { now: at(now), clusters, capacity }, &POLICY);
        assert_eq!(preempted(&plan), expected, "{own} for {waited} s, {nodes}");
    };
    check(19, "* .", ". a", &[]);
    check(20, "* .", ". a", &[101]);
    check(20, "* *", ". a", &[101, 102]);
    check(20, "* *", "- a", &[102]);
    // An allocating node has no machine to release.
    check(20, "* .", "* a", &[102]);
    check(20, ". .", ". a", &[]);
}

#[test]
fn a_wait_for_cores_is_explained_as_such() {
    let dedicated = World::drawn(manual(2), ". .", "", "");
    let low = World::drawn(manual(2), "", "", "w:1").low_priority();
    let capacity = RegionCapacity { cores: 2, machines_join: false };
    let snapshot = Snapshot { now: at(low.now), clusters: vec![dedicated.view(), low.view()], capacity };
    let wishes = snapshot.clusters.iter().map(|cluster| corro_sched::scale::plan_scale(cluster, snapshot.now, &POLICY));
    let mut scalings: Vec<_> = wishes.collect();
    corro_sched::capacity::allocate_and_preempt(&snapshot, &mut scalings, &POLICY);
    let wanted = low.jobs.iter().map(|job| &job.key).collect();
    let (view, scaling) = (&snapshot.clusters[1], &scalings[1]);
    let explanations =
        corro_sched::wait_explanation::explain_waits(view, scaling, snapshot.now, &POLICY, &NoHistory, &wanted);
    let explanation = &explanations[&key("w")];
    assert_eq!(explanation.unblock, [corro_sched::Unblock::CoresFree { nodes: 1 }]);
    assert_eq!(explanation.estimate, None);
}

prop_compose! {
    fn cluster(low: bool)(
        count in 0usize..8,
        auto in any::<bool>(),
        nodes in prop::collection::vec((0u8..9, 0u64..100, any::<bool>()), 0..8),
        queue in prop::collection::vec(1usize..4, 0..4),
    ) -> World {
        let mut world = World::new(if auto { Target::Auto { min: 0, max: count } } else { manual(count) });
        for (kind, stood, preempted) in nodes {
            let kind = match kind {
                0 => Kind::Allocating,
                1 => Kind::Preparing,
                2..=4 => Kind::Idle,
                5 => Kind::Leaving,
                6 => Kind::Unusable,
                7 => Kind::Lost,
                _ => Kind::Busy(key(if low { "r" } else { "d" })),
            };
            world.add_node(kind, world.now - stood);
            let node = world.nodes.last_mut().expect("just added");
            node.preempted = low && preempted && !matches!(node.kind, Kind::Leaving | Kind::Lost);
        }
        for needs in queue {
            world.submit(corro_model::batchai::Priority::Normal, needs, 10, 10);
        }
        if low { world.low_priority() } else { world }
    }
}

proptest! {
    /// Allocation never exceeds the region's cores. Only low-priority nodes are preempted, each once, and only for
    /// nodes that a dedicated cluster lacks. Meanwhile low-priority clusters get no nodes.
    #[test]
    fn region_capacity_is_never_exceeded(dedicated in cluster(false), low in cluster(true), cores in 0u64..20) {
        let plan = planned(&dedicated, &low, cores);
        let free = planned(&dedicated, &low, u64::MAX);
        let used = (dedicated.nodes.len() + low.nodes.len()) as u64;
        let (own, others) = (allocated(&plan, "c"), allocated(&plan, "low"));
        prop_assert!(own + others == 0 || used + (own + others) as u64 <= cores, "more cores than there are");
        let missing = allocated(&free, "c") - own;
        prop_assert!(missing == 0 || others == 0, "a low-priority cluster grows while a dedicated one lacks nodes");
        prop_assert!(free.preempt.is_empty(), "there is capacity for all, and something is taken back");
        let node = |id: &NodeId| low.nodes.iter().find(|node| node.id == *id);
        let takable = |node: &Node| !node.preempted && !matches!(node.kind, Kind::Leaving | Kind::Lost);
        for id in &plan.preempt {
            prop_assert!(node(id).is_some_and(takable), "{id} is no node to take back");
        }
        let leaving = |world: &World| world.nodes.iter().filter(|node| node.kind == Kind::Leaving).count();
        let evicted = |world: &World| {
            let preempted = |node: &&Node| node.preempted && matches!(node.kind, Kind::Busy(_));
            world.nodes.iter().filter(preempted).count()
        };
        let back = leaving(&dedicated) + leaving(&low) + plan.retire.len() + evicted(&low);
        prop_assert!(plan.preempt.len() <= missing.saturating_sub(back.min(missing)) , "more is taken than is missing");
        // Planning is deterministic: the same input gives the same plan.
        prop_assert_eq!(&plan, &planned(&dedicated, &low, cores));
    }

    /// With enough cores for it alone, a dedicated cluster gets all its nodes after a few rounds, even from other
    /// clusters.
    #[test]
    fn dedicated_clusters_get_their_nodes(wanted in 1usize..6, held in 0usize..8, spare in 0u64..3) {
        let mut dedicated = World::new(manual(wanted));
        let mut low = World::drawn(manual(held), &". ".repeat(held), "", "").low_priority();
        let cores = (wanted.max(held) as u64) + spare;
        for _ in 0..4 {
            let plan = planned(&dedicated, &low, cores);
            for _ in 0..allocated(&plan, "c") {
                dedicated.add_node(Kind::Idle, 0);
            }
            for _ in 0..allocated(&plan, "low") {
                let index = low.nodes.last().map_or(101, |node| node.index + 1);
                let (id, kind) = (node_id(index), Kind::Idle);
                low.nodes.push(Node { id, index, kind, since: 0, host: None, preempted: false, releasing: None });
            }
            // Retired nodes are gone by the next round; preempted ones are marked.
            low.nodes.retain(|node| !plan.retire.contains(&node.id));
            low.nodes.iter_mut().filter(|node| plan.preempt.contains(&node.id)).for_each(|node| node.preempted = true);
        }
        prop_assert_eq!(dedicated.nodes.len(), wanted);
        let left = (cores as usize - wanted).min(held);
        prop_assert_eq!(low.nodes.len(), left, "what is left is used");
    }
}
