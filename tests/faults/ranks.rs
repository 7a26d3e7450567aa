//! Processes of a job that are killed, ignore signals, or leave children behind: the gang ends as a whole, and no process
//! remains.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::json;

use super::harness::fault_injection::{RankStart, SHARE, parent_of, processes_of, wait_until_dead, waiting_rank};
use super::harness::{IN_WORKSPACE, Site, is_alive, signal, wait_for};
use super::{DAEMON, assert_succeeded, daemons, detail, error_of, pids};

#[test]
fn a_killed_rank_takes_its_gang_down_and_is_named() {
    check_killed_rank(|rank| rank.pid);
}

#[test]
fn a_killed_guard_takes_its_gang_down_and_its_rank_is_named() {
    check_killed_rank(|rank| parent_of(rank.pid));
}

/// Kills the process of rank 1 that `victim` selects, and checks the other rank and the job.
fn check_killed_rank(victim: fn(&RankStart) -> u32) {
    let site = Site::start();
    site.prepare(2);
    site.submit_ranks("job1", 2, &waiting_rank(&format!("echo \"last words of $RANK\" >&2; {DAEMON}")));
    let starts = site.wait_for_starts(2);
    wait_for("both daemons", || daemons(&site).len() == 2);
    wait_for("the last words to be heard", || site.job_file("job1", "stderr.txt").contains("last words of 1"));
    let rank = starts.iter().find(|start| start.rank == 1).expect("two ranks");
    let killed = Instant::now();
    signal(victim(rank), Signal::KILL);
    wait_until_dead("the gang", &pids(&starts));
    wait_until_dead("what it left in the background", &daemons(&site));
    // Promised within two seconds; this machine may be busy with other tests.
    assert!(killed.elapsed() < Duration::from_secs(10), "the gang took {:?} to end", killed.elapsed());
    let job = site.wait_for_end("job1");
    let error = error_of(&job);
    assert_eq!((&error["code"], &job["executionInfo"]["exitCode"]), (&json!("JobFailed"), &json!(137)), "{job:#}");
    assert_eq!((detail(error, "Rank"), detail(error, "Node")), ("1", rank.node.as_str()));
    assert_eq!((detail(error, "Signal"), detail(error, "StdErr")), ("9", "last words of 1"));
    assert!(starts.iter().all(|start| processes_of(&start.node).is_empty()), "orphans");
    site.wait_for_nodes(2);
}

#[test]
fn a_job_that_ignores_sigterm_is_killed_after_its_grace() {
    let site = Site::start();
    site.prepare(1);
    site.submit_ranks("job1", 1, &format!("trap '' TERM; {}", waiting_rank(DAEMON)));
    let starts = site.wait_for_starts(1);
    wait_for("the daemon", || daemons(&site).len() == 1);
    site.corro(&format!("batchai job terminate {IN_WORKSPACE} -e cifar -n job1 --yes")).ok();
    let job = site.wait_for_end("job1");
    assert_eq!(error_of(&job)["code"], "JobTerminated");
    wait_until_dead("the rank", &pids(&starts));
    wait_until_dead("its daemon", &daemons(&site));
    assert_eq!(processes_of(&starts[0].node), [0u32; 0]);
    site.wait_for_nodes(1);
}

#[test]
fn a_job_that_forks_a_daemon_leaves_nothing() {
    let site = Site::start();
    site.prepare(1);
    // The second one keeps the job's output open, too.
    let holding = format!("setsid sleep 1000 & echo $! >> {SHARE}/daemons;");
    site.submit_ranks("job1", 1, &format!("{DAEMON} {holding} echo bye"));
    assert_succeeded(&site.wait_for_end("job1"));
    let daemons = daemons(&site);
    assert!(daemons.len() == 2 && !daemons.iter().any(|pid| is_alive(*pid)), "{daemons:?}");
    assert_eq!(site.job_file("job1", "stdout.txt"), "bye\n");
}
