//! Stall reports: missing ranks, timing and frequency.

use std::time::Duration;

use super::simulated_job::{End, SimulatedJob, config, request};
use crate::coordinator::*;

/// Beginning of Horovod's stall warning.
const STALL_WARNING: &str = "One or more tensors were submitted to be reduced, gathered or broadcasted by subset of ranks and are \
    waiting for remainder of ranks for more than 10 seconds. ";

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn missing_lines(report: &StallReport) -> Vec<&str> {
    assert!(report.text.starts_with(STALL_WARNING), "{}", report.text);
    let (_, lines) = report.text.split_once("\nMissing ranks:\n").expect("the list is announced");
    lines.lines().collect()
}

#[test]
fn missing_ranks_are_named_with_their_hosts_once_per_interval() {
    let mut job = SimulatedJob::new(3);
    job.submit(0, request("x"));
    job.submit(1, request("x"));
    job.submit(1, request("y"));
    job.run();
    assert_eq!(job.coordinator.check_stalls(secs(9)), None);
    assert_eq!(job.coordinator.check_stalls(secs(10)), None, "not longer than the limit");
    let report = job.coordinator.check_stalls(secs(21)).expect("two are stuck");
    assert_eq!(missing_lines(&report), ["0: [y] on host-0", "2: [x, y] on host-2"]);
    assert!(!report.shuts_down);
    assert_eq!(job.coordinator.check_stalls(secs(30)), None, "reported a moment ago");
    assert!(job.coordinator.check_stalls(secs(31)).is_some());
    job.submit(2, request("x"));
    job.submit_on([0, 2], request("y"));
    job.run();
    assert_eq!(job.coordinator.check_stalls(secs(99)), None);
}

#[test]
fn cached_tensors_groups_barriers_joins_and_sets_are_inspected_too() {
    let mut job = SimulatedJob::new(2);
    job.submit_on([0, 1], request("known"));
    job.run();
    job.submit(0, request("known"));
    job.submit_group(0, vec![request("a"), request("b")]);
    job.submit(1, request("a"));
    job.workers[0].barrier(SetId::GLOBAL, job.now).expect("a member");
    job.workers[0].add_set(vec![0], job.now).expect("allowed");
    job.run();
    let report = job.coordinator.check_stalls(secs(11)).expect("all of them");
    assert_eq!(missing_lines(&report), ["1: [known, b, barrier.noname, add_process_set [0]] on host-1"]);

    let mut job = SimulatedJob::new(2);
    job.workers[1].join(SetId::GLOBAL, job.now).expect("a member");
    job.run();
    job.now = secs(8);
    job.submit(0, request("x"));
    job.run();
    assert_eq!(job.coordinator.check_stalls(secs(12)), None, "rank 0 gets on");
    let report = job.coordinator.check_stalls(secs(22)).expect("rank 0 neither joins nor gets on");
    assert_eq!(missing_lines(&report), ["0: [join.noname] on host-0"]);
}

#[test]
fn at_most_six_names_are_printed_per_rank() {
    let mut job = SimulatedJob::new(2);
    for n in 0..8 {
        job.submit(0, request(&format!("t{n}")));
    }
    job.run();
    let report = job.coordinator.check_stalls(secs(11)).expect("stuck");
    assert_eq!(missing_lines(&report), ["1: [t0, t1, t2, t3, t4, t5 ...] on host-1"]);
    assert_eq!(report.missing[&1].names.len(), 8);
}

#[test]
fn the_shutdown_time_shuts_the_job_down() {
    let stall = StallLimits { warn_after: secs(10), shut_down_after: Some(secs(30)) };
    assert_eq!(stall.warning(), None);
    let mut job = SimulatedJob::with(Config { stall: Some(stall), ..config(2) });
    let request_id = job.submit(0, request("x"));
    job.run();
    assert!(!job.coordinator.check_stalls(secs(20)).expect("stuck").shuts_down);
    let report = job.coordinator.check_stalls(secs(31)).expect("stuck");
    assert!(report.shuts_down);
    assert_eq!(missing_lines(&report), ["1!: [x] on host-1"]);
    job.run();
    assert_eq!(job.end(0, request_id), Some(&End::Failed(SHUTDOWN_MESSAGE.into())));
    assert!(matches!(job.done[1].last(), Some(Action::ShutDown { reason: ShutdownReason::Stalled, .. })));
}

#[test]
fn a_shutdown_time_below_the_check_time_causes_a_warning_and_is_ignored() {
    let stall = StallLimits { warn_after: secs(10), shut_down_after: Some(secs(5)) };
    let warning = stall.warning().expect("it makes no sense");
    assert!(
        warning.contains("HOROVOD_STALL_SHUTDOWN_TIME_SECONDS") && warning.contains("stalled operations will not shut"),
        "{warning}"
    );
    let mut job = SimulatedJob::with(Config { stall: Some(stall), ..config(2) });
    job.submit(0, request("x"));
    job.run();
    assert!(!job.coordinator.check_stalls(secs(100)).expect("stuck").shuts_down);
}

#[test]
fn a_disabled_inspection_reports_nothing() {
    let mut job = SimulatedJob::with(Config { stall: None, ..config(2) });
    job.submit(0, request("x"));
    job.run();
    assert_eq!(job.coordinator.check_stalls(secs(1000)), None);
}
