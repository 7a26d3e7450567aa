//! Tables: which queued jobs start, in which order, and which are backfilled before the blocked head.

mod world;

use std::collections::BTreeMap;
use std::time::Duration;

use corro_model::JobKey;
use corro_sched::{Basis, Policy, RunTimes, Target, Unblock, Wait};
use world::*;

fn check(nodes: &str, running: &str, queue: &str, expected: &str) {
    let count = nodes.split_whitespace().count();
    let world = World::drawn(manual(count), nodes, running, queue);
    assert_eq!(world.starts(&POLICY), expected, "{nodes} | {running} | {queue}");
}

#[test]
fn a_gang_starts_whole_on_idle_nodes_in_order() {
    let plan = World::drawn(manual(4), ". . . .", "", "a:3").plan(&POLICY);
    assert_eq!(plan.placements[0].nodes, [node_id(1), node_id(2), node_id(3)]);
    check(". . x !", "", "a:3", "");
    check(". b b .", "b:2", "a:2", "a");
}

#[test]
fn nodes_of_one_machine_are_next_to_each_other() {
    let mut world = World::drawn(manual(6), ". . . . . .", "", "a:6");
    for (node, host) in world.nodes.iter_mut().zip(["b", "a", "", "b", "a", "b"]) {
        node.host = Some(host.to_owned()).filter(|host| !host.is_empty());
    }
    let plan = world.plan(&POLICY);
    assert_eq!(plan.placements[0].nodes, [1, 4, 6, 2, 5, 3].map(node_id));
}

#[test]
fn first_come_is_first_served_inside_a_priority() {
    check(". .", "", "a:1 b:1 c:1", "a b");
    check(". .", "", "_a:1 b:1 ^c:1", "c b");
    check(". . .", "", "_a:1 b:1 ^c:1", "c b a");
}

#[test]
fn a_job_that_can_never_fit_blocks_no_other() {
    check(". .", "", "big:8 small:2", "small");
    let world = World::drawn(Target::Auto { min: 0, max: 2 }, ". .", "", "big:3 small:2");
    assert_eq!(world.starts(&POLICY), "small");
}

/// `big` waits for the end of `r`, in 100 s at the latest.
#[test]
fn a_later_job_starts_first_only_if_that_delays_nobody() {
    // The job ends in time, to the second.
    check("r r . .", "r:2@100", "big:4@60 s:1@100", "s");
    check("r r . .", "r:2@100", "big:4@60 s:1@101", "");
    check("r r . .", "r:2@100", "big:4@60 s:1@100 t:1@100 u:1@1", "s t");
    // The job uses only surplus nodes.
    check("r r . .", "r:2@100", "big:3@60 s:1@9999", "s");
    check("r r . .", "r:2@100", "big:3@60 s:1@9999 t:1@9999", "s");
    check("r r . .", "r:2@100", "big:3@60 s:1@9999 t:1@50", "s t");
    // A job that does not fit is skipped, and a job of higher priority is not delayed either.
    check("r r . .", "r:2@100", "big:4 s:3@10 t:1@10", "t");
    check("r r . .", "r:2@100", "_s:1@9999 ^big:4", "");
}

#[test]
fn jobs_that_start_now_are_part_of_the_forecast() {
    // First a, which ends in 50 s; so big can start when r ends in 100 s, and s must end by then.
    check("r . . .", "r:1@100", "a:1@50 big:4 s:1@100 t:1@101", "a s");
    // Here a is the last to end.
    check("r . . .", "r:1@100", "a:1@500 big:4 s:1@500 t:1@501", "a s");
}

#[test]
fn nodes_that_come_are_kept_for_the_first_in_line() {
    check(". . + +", "", "big:4 s:1@10", "");
    check(". . + +", "", "big:3 s:1@10", "s");
    check(". . ! .", "", "big:4 s:1@10", "");
    // Idle nodes are not held back for a node that is overdue.
    let mut world = World::drawn(manual(4), ". . * *", "", "big:4 s:1@9999");
    world.nodes.iter_mut().for_each(|node| node.since = world.now - 299);
    assert_eq!(world.starts(&POLICY), "");
    world.now += 1;
    assert_eq!(world.starts(&POLICY), "s");
    check(". . x x", "", "big:4 s:1@9999", "s");
}

#[test]
fn nodes_that_leave_after_their_job_are_not_counted_on() {
    use corro_model::batchai::DeallocationOption::WaitForJobCompletion;
    let three = Target::Manual { count: 3, option: WaitForJobCompletion };
    // The node of b leaves when b ends in 10 s; big must wait for a.
    let world = World::drawn(three, ". a a b", "a:2@100 b:1@10", "big:3 s:1@100 t:1@101");
    assert_eq!(world.starts(&POLICY), "");
    let world = World::drawn(three, "a a b .", "a:2@100 b:1@10", "big:3");
    assert_eq!(world.plan(&POLICY).retire, [node_id(4)]);
}

