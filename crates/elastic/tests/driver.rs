//! Histories of elastic trainings, written as events and the actions that the driver must answer with.

use std::time::Duration;

use corro_elastic::{Action, Change, Driver, Host, OnFailure, Outcome, Settings};

/// A driver with a clock, and what it answered as short texts.
struct Training {
    driver: Driver,
    now: Duration,
}

impl Training {
    fn new(settings: Settings) -> Training {
        Training { driver: Driver::new(settings, 1), now: Duration::ZERO }
    }

    fn hosts(&mut self, hosts: &[(&str, usize)]) -> Vec<String> {
        let hosts: Vec<Host> = hosts.iter().map(|(name, slots)| Host { name: (*name).into(), slots: *slots }).collect();
        texts(self.driver.on_hosts(self.now, &hosts))
    }

    fn waits(&mut self, processes: &[u64], after: u64) -> Vec<String> {
        processes.iter().flat_map(|process| texts(self.driver.on_waiting(self.now, *process, after))).collect()
    }

    fn fails(&mut self, process: u64) -> Vec<String> {
        texts(self.driver.on_exit(self.now, process, false))
    }

    fn succeeds(&mut self, process: u64) -> Vec<String> {
        texts(self.driver.on_exit(self.now, process, true))
    }

    /// Lets the next timer expire.
    fn timer(&mut self) -> Vec<String> {
        self.now = self.driver.next_timer().expect("a timer");
        texts(self.driver.on_time(self.now))
    }

    fn after(&mut self, seconds: u64) -> Vec<String> {
        self.now += Duration::from_secs(seconds);
        texts(self.driver.on_time(self.now))
    }
}

fn texts(actions: Vec<Action>) -> Vec<String> {
    let text = |action| match action {
        Action::Start { process, host, slot } => format!("start {process} {host}:{slot}"),
        Action::Begin { generation, members } => {
            let members: Vec<String> = members.iter().map(|member| member.process.to_string()).collect();
            format!("begin {generation}: {}", members.join(" "))
        }
        Action::Dismiss { process } => format!("dismiss {process}"),
        Action::Kill { process } => format!("kill {process}"),
        Action::Notify { generation, change } => match change {
            Change::Removed => format!("notify {generation} removed"),
            Change::Added => format!("notify {generation} added"),
            Change::Both => format!("notify {generation} both"),
        },
        Action::Report { text } => format!("# {text}"),
        Action::Finish(Outcome::Succeeded) => "succeeded".into(),
        Action::Finish(Outcome::Failed { reason }) => format!("failed: {reason}"),
    };
    actions.into_iter().map(text).collect()
}

fn settings(min: usize, max: usize, on_failure: OnFailure) -> Settings {
    Settings {
        min,
        max: Some(max),
        elastic_timeout: Duration::from_secs(600),
        reset_limit: None,
        cooldown: None,
        on_failure,
    }
}

/// A training whose first generation has begun with all slots of `hosts`.
fn begun(settings: Settings, hosts: &[(&str, usize)]) -> Training {
    let mut training = Training::new(settings);
    let n_started = training.hosts(hosts).len() as u64;
    let processes: Vec<u64> = (1..=n_started).collect();
    let answer = training.waits(&processes, 0);
    assert!(answer.last().is_some_and(|last| last.starts_with("begin 1: 1")), "{answer:?}");
    training
}

fn check(answer: Vec<String>, expected: &[&str]) {
    assert_eq!(answer, expected);
}

#[test]
fn a_rank_that_dies_is_replaced_without_stopping_the_others() {
    let mut training = Training::new(settings(2, 4, OnFailure::RestartOnHost));
    check(training.hosts(&[("a", 4)]), &["start 1 a:0", "start 2 a:1", "start 3 a:2", "start 4 a:3"]);
    check(training.waits(&[2, 3, 4], 0), &[]);
    check(training.waits(&[1], 0), &["# generation 1: 4 processes", "begin 1: 1 2 3 4"]);
    check(training.fails(1), &["start 5 a:0"]);
    check(training.waits(&[3, 2], 1), &[]);
    let left = "# generation 2: 3 processes instead of 4; process 1 (rank 0) left: it failed";
    check(training.waits(&[4], 1), &[left, "begin 2: 2 3 4"]);
    // The new process joins when it has imported its framework.
    check(training.waits(&[5], 0), &["notify 2 added"]);
    let joined = "# generation 3: 4 processes instead of 3; restarted process 5 joined on a as rank 3";
    check(training.waits(&[2, 3, 4], 2), &[joined, "begin 3: 2 3 4 5"]);
    check(training.succeeds(2), &[]);
    check(training.waits(&[5], 3), &["dismiss 5"]);
    check(training.succeeds(5), &[]);
    check(training.succeeds(3), &[]);
    check(training.succeeds(4), &["succeeded"]);
}

