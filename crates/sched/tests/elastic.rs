//! Elastic jobs: tables of what they take and give back, and the properties of every stream of jobs among them.

mod world;

use std::time::Duration;

use corro_model::batchai::{DeallocationOption, Priority};
use corro_sched::{Eviction, Plan, Policy, ResizeCause, Target, Unblock, Wait};
use proptest::prelude::*;
use world::*;

/// `e +3,4` or `e -4 gives way to big`, one per change, after the jobs that start with their numbers of nodes.
fn describe(plan: &Plan) -> String {
    let index = |id: &corro_model::NodeId| (1..20).find(|index| node_id(*index) == *id).expect("a node").to_string();
    let list = |sign: &str, ids: &[corro_model::NodeId]| match ids {
        [] => String::new(),
        ids => format!(" {sign}{}", ids.iter().map(index).collect::<Vec<_>>().join(",")),
    };
    let starts = plan.placements.iter().map(|p| format!("{} on {}", name(&p.job), p.nodes.len()));
    let resizes = plan.resize.iter().map(|resize| {
        let cause = match &resize.cause {
            ResizeCause::NodesIdle => String::new(),
            ResizeCause::GivesWay { to } => format!(" for {}", name(to)),
            ResizeCause::ClusterResized => " resized".to_owned(),
            ResizeCause::Preempted => " preempted".to_owned(),
        };
        format!("{}{}{}{cause}", name(&resize.job), list("+", &resize.add), list("-", &resize.remove))
    });
    let evicted = plan.evict.iter().map(|(job, how)| format!("{} {how:?}", name(job)));
    starts.chain(resizes).chain(evicted).collect::<Vec<_>>().join("; ")
}

fn check(nodes: &str, running: &str, queue: &str, expected: &str) {
    let world = World::drawn(manual(nodes.split_whitespace().count()), nodes, running, queue);
    assert_eq!(describe(&world.plan(&POLICY)), expected, "{nodes} | {running} | {queue}");
}

#[test]
fn an_elastic_job_starts_with_what_is_free() {
    check(". . .", "", "e:2-4-8", "e on 3");
    check(". . . . . . . . . .", "", "e:2-4-8", "e on 8");
    check(".", "", "e:2-4-8", "");
    // Nothing beyond the minimum while another job waits.
    check(". . . . .", "", "e:2-4-8 big:4", "e on 2");
    check(". . . . .", "", "e:2-4-8 f:1-1-9", "e on 4; f on 1");
    check(". . . . . . .", "", "e:2-3-8 f:1-2-9", "e on 4; f on 3");
}

#[test]
fn idle_nodes_go_to_elastic_jobs_while_nobody_waits() {
    check("e e . .", "e:2-2-8", "", "e +3,4");
    check("e e . .", "e:2-2-3", "", "e +3");
    check("e e . .", "e:2-2-8", "big:3", "");
    // A job that the cluster can never run is no reason to leave nodes idle.
    check("e e . .", "e:2-2-8", "big:9", "e +3,4");
    // First up to what was asked for, then those of high priority and the smallest.
    check("e f . . .", "e:1-3-8 ^f:1-2-8", "", "e +4,5; f +3");
    check("e e f . . .", "e:1-1-8 f:1-1-8", "", "e +5; f +4,6");
}

#[test]
fn a_waiting_job_gets_the_nodes_above_the_minimum() {
    check("e e e e", "e:2-2-8", "a:1", "e -4 for a");
    check("e e e e", "e:2-2-8", "a:2", "e -4,3 for a");
    check("e e e e", "e:2-2-8", "a:3", "");
    check("e e e .", "e:2-2-8", "a:2", "e -3 for a");
    // Idle nodes are kept for the job that waits, and jobs behind it get what is left.
    check("e e e . r", "e:2-2-8 r:1@10", "a:2 b:1@5", "e -3 for a");
    // Low priority first, then the largest.
    check("e e e f f f", "e:1-1-8 _f:1-1-8", "a:3", "e -3 for a; f -6,5 for a");
    check("e e e e f f f", "e:1-1-8 f:1-1-8", "a:1", "e -4 for a");
    // Also a job of low priority gets what is above the minimum.
    check("e e e", "^e:2-2-8", "_a:1", "e -3 for a");
    // The job behind the blocked head may use them if it does not delay the head.
    check("e e e r r", "e:2-2-8 r:2@1000", "big:4 s:1@100", "e -3 for s");
    check("e e e r r", "e:2-2-8 r:2@100", "big:3 s:1@9999", "");
}

