//! Who is named when others wait, when, and how often.

use std::time::Duration;

use super::world::{End, World, config, request};
use crate::coordinator::*;

const SENTENCE: &str = "One or more tensors were submitted to be reduced, gathered or broadcasted by subset of ranks and are \
    waiting for remainder of ranks for more than 10 seconds. ";

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn missing_lines(report: &StallReport) -> Vec<&str> {
    assert!(report.text.starts_with(SENTENCE), "{}", report.text);
    let (_, lines) = report.text.split_once("\nMissing ranks:\n").expect("the list is announced");
    lines.lines().collect()
}

#[test]
fn missing_ranks_are_named_with_their_hosts_once_per_interval() {
    let mut world = World::new(3);
    world.submit(0, request("x"));
    world.submit(1, request("x"));
    world.submit(1, request("y"));
    world.run();
    assert_eq!(world.coordinator.stalled(secs(9)), None);
    assert_eq!(world.coordinator.stalled(secs(10)), None, "not longer than the limit");
    let report = world.coordinator.stalled(secs(21)).expect("two are stuck");
    assert_eq!(missing_lines(&report), ["0: [y] on host-0", "2: [x, y] on host-2"]);
    assert!(!report.shuts_down);
    assert_eq!(world.coordinator.stalled(secs(30)), None, "told a moment ago");
    assert!(world.coordinator.stalled(secs(31)).is_some());
    world.submit(2, request("x"));
    world.submit_on([0, 2], request("y"));
    world.run();
    assert_eq!(world.coordinator.stalled(secs(99)), None);
}

#[test]
fn remembered_names_groups_barriers_joins_and_sets_are_seen_too() {
    let mut world = World::new(2);
    world.submit_on([0, 1], request("known"));
    world.run();
    world.submit(0, request("known"));
    world.submit_group(0, vec![request("a"), request("b")]);
    world.submit(1, request("a"));
    world.members[0].barrier(SetId::GLOBAL, world.now).expect("a member");
    world.members[0].add_set(vec![0], world.now).expect("allowed");
    world.run();
    let report = world.coordinator.stalled(secs(11)).expect("all of them");
    assert_eq!(missing_lines(&report), ["1: [known, b, barrier.noname, add_process_set [0]] on host-1"]);

    let mut world = World::new(2);
    world.members[1].join(SetId::GLOBAL, world.now).expect("a member");
    world.run();
    world.now = secs(8);
    world.submit(0, request("x"));
    world.run();
    assert_eq!(world.coordinator.stalled(secs(12)), None, "rank 0 gets on");
    let report = world.coordinator.stalled(secs(22)).expect("rank 0 neither joins nor gets on");
    assert_eq!(missing_lines(&report), ["0: [join.noname] on host-0"]);
}

#[test]
fn at_most_six_names_are_told_of_a_rank() {
    let mut world = World::new(2);
    for n in 0..8 {
        world.submit(0, request(&format!("t{n}")));
    }
    world.run();
    let report = world.coordinator.stalled(secs(11)).expect("stuck");
    assert_eq!(missing_lines(&report), ["1: [t0, t1, t2, t3, t4, t5 ...] on host-1"]);
    assert_eq!(report.missing[&1].names.len(), 8);
}

#[test]
fn the_shutdown_time_ends_the_job() {
    let stall = StallLimits { warn_after: secs(10), shut_down_after: Some(secs(30)) };
    assert_eq!(stall.warning(), None);
    let mut world = World::with(Config { stall: Some(stall), ..config(2) });
    let token = world.submit(0, request("x"));
    world.run();
    assert!(!world.coordinator.stalled(secs(20)).expect("stuck").shuts_down);
    let report = world.coordinator.stalled(secs(31)).expect("stuck");
    assert!(report.shuts_down);
    assert_eq!(missing_lines(&report), ["1!: [x] on host-1"]);
    world.run();
    assert_eq!(world.end(0, token), Some(&End::Failed(SHUT_DOWN.into())));
    assert!(matches!(world.done[1].last(), Some(Action::ShutDown { reason: ShutdownReason::Stalled, .. })));
}

#[test]
fn a_shutdown_time_below_the_warning_time_is_warned_of_and_ignored() {
    let stall = StallLimits { warn_after: secs(10), shut_down_after: Some(secs(5)) };
    let warning = stall.warning().expect("it makes no sense");
    assert!(warning.contains("HOROVOD_STALL_SHUTDOWN_TIME_SECONDS") && warning.contains("will not shut"), "{warning}");
    let mut world = World::with(Config { stall: Some(stall), ..config(2) });
    world.submit(0, request("x"));
    world.run();
    assert!(!world.coordinator.stalled(secs(100)).expect("stuck").shuts_down);
}

#[test]
fn nobody_wants_to_know() {
    let mut world = World::with(Config { stall: None, ..config(2) });
    world.submit(0, request("x"));
    world.run();
    assert_eq!(world.coordinator.stalled(secs(1000)), None);
}