#[test]
fn hosts_come_and_go() {
    let mut training = begun(settings(1, 4, OnFailure::ExcludeHost), &[("a", 2)]);
    // More slots than the maximum are not used.
    check(training.hosts(&[("b", 3), ("a", 2)]), &["start 3 b:0", "start 4 b:1"]);
    check(training.waits(&[3], 0), &[]);
    check(training.waits(&[4], 0), &["notify 1 added"]);
    let joined = "# generation 2: 4 processes instead of 2; new process 3 joined on b as rank 2; new process 4 joined on b as rank 3";
    check(training.waits(&[1, 2], 1), &[joined, "begin 2: 1 2 3 4"]);
    check(training.hosts(&[("b", 1)]), &["notify 2 removed"]);
    let left = "# generation 3: 1 process instead of 4; process 1 (rank 0) left: its host is not listed any more; process 2 (rank 1) left: its host is not listed any more; process 4 (rank 3) left: its host is not listed any more";
    check(training.waits(&[1, 2, 3, 4], 2), &["dismiss 1", "dismiss 2", "dismiss 4", left, "begin 3: 3"]);
    check(training.succeeds(1), &[]);
    // Who does not leave is killed.
    check(training.timer(), &["kill 2", "kill 4"]);
    check(training.fails(2), &[]);
    check(training.fails(4), &[]);
    check(training.succeeds(3), &["succeeded"]);
}

#[test]
fn a_host_that_comes_back_before_the_next_generation_is_kept() {
    let mut training = begun(settings(1, 4, OnFailure::ExcludeHost), &[("a", 1), ("b", 1)]);
    check(training.hosts(&[("a", 1)]), &["notify 1 removed"]);
    check(training.hosts(&[("a", 1), ("b", 1)]), &[]);
    check(training.waits(&[2], 1), &[]);
    let same = "# generation 2: 2 processes as before; hosts changed and changed back";
    check(training.waits(&[1], 1), &[same, "begin 2: 1 2"]);
    // A discovery script that lists nothing for a moment ends nobody.
    check(training.hosts(&[]), &["notify 2 removed"]);
    check(training.waits(&[1, 2], 2), &[]);
    check(training.hosts(&[("b", 1), ("a", 1)]), &[same.replace("2:", "3:").as_str(), "begin 3: 1 2"]);
}

#[test]
fn a_host_with_a_failure_is_excluded_and_returns_after_its_cooldown() {
    let cooldown = Some((Duration::from_secs(10), Duration::from_secs(100)));
    let mut training = begun(Settings { cooldown, ..settings(1, 3, OnFailure::ExcludeHost) }, &[("a", 1), ("b", 2)]);
    let answer = training.fails(2);
    assert!(answer[0].starts_with("# host b is excluded for 1"), "{answer:?}");
    check(answer[1..].to_vec(), &["kill 3"]);
    let left = "# generation 2: 1 process instead of 3; process 2 (rank 1) left: it failed; process 3 (rank 2) left: its host was excluded";
    check(training.waits(&[1], 1), &[left, "begin 2: 1"]);
    // Its slot is free once the killed process has ended.
    let again = "# host b may be used again: its exclusion is over";
    check(training.timer(), &[again, "start 4 b:0"]);
    check(training.fails(3), &["start 5 b:1"]);
    check(training.waits(&[4], 0), &[]);
    check(training.timer(), &["notify 2 added"]);
    // The last host: nobody has the state any more.
    let answer = training.fails(1);
    assert!(answer[1].starts_with("failed: no process of generation 2 is left"), "{answer:?}");
}