#[test]
fn how_far_is_looked_for_a_later_job_is_bounded() {
    let world = World::drawn(manual(2), "r .", "r:1@100", "big:2 x:2 y:2 s:1@10");
    let looking = |backfill_depth| world.starts(&Policy { backfill_depth, ..POLICY });
    assert_eq!([looking(3), looking(2), looking(0)], ["s", "", ""]);
}

#[test]
fn a_job_that_has_waited_counts_as_a_higher_priority() {
    let hours = |h: u64| h * 3600;
    let first = |waited: [u64; 3]| {
        let mut world = World::drawn(manual(1), ".", "", "_a:1 b:1 ^c:1");
        for (job, waited) in world.jobs.iter_mut().zip(waited) {
            job.submitted = world.now - waited;
        }
        world.starts(&POLICY)
    };
    assert_eq!(first([0, 0, 0]), "c");
    assert_eq!(first([hours(6) - 1, 1, 0]), "c");
    assert_eq!(first([hours(6), hours(6) - 1, 0]), "c");
    assert_eq!(first([hours(7), hours(6), 0]), "b", "at the top the older one is first");
    assert_eq!(first([hours(12), hours(6), 0]), "a");
}

/// The default limit is days. Such a job is expected to take twice the longest run of its experiment.
#[test]
fn a_job_without_a_limit_is_backfilled_by_the_run_times_of_others() {
    let starts = |longest: Option<u64>, limit: u64| {
        let mut world = World::drawn(manual(3), "r r .", "r:2@100", "big:3 small:1");
        world.jobs[2].limit = limit;
        world.longest_run = longest;
        world.starts(&POLICY)
    };
    let default = 7 * 24 * 3600;
    assert_eq!(starts(None, default), "");
    assert_eq!(starts(Some(50), default), "small");
    assert_eq!(starts(Some(51), default), "");
    // An explicit limit is used unchanged.
    assert_eq!(starts(Some(50), 101), "");
    assert_eq!(starts(None, 100), "small");
}

/// Run times by job name, in seconds: usual run time of similar jobs, and remaining time of a running one.
struct Times {
    usual: BTreeMap<&'static str, u64>,
    remaining: BTreeMap<&'static str, u64>,
}

impl RunTimes for Times {
    fn typical_run_time(&self, job: &JobKey) -> Option<Duration> {
        self.usual.get(name(job)).copied().map(Duration::from_secs)
    }

    fn remaining(&self, job: &JobKey) -> Option<Duration> {
        self.remaining.get(name(job)).copied().map(Duration::from_secs)
    }
}

/// Wait reason and queue position of each queued job.
fn waits(nodes: &str, running: &str, queue: &str) -> BTreeMap<String, String> {
    let count = nodes.split_whitespace().count();
    World::drawn(manual(count), nodes, running, queue).explain_waits(&POLICY, &NoHistory, |explanation| {
        let wait = match explanation.wait {
            None => "starts".to_owned(),
            Some(Wait::ClusterTooSmall { most }) => format!("more than {most}"),
            Some(Wait::NodesBusy { idle }) => format!("{idle} idle"),
            Some(Wait::Behind { first }) => format!("behind {}", name(first)),
            Some(Wait::NodesReturn { nodes, .. }) => format!("{nodes} come back"),
            Some(Wait::WouldDelay { first, .. }) => format!("would delay {}", name(first)),
        };
        format!("{} {wait}", explanation.position)
    })
}

#[test]
fn every_queued_job_knows_why_it_waits_and_where_it_stands() {
    let got = waits("r r . . .", "r:2@100", "a:1 huge:9 big:5 s:1@100 t:1@9999 u:3");
    let expected = [
        ("a", "1 starts"),
        ("huge", "2 more than 5"),
        ("big", "2 2 idle"),
        ("s", "3 starts"),
        ("t", "4 would delay big"),
        ("u", "5 behind big"),
    ];
    assert_eq!(got, expected.map(|(job, wait)| (job.to_owned(), wait.to_owned())).into());
}