#[test]
fn nodes_that_come_back_are_not_asked_for_twice() {
    let mut world = World::drawn(manual(4), "e e e e", "e:1-1-8", "a:2");
    assert_eq!(describe(&world.follow_plan(&POLICY)), "e -4,3 for a");
    assert_eq!(describe(&world.plan(&POLICY)), "");
    let wait = |explanation: &corro_sched::WaitExplanation| match (explanation.wait, &explanation.unblock[..]) {
        (Some(Wait::NodesReturn { nodes, by }), [Unblock::NodesReturn { jobs, .. }]) => {
            format!("{nodes} by {} from {}", by.since(at(1_000_000)).as_secs(), name(jobs[0]))
        }
        other => format!("{other:?}"),
    };
    assert_eq!(world.explain_waits(&POLICY, &NoHistory, wait)["a"], "2 by 60 from e");
    let starts = |explanation: &corro_sched::WaitExplanation| explanation.estimate.expect("an estimate").start;
    assert_eq!(world.explain_waits(&POLICY, &NoHistory, starts)["a"], at(1_000_060));
    (0..10).for_each(|_| world.pass_second());
    assert_eq!(describe(&world.plan(&POLICY)), "a on 2");
}

#[test]
fn a_smaller_cluster_makes_elastic_jobs_smaller() {
    let smaller = |option, nodes: &str, running: &str, count: usize| {
        describe(&World::drawn(Target::Manual { count, option }, nodes, running, "").plan(&POLICY))
    };
    use DeallocationOption::*;
    for option in [Requeue, Terminate, WaitForJobCompletion] {
        assert_eq!(smaller(option, "e e e e", "e:2-2-8", 2), "e -4,3 resized", "{option:?}");
        // The nodes above a minimum go before those of other jobs.
        assert_eq!(smaller(option, "e e e r r", "e:2-2-8 r:2", 4), "e -3 resized", "{option:?}");
    }
    assert_eq!(smaller(Requeue, "e e e e", "e:2-2-8", 1), "e Requeue");
    assert_eq!(smaller(Terminate, "e e e e", "e:2-2-8", 1), "e Terminate");
    assert_eq!(smaller(WaitForJobCompletion, "e e e e", "e:2-2-8", 1), "");
}

#[test]
fn a_smaller_cluster_takes_the_same_nodes_until_they_are_free() {
    let mut world = World::drawn(manual(4), "e e e e", "e:1-2-8", "");
    world.target = manual(3);
    assert_eq!(describe(&world.follow_plan(&POLICY)), "e -4 resized");
    for _ in 0..10 {
        assert_eq!(describe(&world.follow_plan(&POLICY)), "");
        world.pass_second();
    }
    world.follow_plan(&POLICY);
    assert_eq!((world.nodes.len(), world.busy_nodes(&key("e"))), (3, 3));
}

#[test]
fn preempted_nodes_make_elastic_jobs_smaller() {
    let mut world = World::drawn(manual(3), "e e e", "e:2-2-8", "");
    world.nodes[0].preempted = true;
    assert_eq!(describe(&world.plan(&POLICY)), "e -1 preempted");
    world.nodes[1].preempted = true;
    let plan = world.plan(&POLICY);
    assert_eq!(plan.evict.get(&key("e")), Some(&Eviction::Preempt));
    assert!(plan.resize.is_empty());
}

#[test]
fn auto_scale_grows_to_the_number_asked_for() {
    let allocated = |nodes: &str, running: &str, queue: &str| {
        let plan = World::drawn(Target::Auto { min: 0, max: 6 }, nodes, running, queue).plan(&POLICY);
        plan.allocate.first().map_or(0, |(_, count)| *count)
    };
    assert_eq!(allocated("", "", "e:2-4-8"), 4);
    assert_eq!(allocated("", "", "e:2-8-8"), 6);
    assert_eq!(allocated("e e", "e:2-3-8", ""), 1);
    assert_eq!(allocated("e e e e", "e:2-3-8", ""), 0);
    assert_eq!(allocated("", "", "e:7-8-9"), 0);
}

#[derive(Clone, Debug)]
struct Submission {
    gap: u64,
    priority: Priority,
    needs: usize,
    elastic: Option<(usize, usize)>,
    takes: u64,
}