#[test]
fn all_hosts_excluded_is_the_end() {
    let mut training = begun(settings(1, 2, OnFailure::ExcludeHost), &[("a", 1), ("b", 1)]);
    check(training.fails(1), &["# host a is excluded for good: process 1 failed there"]);
    let end = "failed: all hosts are excluded, because processes failed on each of them";
    check(training.fails(2), &["# host b is excluded for good: process 2 failed there", end]);
    check(training.waits(&[1], 0), &[]);
}

/// Upstream's issue 3494: survivors below the minimum wait for ever.
#[test]
fn survivors_below_the_minimum_wait_no_longer_than_the_timeout() {
    let mut training = begun(settings(2, 2, OnFailure::ExcludeHost), &[("a", 1), ("b", 1)]);
    check(training.fails(2), &["# host b is excluded for good: process 2 failed there"]);
    check(training.after(1000), &[]);
    check(training.waits(&[1], 1), &[]);
    let end = "failed: 1 of at least 2 processes were ready within 600 s, and the hosts have 1 usable slots (--min-np, --elastic-timeout)";
    check(training.timer(), &[end]);
    assert_eq!(training.driver.next_timer(), None);

    // More hosts come in time.
    let mut training = begun(settings(2, 2, OnFailure::ExcludeHost), &[("a", 1), ("b", 1)]);
    check(training.waits(&[1], 1), &[]);
    check(training.fails(2), &["# host b is excluded for good: process 2 failed there"]);
    check(training.hosts(&[("a", 1), ("c", 1)]), &["start 3 c:0"]);
    let joined = "# generation 2: 2 processes as before; process 2 (rank 1) left: it failed; new process 3 joined on c as rank 1";
    check(training.waits(&[3], 0), &[joined, "begin 2: 1 3"]);
}

#[test]
fn the_first_generation_needs_the_minimum_in_time() {
    let mut training = Training::new(settings(2, 4, OnFailure::ExcludeHost));
    check(training.hosts(&[("a", 1)]), &["start 1 a:0"]);
    check(training.waits(&[1], 0), &[]);
    let end = "failed: 1 of at least 2 processes were ready within 600 s, and the hosts have 1 usable slots (--min-np, --elastic-timeout)";
    check(training.timer(), &[end]);

    // A process that never asks holds up the others only until then.
    let mut training = Training::new(settings(2, 4, OnFailure::ExcludeHost));
    check(training.hosts(&[("a", 3)]), &["start 1 a:0", "start 2 a:1", "start 3 a:2"]);
    check(training.waits(&[1, 3], 0), &[]);
    check(training.timer(), &["# generation 1: 2 processes", "begin 1: 1 3"]);
    check(training.waits(&[2], 0), &["notify 1 added"]);
}

#[test]
fn the_reset_limit_counts_failures_and_not_their_replacements() {
    let mut training =
        begun(Settings { reset_limit: Some(1), ..settings(1, 2, OnFailure::RestartOnHost) }, &[("a", 2)]);
    check(training.fails(1), &["start 3 a:0"]);
    assert_eq!(training.waits(&[2], 1)[1], "begin 2: 2");
    check(training.waits(&[3], 0), &["notify 2 added"]);
    assert_eq!(training.waits(&[2], 2)[1], "begin 3: 2 3");
    let end = "failed: Horovod was shutdown because number of resets during elastic job exceeded limit: 1";
    check(training.fails(3), &[end]);

    // Changes of hosts count.
    let mut training = begun(Settings { reset_limit: Some(0), ..settings(1, 2, OnFailure::ExcludeHost) }, &[("a", 2)]);
    check(training.hosts(&[("a", 1)]), &["notify 1 removed"]);
    check(training.waits(&[1, 2], 1), &[end.replace("limit: 1", "limit: 0").as_str()]);
}