#[test]
fn every_queued_job_knows_what_would_unblock_it() {
    let unblock = |nodes: &str, running, queue, job: &str| {
        let count = nodes.split_whitespace().count();
        let world = World::drawn(manual(count), nodes, running, queue);
        let now = world.now as i64 * 1000;
        let describe = |way: &Unblock| match way {
            Unblock::NodesCome { nodes } => format!("{nodes} come"),
            Unblock::JobsEnd { nodes, jobs, more } => {
                let jobs: Vec<_> =
                    jobs.iter().map(|(job, by)| format!("{}@{}", name(job), (by.millis() - now) / 1000)).collect();
                format!("{nodes} from {} +{more}", jobs.join(" "))
            }
            Unblock::FirstStarts { first, by } => {
                format!("{} starts@{}", name(first), by.map_or(-1, |by| (by.millis() - now) / 1000))
            }
            Unblock::ShorterLimit { at_most } => format!("limit {}", at_most.as_secs()),
            Unblock::NodesMended { nodes } => format!("mend {nodes}"),
            Unblock::CoresFree { nodes } => format!("cores {nodes}"),
            Unblock::Resize { to } => format!("resize {to}"),
            Unblock::NodesReturn { nodes, .. } => format!("{nodes} come back"),
            Unblock::RaiseMaximum { to } => format!("maximum {to}"),
        };
        let explanations = world.explain_waits(&POLICY, &NoHistory, |explanation| {
            explanation.unblock.iter().map(describe).collect::<Vec<_>>()
        });
        explanations[job].join(", ")
    };
    assert_eq!(unblock("a a b .", "a:2@50 b:1@90", "j:2", "j"), "1 from a@50 +0, resize 5");
    assert_eq!(unblock("a a b .", "a:2@50 b:1@90", "j:4", "j"), "3 from a@50 b@90 +0, resize 7");
    assert_eq!(unblock("a b c d", "a:1@1 b:1@2 c:1@3 d:1@4", "j:4", "j"), "4 from a@1 b@2 c@3 +1, resize 8");
    assert_eq!(unblock("a + .", "a:1@50", "j:3", "j"), "1 come, 1 from a@50 +0, resize 4");
    assert_eq!(unblock(". . x", "", "j:3", "j"), "mend 1, resize 4");
    assert_eq!(unblock(". .", "", "j:5", "j"), "resize 5");
    assert_eq!(unblock("a a .", "a:2@50", "j:3 k:1", "k"), "j starts@50, limit 50, resize 6");
    assert_eq!(unblock("a a .", "a:2@50", "j:3 k:2", "k"), "j starts@50, resize 7");
}

#[test]
fn estimates_come_from_history_where_there_is_some_and_say_so() {
    type Seconds<'a> = &'a [(&'static str, u64)];
    let estimates_with = |running, queue, usual: Seconds, remaining: Seconds, ran: u64| {
        let mut world = World::drawn(manual(2), "r r", running, queue);
        world.jobs[0].started = Some(world.now - ran);
        let now = world.now as i64 * 1000;
        let times = Times { usual: usual.iter().copied().collect(), remaining: remaining.iter().copied().collect() };
        let explanations = world.explain_waits(&POLICY, &times, |explanation| {
            explanation.estimate.map(|estimate| ((estimate.start.millis() - now) / 1000, estimate.basis))
        });
        explanations.into_values().collect::<Vec<_>>()
    };
    let estimates = |running, queue, usual: Seconds, ran| estimates_with(running, queue, usual, &[], ran);
    let some = |estimates: &[(i64, Basis)]| estimates.iter().copied().map(Some).collect::<Vec<_>>();
    use Basis::*;
    assert_eq!(estimates("r:2@100", "a:2@60 b:1@5", &[], 0), some(&[(100, Limits), (160, Limits)]));
    assert_eq!(estimates("r:2@100", "a:2@60 b:1@5", &[("r", 30), ("a", 7)], 10), some(&[(20, History), (27, History)]));
    assert_eq!(estimates("r:2@100", "a:2@60 b:1@5", &[("r", 30)], 10), some(&[(20, History), (80, HistoryAndLimits)]));
    // The job takes longer than usual: only its limit is known, and that estimate does not move with the clock.
    assert_eq!(estimates("r:2@100", "a:2@60", &[("r", 30)], 29), some(&[(1, History)]));
    assert_eq!(estimates("r:2@100", "a:2@60", &[("r", 30)], 30), some(&[(70, Limits)]));
    assert_eq!(estimates("r:2@100", "a:2@60", &[("r", 30)], 80), some(&[(20, Limits)]));
    assert_eq!(estimates("r:2@100", "a:9@60", &[], 0), [None]);
    // The running job's own estimate takes precedence over similar jobs, and is capped by its limit.
    assert_eq!(estimates_with("r:2@100", "a:2@60", &[], &[("r", 55)], 10), some(&[(55, History)]));
    assert_eq!(estimates_with("r:2@100", "a:2@60", &[("r", 30)], &[("r", 55)], 10), some(&[(55, History)]));
    assert_eq!(estimates_with("r:2@100", "a:2@60", &[("r", 30)], &[("r", 5)], 80), some(&[(5, History)]));
    assert_eq!(estimates_with("r:2@100", "a:2@60", &[], &[("r", 500)], 10), some(&[(90, History)]));
}
