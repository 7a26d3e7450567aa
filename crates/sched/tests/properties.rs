//! Properties that hold for every cluster, queue and stream of jobs.

mod world;

use std::collections::BTreeSet;
use std::time::Duration;

use corro_model::batchai::{DeallocationOption, Priority};
use corro_sched::{Policy, Target, backfill, scale};
use proptest::prelude::*;
use world::*;

const NO_BACKFILL: Policy = Policy { backfill_depth: 0, ..POLICY };

#[derive(Clone, Debug)]
struct Submission {
    /// Seconds after the previous submission.
    gap: u64,
    priority: Priority,
    needs: usize,
    limit: u64,
    takes: u64,
}

fn priority() -> impl Strategy<Value = Priority> {
    prop_oneof![Just(Priority::Low), Just(Priority::Normal), Just(Priority::High)]
}

prop_compose! {
    fn submission(max_nodes: usize)(
        gap in 0u64..6, priority in priority(), needs in 1..=max_nodes, limit in 1u64..40, takes in 1u64..40,
    ) -> Submission {
        Submission { gap, priority, needs, limit, takes }
    }
}

fn target() -> impl Strategy<Value = Target> {
    let option = prop_oneof![
        Just(DeallocationOption::Requeue),
        Just(DeallocationOption::Terminate),
        Just(DeallocationOption::WaitForJobCompletion)
    ];
    prop_oneof![
        (0usize..16, option).prop_map(|(count, option)| Target::Manual { count, option }),
        (0usize..8, 0usize..8).prop_map(|(min, more)| Target::Auto { min, max: min + more }),
    ]
}

prop_compose! {
    /// Nodes in every availability state, since any time, and jobs that run and wait.
    fn any_world()(
        target in target(),
        nodes in prop::collection::vec((0u8..9, 0u64..900), 0..16),
        ran in prop::collection::vec((0u64..50, 1u64..60), 3),
        submissions in prop::collection::vec(submission(8), 0..16),
        waited in 0u64..60_000,
        initial in 0usize..4,
    ) -> World {
        let mut world = World::new(target);
        world.initial = initial;
        let now = world.now;
        for (kind, stood) in nodes {
            let kind = match kind {
                0 => Kind::Allocating,
                1 => Kind::Preparing,
                2..=4 => Kind::Idle,
                5 => Kind::Leaving,
                6 => Kind::Unusable,
                7 => Kind::Lost,
                _ => Kind::Busy(key(&format!("r{}", stood % 3))),
            };
            world.add_node(kind, now - stood);
        }
        for (i, (ago, limit)) in ran.into_iter().enumerate() {
            let running = key(&format!("r{i}"));
            let needs = world.busy_nodes(&running);
            if needs > 0 {
                world.submit(Priority::Normal, needs, limit, limit);
                let job = world.jobs.last_mut().expect("just submitted");
                (job.key, job.started) = (running, Some(now - ago));
            }
        }
        world.now -= waited;
        for job in submissions {
            world.now = (world.now + job.gap * 1_000).min(now);
            world.submit(job.priority, job.needs, job.limit, job.takes);
        }
        world.now = now;
        world
    }
}

fn live(world: &World) -> usize {
    world.nodes.iter().filter(|node| !matches!(node.kind, Kind::Leaving | Kind::Lost)).count()
}

/// Cluster of idle nodes in which every job can start.
fn idle(nodes: usize) -> World {
    let mut world = World::new(manual(nodes));
    (0..nodes).for_each(|_| world.add_node(Kind::Idle, 0));
    world
}

/// Blocked head of the queue and its reservation.
fn first_blocked(world: &World, policy: &Policy) -> Option<(corro_model::JobKey, Option<u64>)> {
    let view = world.view();
    let scaling = scale::plan_scale(&view, at(world.now), policy);
    let mut backfill = backfill::BackfillState::new(&view, &scaling, at(world.now), policy);
    for job in corro_sched::order::in_order(&*view.jobs, at(world.now), policy) {
        backfill.consider(&job);
    }
    let first = backfill.blocked_head()?;
    Some((first.job.clone(), first.reservation.map(|reservation| reservation.at.seconds() as u64)))
}

/// Submits the jobs and advances time until `done`; returns the resulting world.
fn run(mut world: World, submissions: &[Submission], policy: &Policy, done: impl Fn(&World) -> bool) -> World {
    let mut submissions = submissions.iter();
    let mut next = submissions.next().map(|job| (world.now + job.gap, job));
    while !done(&world) {
        while let Some((when, job)) = next.filter(|(when, _)| *when <= world.now) {
            world.submit(job.priority, job.needs, job.limit, job.takes);
            next = submissions.next().map(|job| (when + job.gap, job));
        }
        world.follow_plan(policy);
        world.pass_second();
        assert!(world.now < 1_000_000 + 100_000, "nothing happens any more");
    }
    world
}