#[test]
fn without_survivors_only_a_reset_limit_allows_a_new_start() {
    let mut training = begun(settings(1, 1, OnFailure::RestartOnHost), &[("a", 1)]);
    let end = "failed: no process of generation 1 is left, and with them the state of the training is lost (with --reset-limit it would start again from nothing)";
    check(training.fails(1), &[end]);

    let limited = Settings { reset_limit: Some(1), ..settings(2, 2, OnFailure::RestartOnHost) };
    let mut training = begun(limited, &[("a", 2)]);
    check(training.fails(1), &["start 3 a:0"]);
    let lost = "# no process of generation 1 is left: its state is lost, and the training starts again from nothing";
    check(training.fails(2), &[lost, "start 4 a:1"]);
    check(training.waits(&[4], 0), &[]);
    assert_eq!(training.waits(&[3], 0)[1], "begin 2: 3 4");
    let end = "failed: Horovod was shutdown because number of resets during elastic job exceeded limit: 1";
    check(training.fails(3), &[end]);
}

#[test]
fn new_hosts_alone_have_no_state() {
    let mut training = begun(settings(1, 1, OnFailure::ExcludeHost), &[("a", 1)]);
    check(training.hosts(&[("b", 1)]), &["start 2 b:0", "notify 1 removed"]);
    check(training.waits(&[1], 1), &[]);
    let answer = training.waits(&[2], 0);
    let text = "failed: No hosts from previous set remaining, unable to broadcast state.";
    assert!(answer[0].starts_with(text), "{answer:?}");
}

#[test]
fn processes_that_fail_at_their_start_are_not_started_for_ever() {
    let mut training = Training::new(settings(1, 2, OnFailure::RestartOnHost));
    training.hosts(&[("a", 2)]);
    check(training.fails(1), &[]);
    check(training.fails(2), &["failed: all processes failed before the training began"]);

    let mut training = begun(settings(1, 2, OnFailure::RestartOnHost), &[("a", 2)]);
    check(training.fails(2), &["start 3 a:1"]);
    assert_eq!(training.waits(&[1], 1)[1], "begin 2: 1");
    check(training.fails(3), &[]);
    check(training.timer(), &["start 4 a:1"]);
    check(training.fails(4), &[]);
    check(training.timer(), &["start 5 a:1"]);
    let text = "# slot 1 of host a is given up: its processes failed repeatedly before they joined the training";
    check(training.fails(5), &[text]);
    check(training.after(10_000), &[]);
    check(training.succeeds(1), &["succeeded"]);
}

#[test]
fn a_failure_after_the_end_of_others_is_a_failure() {
    let mut training = begun(settings(1, 2, OnFailure::RestartOnHost), &[("a", 2)]);
    check(training.succeeds(2), &[]);
    let end = "failed: process 1 (rank 0, host a) failed after others had completed the training";
    check(training.fails(1), &[end]);
}

#[test]
fn members_that_compute_on_while_others_wait_are_killed_in_the_end() {
    let mut training = begun(settings(1, 2, OnFailure::RestartOnHost), &[("a", 2)]);
    check(training.waits(&[1], 1), &[]);
    let left = "# generation 2: 1 process instead of 2; process 2 (rank 1) left: it did not follow the others into the next generation within the elastic timeout";
    training.after(599);
    check(training.timer(), &["kill 2", left, "begin 2: 1"]);
    check(training.fails(2), &["start 3 a:1"]);
}

#[test]
fn a_lost_answer_changes_nothing() {
    let mut training = begun(settings(1, 2, OnFailure::RestartOnHost), &[("a", 2)]);
    check(training.waits(&[1, 2, 1], 0), &[]);
    check(training.waits(&[99], 0), &[]);
    check(training.succeeds(99), &[]);
    assert_eq!(training.waits(&[1, 1, 2], 1)[1], "begin 2: 1 2");
}

#[test]
fn spares_wait_and_take_over() {
    let driver = Driver::new(settings(1, 2, OnFailure::ExcludeHost), 1).with_spares(1);
    let mut training = Training { driver, now: Duration::ZERO };
    check(training.hosts(&[("a", 1), ("b", 1), ("c", 1), ("d", 1)]), &["start 1 a:0", "start 2 b:0", "start 3 c:0"]);
    assert_eq!(training.waits(&[1, 2, 3], 0)[1], "begin 1: 1 2");
    check(
        training.fails(1),
        &["# host a is excluded for good: process 1 failed there", "start 4 d:0", "notify 1 added"],
    );
    assert_eq!(training.waits(&[2], 1)[1], "begin 2: 2 3");
    check(training.waits(&[4], 0), &[]);
}