prop_compose! {
    fn submission(max_nodes: usize)(
        gap in 0u64..12,
        priority in prop_oneof![Just(Priority::Low), Just(Priority::Normal), Just(Priority::High)],
        needs in 1..=max_nodes, less in 0usize..4, more in 0usize..6, is_elastic: bool, takes in 1u64..60,
    ) -> Submission {
        let elastic = is_elastic.then(|| (needs.saturating_sub(less).max(1), needs + more));
        Submission { gap, priority, needs, elastic, takes }
    }
}

const SHORT: Policy =
    Policy { release_timeout: Duration::from_secs(10), settle_time: Duration::from_secs(2), ..POLICY };

/// Free nodes and those that elastic jobs could free, and the first job in the queue that the cluster can run.
fn first_waiting(world: &World, most: usize) -> (usize, Option<(String, usize)>) {
    let idle = world.nodes.iter().filter(|node| node.kind == Kind::Idle).count();
    let elastic = world.jobs.iter().filter(|job| job.started.is_some() && job.ended.is_none());
    let above = elastic.filter_map(|job| Some(job.nodes.len().saturating_sub(job.elastic?.0))).sum::<usize>();
    let view = world.view();
    let queue = corro_sched::order::in_order(&*view.jobs, at(world.now), &SHORT);
    let first = queue.filter(|job| job.node_count <= most).map(|job| (name(job.key).to_owned(), job.node_count)).next();
    (idle + above, first)
}

proptest! {
    /// Sizes stay between minimum and maximum, no job grows while another waits that could run, and the first job of
    /// the queue starts within the stated bound once enough nodes are idle or above the minima of elastic jobs.
    #[test]
    fn elastic_jobs_keep_no_job_waiting_for_longer_than_the_bound(
        nodes in 2usize..9,
        submissions in prop::collection::vec(submission(6), 1..14),
        release_takes in 0u64..20,
    ) {
        let mut world = World::new(manual(nodes));
        world.release_takes = release_takes;
        (0..nodes).for_each(|_| world.add_node(Kind::Idle, 0));
        let mut submissions = submissions.into_iter();
        let mut next = submissions.next().map(|job| (world.now + job.gap, job));
        // The first job of the queue, and the seconds for which enough nodes have been there for it.
        let mut waits: (Option<String>, u64) = (None, 0);
        loop {
            while let Some((when, job)) = next.clone().filter(|(when, _)| *when <= world.now) {
                world.submit(job.priority, job.needs, 60, job.takes);
                world.jobs.last_mut().expect("just submitted").elastic = job.elastic;
                next = submissions.next().map(|job| (when + job.gap, job));
            }
            let (_, first) = first_waiting(&world, nodes);
            let plan = world.follow_plan(&SHORT);
            let grows = plan.resize.iter().any(|resize| !resize.add.is_empty());
            let (available, left) = first_waiting(&world, nodes);
            prop_assert!(!grows || left.is_none(), "{first:?} waits while a job grows");
            for job in world.jobs.iter().filter(|job| job.started.is_some() && job.ended.is_none()) {
                let Some((min, max)) = job.elastic else { continue };
                let releasing = |id: &&corro_model::NodeId| world.nodes.iter().any(|node| node.id == **id && node.releasing.is_some());
                let kept = job.nodes.len() - job.nodes.iter().filter(releasing).count();
                prop_assert!((min..=max).contains(&kept), "{kept} nodes, not from {min} to {max}");
                prop_assert_eq!(job.nodes.len(), world.busy_nodes(&job.key));
            }
            // Nodes that another job has taken, by its priority or because it ends early enough, are asked back anew.
            let has_started = !plan.placements.is_empty();
            waits = match left {
                Some((job, needs)) if needs <= available && waits.0.as_ref() == Some(&job) && !has_started => {
                    (Some(job), waits.1 + 1)
                }
                Some((job, needs)) if needs <= available => (Some(job), 0),
                _ => (None, 0),
            };
            prop_assert!(waits.1 <= SHORT.release_timeout.as_secs(), "{:?} waited for {} s", waits.0, waits.1);
            let done = |job: &Job| job.ended.is_some() || job.elastic.map_or(job.needs, |(min, _)| min) > nodes;
            if next.is_none() && world.jobs.iter().all(done) {
                break;
            }
            world.pass_second();
            prop_assert!(world.now < 1_100_000, "nothing happens any more");
        }
    }
}