fn start_of(world: &World, job: &corro_model::JobKey) -> u64 {
    world.job(job).started.expect("it has started")
}

proptest! {
    /// No node is assigned twice, gangs are whole, only idle nodes that stay are used, busy nodes never retire, the
    /// cluster's bounds hold, and autoScale evicts no job.
    #[test]
    fn plans_are_sound(world in any_world()) {
        let plan = world.plan(&POLICY);
        let kind = |id: &corro_model::NodeId| &world.nodes.iter().find(|node| node.id == *id).expect("a node").kind;
        let mut used = BTreeSet::new();
        for placement in &plan.placements {
            let job = world.job(&placement.job);
            prop_assert!(job.started.is_none());
            prop_assert_eq!(placement.nodes.len(), job.needs, "a gang is whole");
            for id in &placement.nodes {
                prop_assert!(used.insert(id.clone()), "a node in two jobs");
                prop_assert_eq!(kind(id), &Kind::Idle);
                prop_assert!(!plan.retire.contains(id), "a node that leaves takes no job");
            }
        }
        prop_assert!(plan.retire.iter().all(|id| !matches!(kind(id), Kind::Busy(_))));
        let allocated = plan.allocate.iter().map(|(_, count)| count).sum::<usize>();
        let leaving = plan.retire.iter().filter(|id| *kind(id) != Kind::Lost).count();
        let after = live(&world) + allocated - leaving;
        let (least, most) = match world.target {
            Target::Manual { count, .. } => (count, count),
            Target::Auto { min, max } => (min, max),
            Target::Deleting => (0, 0),
        };
        prop_assert!(after >= least, "{after} nodes are fewer than {least}");
        let busy = world.nodes.iter().filter(|node| matches!(node.kind, Kind::Busy(_))).count();
        prop_assert!(after <= most.max(busy), "{after} nodes are more than {most}");
        prop_assert!(allocated == 0 || after <= most, "never more than the maximum is asked for");
        let takes = !matches!(world.target, Target::Auto { .. } | Target::Manual { option: DeallocationOption::WaitForJobCompletion, .. });
        prop_assert!(takes || plan.evict.is_empty());
    }

    /// Jobs start in order up to the blocked head; without backfill nothing behind it starts.
    #[test]
    fn jobs_start_in_order(world in any_world()) {
        let started: Vec<_> = world.plan(&NO_BACKFILL).placements.into_iter().map(|placement| placement.job).collect();
        let most = match world.target { Target::Manual { count, .. } => count, Target::Auto { max, .. } => max, Target::Deleting => 0 };
        let mut queue: Vec<_> = world.jobs.iter().enumerate()
            .filter(|(_, job)| job.started.is_none() && job.needs <= most)
            .map(|(sequence, job)| {
                let rises = (world.now - job.submitted) / 21_600;
                (std::cmp::Reverse((job.priority as u64 + rises).min(2)), sequence, job.key.clone())
            })
            .collect();
        queue.sort();
        let front: Vec<_> = queue.into_iter().map(|(_, _, key)| key).take(started.len()).collect();
        prop_assert_eq!(&started, &front);
        // Backfilled jobs are additional and change nothing for the others.
        let with_backfill: Vec<_> = world.plan(&POLICY).placements.into_iter().map(|placement| placement.job).collect();
        prop_assert_eq!(&with_backfill[..started.len()], &started[..]);
    }

    /// Explanations agree with the plan: exactly the jobs that it does not start have a wait reason.
    #[test]
    fn each_job_that_does_not_start_has_a_wait_reason(world in any_world()) {
        let plan = world.plan(&POLICY);
        let starting: BTreeSet<_> = plan.placements.iter().map(|placement| name(&placement.job).to_owned()).collect();
        let waits = world.explain_waits(&POLICY, &NoHistory, |explanation| explanation.wait.is_some());
        for job in world.jobs.iter().filter(|job| job.started.is_none()) {
            let waits = waits.get(name(&job.key)).copied();
            prop_assert_eq!(waits, Some(!starting.contains(name(&job.key))), "{}", name(&job.key));
        }
    }

    /// If every job runs to its limit, the blocked head starts no later than without backfill, whatever is behind it.
    #[test]
    fn backfill_never_delays_the_first_blocked_gang(
        nodes in 2usize..8,
        before in prop::collection::vec(submission(7), 1..10),
        after in prop::collection::vec(submission(7), 0..30),
    ) {
        let to_limit = |submissions: Vec<Submission>| -> Vec<Submission> {
            // One priority, so that later submissions are behind earlier ones.
            submissions.into_iter().map(|job| Submission { takes: job.limit, priority: Priority::Normal, ..job }).collect()
        };
        let (before, after) = (to_limit(before), to_limit(after));
        let mut world = idle(nodes);
        for job in &before {
            world.submit(job.priority, job.needs, job.limit, job.takes);
            for _ in 0..job.gap {
                world.follow_plan(&POLICY);
                world.pass_second();
            }
        }
        let Some((first, reserved)) = first_blocked(&world, &POLICY) else { return Ok(()) };
        let started = |world: &World| world.job(&first).started.is_some();
        let with = start_of(&run(world.clone(), &after, &POLICY, started), &first);
        let without = start_of(&run(world.clone(), &after, &NO_BACKFILL, started), &first);
        prop_assert!(with <= without, "{with} with backfill, {without} without");
        prop_assert_eq!(Some(with), reserved, "and exactly when it was to start");
    }

    /// Jobs that end early never delay the blocked head beyond its first reservation.
    #[test]
    fn a_reservation_is_kept(
        nodes in 2usize..8,
        before in prop::collection::vec(submission(7), 1..10),
        after in prop::collection::vec(submission(7), 0..30),
    ) {
        let same = |submissions: Vec<Submission>| -> Vec<Submission> {
            submissions.into_iter().map(|job| Submission { priority: Priority::Normal, ..job }).collect()
        };
        let (before, after) = (same(before), same(after));
        let mut world = idle(nodes);
        for job in &before {
            world.submit(job.priority, job.needs, job.limit, job.takes);
        }
        world.follow_plan(&POLICY);
        let Some((first, Some(reserved))) = first_blocked(&world, &POLICY) else { return Ok(()) };
        let ended = run(world, &after, &POLICY, |world| world.job(&first).started.is_some());
        let started = start_of(&ended, &first);
        prop_assert!(started <= reserved, "started at {started}, reserved for {reserved}");
    }

    /// No starvation: a job starts at the latest two priority rises after its submission, plus one longest limit for
    /// itself and for each job submitted before it, whatever comes later.
    #[test]
    fn the_wait_of_every_job_is_bounded(
        nodes in 1usize..6,
        before in prop::collection::vec(submission(5), 0..4),
        needs in 1usize..6,
        stream in prop::collection::vec(submission(5), 1..12),
    ) {
        let policy = Policy { rise_after: Duration::from_secs(100), ..POLICY };
        let mut world = idle(nodes);
        for job in &before {
            world.submit(job.priority, job.needs.min(nodes), job.limit, job.takes);
        }
        let victim = world.submit(Priority::Low, needs.min(nodes), 10, 10);
        let longest = 40;
        let bound = world.now + 2 * 100 + (before.len() as u64 + 1) * longest;
        // More work of higher priority than the cluster can ever do.
        let flood: Vec<Submission> = stream
            .iter()
            .cycle()
            .take(2_000)
            .map(|job| Submission { gap: job.gap % 2, priority: job.priority.max(Priority::Normal), needs: job.needs.min(nodes), ..*job })
            .collect();
        let ended = run(world, &flood, &policy, |world| world.job(&victim).started.is_some() || world.now > bound);
        let started = ended.job(&victim).started;
        prop_assert!(started.is_some_and(|started| started <= bound), "started {started:?}, bound {bound}");
    }

    /// Without backfill, and with jobs that use their whole limits, the estimates are exact.
    #[test]
    fn estimates_come_true_when_everything_goes_as_known(
        nodes in 1usize..8,
        submissions in prop::collection::vec(submission(9), 1..12),
    ) {
        let mut world = idle(nodes);
        for job in &submissions {
            world.submit(Priority::Normal, job.needs, job.limit, job.limit);
        }
        let estimates = world.explain_waits(&NO_BACKFILL, &NoHistory, |explanation| explanation.estimate.map(|e| e.start.seconds() as u64));
        let fits = |world: &World| world.jobs.iter().all(|job| job.started.is_some() || job.needs > nodes);
        let ended = run(world, &[], &NO_BACKFILL, fits);
        for job in &ended.jobs {
            prop_assert_eq!(estimates[name(&job.key)], job.started, "{}", name(&job.key));
        }
    }
}
