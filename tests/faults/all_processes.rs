//! Simultaneous end of all processes, by shutdown or by kill, followed by a restart.

use rustix::process::Signal;

use super::harness::fault_injection::{parent_of, processes_of, wait_until_dead, waiting_rank};
use super::harness::{Site, is_alive, signal, wait_for};
use super::{DAEMON, assert_succeeded, daemons, pids};

#[test]
fn ctrl_c_ends_everything_and_the_next_start_runs_the_job_again() {
    check_orderly_end(Signal::INT);
}

#[test]
fn sigterm_ends_everything_and_the_next_start_runs_the_job_again() {
    check_orderly_end(Signal::TERM);
}

fn check_orderly_end(how: Signal) {
    let mut site = Site::start();
    site.prepare(2);
    site.submit_ranks("job1", 2, &waiting_rank(DAEMON));
    let starts = site.wait_for_starts(2);
    wait_for("both daemons", || daemons(&site).len() == 2);
    let agents: Vec<u32> = site.agents().into_iter().map(|(_, pid)| pid).collect();
    assert_eq!(agents.len(), 2);
    assert_eq!(site.stop_server(how), Some(0));
    for pid in pids(&starts).into_iter().chain(agents).chain(daemons(&site)) {
        assert!(!is_alive(pid), "{pid} outlived the server");
    }
    assert!(starts.iter().all(|start| processes_of(&start.node).is_empty()));
    site.up();
    site.wait_for_starts(4);
    site.release_ranks();
    assert_succeeded(&site.wait_for_end("job1"));
    assert_eq!(site.starts().len(), 4, "{:?}", site.starts());
}

#[test]
fn after_kill_9_of_everything_orphans_are_killed_and_the_job_runs_again() {
    let mut site = Site::start();
    site.prepare(2);
    site.submit_ranks("job1", 2, &waiting_rank(DAEMON));
    let starts = site.wait_for_starts(2);
    wait_for("both daemons", || daemons(&site).len() == 2);
    let guards: Vec<u32> = starts.iter().map(|start| parent_of(start.pid)).collect();
    let agents: Vec<u32> = site.agents().into_iter().map(|(_, pid)| pid).collect();
    // Agents and guards would clean up after each other; this test needs the leftovers of a simultaneous death.
    agents.iter().for_each(|pid| signal(*pid, Signal::STOP));
    // A thread that still runs could see a guard die and clean up after it.
    wait_for("the agents to be stopped", || agents.iter().all(|pid| is_stopped(*pid)));
    for pid in [site.up_pid()].into_iter().chain(guards).chain(agents) {
        signal(pid, Signal::KILL);
    }
    site.kill_server();
    assert!(daemons(&site).iter().all(|pid| is_alive(*pid)), "with the guards dead nobody can have ended them");
    site.up();
    wait_until_dead("the orphans", &daemons(&site)[..2]);
    site.wait_for_starts(4);
    assert!(pids(&starts).iter().all(|pid| !is_alive(*pid)));
    site.release_ranks();
    assert_succeeded(&site.wait_for_end("job1"));
    site.wait_for_nodes(2);
}

#[test]
fn a_second_up_reports_the_running_server() {
    let site = Site::start();
    let data = site.data();
    let second = site.corro(&format!("up --listen 127.0.0.1:0 --data {}", data.display()));
    second.fails(1, &["already running", &site.url, "hint:"]);
    site.corro("group create -n still -l eastus").ok();
}

#[test]
fn an_up_that_is_killed_while_it_starts_does_no_harm() {
    for file in
        ["data/lock", "data/master.key", "data/corro.db", "data/corro.db-wal", "data/shares", "config/profile.json"]
    {
        let mut site = Site::unstarted(&[]);
        for _ in 0..2 {
            let mut child = site.server_command("up", "127.0.0.1:0", "info").spawn().expect("corro up starts");
            wait_for(file, || site.path().join(file).exists());
            child.kill().expect("it can be killed");
            child.wait().expect("it can be waited for");
        }
        site.up();
        site.corro("group create -n first -l eastus").ok();
        site.crash_and_restart();
        assert_eq!(site.corro("group list --query [].name -o tsv").ok().stdout, "first\n", "killed at {file}");
    }
}

/// Whether every thread of the process is stopped.
pub fn is_stopped(pid: u32) -> bool {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    threads
        .map(|thread| std::fs::read_to_string(thread.path().join("stat")).unwrap_or_default())
        .all(|stat| stat.rsplit_once(')').is_none_or(|(_, rest)| rest.trim_start().starts_with('T')))
}
