//! Killed and silent agents: their jobs run elsewhere, and never twice at once.

use corro_test_support::skip;
use rustix::process::Signal;

use super::all_processes::is_stopped;
use super::harness::fault_injection::{JoinedAgent, SHARE, parent_of, processes_of, wait_until_dead, waiting_rank};
use super::harness::{IN_WORKSPACE, Site, is_alive, signal, wait_for};
use super::{DAEMON, assert_succeeded, daemons, detail, error_of, pids};

#[test]
fn a_killed_agent_takes_its_gang_down_and_the_job_runs_elsewhere() {
    check_killed_agent(1);
}

/// The other ranks must be stopped although their rendezvous host is gone.
#[test]
fn a_killed_agent_of_the_master_does_so_too() {
    check_killed_agent(0);
}

/// Kills the agent of the node that runs this rank; rank 0 is on the master.
fn check_killed_agent(rank: usize) {
    let site = Site::start();
    site.prepare(2);
    site.submit_ranks("job1", 2, &waiting_rank(DAEMON));
    let first = site.wait_for_starts(2);
    wait_for("both daemons", || daemons(&site).len() == 2);
    let node_of = |wanted: usize| &first.iter().find(|start| start.rank == wanted).expect("two ranks").node;
    let (lost, left) = (node_of(rank), node_of(1 - rank));
    signal(site.agent_of(lost), Signal::KILL);
    wait_until_dead("the ranks of the first attempt", &pids(&first));
    wait_until_dead("what they left in the background", &daemons(&site)[..2]);
    let second = site.wait_for_starts(4).split_off(2);
    assert_eq!(processes_of(lost), [0u32; 0], "processes of the lost node");
    assert!(second.iter().all(|start| start.node != *lost), "{second:?}");
    assert!(second.iter().any(|start| start.node == *left), "{second:?}");
    site.release_ranks();
    assert_succeeded(&site.wait_for_end("job1"));
    assert_eq!(site.starts().len(), 4, "{:?}", site.starts());
    site.wait_for_nodes(2);
    let agents = site.agents();
    assert!(agents.len() == 2 && agents.iter().all(|(node, _)| node != lost), "{agents:?}");
    assert!(!site.data().join("nodes").join(lost).exists(), "the lost node's directory stays");
}

#[test]
fn a_job_that_loses_its_node_three_times_is_not_tried_again() {
    let site = Site::start();
    site.prepare(1);
    site.submit_ranks("job1", 1, &waiting_rank(""));
    let mut node = String::new();
    for attempt in 1..=3 {
        node = site.wait_for_starts(attempt)[attempt - 1].node.clone();
        signal(site.agent_of(&node), Signal::KILL);
    }
    let job = site.wait_for_end("job1");
    let error = error_of(&job);
    assert_eq!(error["code"], "NodeLost", "{job:#}");
    assert_eq!(detail(error, "Node"), node);
    assert_eq!(site.starts().len(), 3);
    // The cluster is complete again.
    site.wait_for_nodes(1);
}

/// Its last report arrives while it is still connected: it must not be given the job again and lose it once more.
#[test]
fn a_stopped_agent_costs_its_job_one_attempt() {
    let site = Site::start();
    site.prepare(1);
    site.submit_ranks("job1", 1, &waiting_rank(""));
    for attempt in 1..=2 {
        let node = site.wait_for_starts(attempt)[attempt - 1].node.clone();
        signal(site.agent_of(&node), Signal::TERM);
    }
    site.wait_for_starts(3);
    site.release_ranks();
    assert_succeeded(&site.wait_for_end("job1"));
    assert_eq!(site.starts().len(), 3, "{:?}", site.starts());
}

#[test]
fn a_silent_node_is_noticed_by_its_lease_and_its_job_never_runs_twice_at_once() {
    let site = Site::start_with(&["--no-containers", "--lease", "3"]);
    // With a spare node the second attempt need not wait for a new one.
    site.prepare(2);
    let alone = format!("exec 9> {SHARE}/alone; flock -n 9 || echo \"$HOROVOD_HOSTNAME\" >> {SHARE}/together;");
    site.submit_ranks("job1", 1, &waiting_rank(&alone));
    let first = site.wait_for_starts(1).remove(0);
    let agent = site.agent_of(&first.node);
    signal(agent, Signal::STOP);
    let second = site.wait_for_starts(2).remove(1);
    assert_ne!(second.node, first.node);
    signal(agent, Signal::CONT);
    wait_until_dead("the silent agent and its rank", &[agent, first.pid]);
    site.release_ranks();
    assert_succeeded(&site.wait_for_end("job1"));
    assert_eq!(site.starts().len(), 2);
    assert_eq!(processes_of(&first.node), [0u32; 0]);
    let together = std::fs::read_to_string(site.share().join("together")).unwrap_or_default();
    assert_eq!(together, "", "the second attempt began while the first still ran");
    site.wait_for_nodes(2);
}

#[test]
fn a_machine_that_was_given_up_ends_its_tasks_when_it_comes_back() {
    let mut site = Site::unstarted(&["--no-containers", "--lease", "3"]);
    site.start_server("server", "127.0.0.1:0", "info");
    let mut first = JoinedAgent::start(&site, "machine-1");
    site.prepare(1);
    site.submit_ranks("job1", 1, &waiting_rank(""));
    let rank = site.wait_for_starts(1).remove(0);
    assert_eq!(first.node().as_ref(), Some(&rank.node));
    signal(first.child.id(), Signal::STOP);
    let mut second = JoinedAgent::start(&site, "machine-2");
    let again = site.wait_for_starts(2).remove(1);
    assert_ne!(again.node, rank.node);
    signal(first.child.id(), Signal::CONT);
    wait_for("the first machine's agent to end", || first.ended().is_some());
    assert_eq!(first.ended(), Some(0), "it was fenced, which is an orderly end");
    assert!(!is_alive(rank.pid), "its rank ended before it");
    assert_eq!(processes_of(&rank.node), [0u32; 0]);
    assert!(is_alive(again.pid), "the second attempt goes on");
    site.release_ranks();
    assert_succeeded(&site.wait_for_end("job1"));
    assert_eq!(site.starts().len(), 2);
    assert_eq!(second.ended(), None, "the second machine stays a node");
}

/// Agent, fork server and guards die at once, so that none can act, and the orphan's environment carries no tag.
#[test]
fn an_orphan_without_environment_and_guard_is_found_and_ended() {
    let site = Site::start();
    site.prepare(1);
    let orphan = format!(
        "env -i PATH=$PATH setsid setsid sh -c 'echo $$ >$0; exec sleep 1000' {SHARE}/orphan </dev/null >/dev/null 2>&1 &"
    );
    site.submit_ranks("job1", 1, &waiting_rank(&orphan));
    let first = site.wait_for_starts(1).remove(0);
    let orphan = || std::fs::read_to_string(site.share().join("orphan")).ok()?.trim().parse::<u32>().ok();
    wait_for("the orphan", || orphan().is_some());
    let (orphan, agent) = (orphan().expect("just seen"), site.agent_of(&first.node));
    let fork_servers = guards_below(agent);
    let guards: Vec<u32> = fork_servers.iter().flat_map(|fork_server| guards_below(*fork_server)).collect();
    assert!(!fork_servers.is_empty() && !guards.is_empty(), "{fork_servers:?} {guards:?}");
    let all: Vec<u32> = [agent].into_iter().chain(fork_servers).chain(guards).collect();
    all.iter().for_each(|pid| signal(*pid, Signal::STOP));
    wait_for("all of them to be stopped", || all.iter().all(|pid| is_stopped(*pid)));
    std::fs::remove_file(site.share().join("orphan")).expect("the next attempt writes its own");
    all.iter().for_each(|pid| signal(*pid, Signal::KILL));
    wait_until_dead("agent, fork server and guards", &all);
    let second = site.wait_for_starts(2).remove(1);
    assert_ne!(second.node, first.node);
    // The node is gone before its job runs again.
    let isolation = site.job_file("job1", "execution.log");
    if isolation.contains("NO namespaces") && isolation.contains("Processes for this job on this node: NO limit") {
        skip::unsupported_machine(format_args!(
            "this machine allows neither control groups nor namespaces: {isolation}"
        ));
        signal(orphan, Signal::KILL);
    }
    assert!(!is_alive(orphan) && !is_alive(first.pid), "the orphan outlived its node");
    site.release_ranks();
    assert_succeeded(&site.wait_for_end("job1"));
}

#[test]
fn an_orphan_of_an_ordinary_user_is_found_too() {
    super::harness::ordinary_user::rerun_tests(&["agents::an_orphan_without_environment_and_guard_is_found_and_ended"]);
}

/// Children of `parent` that run as guards or fork servers.
fn guards_below(parent: u32) -> Vec<u32> {
    let pids = corro_base::procfs::pids().into_iter().map(|pid| pid as u32);
    let is_guard =
        |pid: u32| std::fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|words| words.ends_with(b"\0guard\0"));
    pids.filter(|pid| is_guard(*pid) && is_alive(*pid) && parent_of(*pid) == parent).collect()
}

/// A rank that, once the gate opens, writes 200 lines with its process id and exits.
fn talking_rank() -> String {
    format!("{}; seq -f \"$$ %g\" 1 200; touch {SHARE}/talked-$$", waiting_rank(""))
}

fn lines_of(log: &str, prefix: &str, pid: u32) -> usize {
    log.lines().filter(|line| line.starts_with(&format!("{prefix}{pid} "))).count()
}

#[test]
fn output_written_while_the_agent_was_frozen_is_in_the_log() {
    let site = Site::start_with(&["--no-containers", "--lease", "3"]);
    site.prepare(2);
    site.submit_ranks("job1", 1, &talking_rank());
    let first = site.wait_for_starts(1).remove(0);
    signal(site.agent_of(&first.node), Signal::STOP);
    site.release_ranks();
    wait_for("the rank to have ended", || site.share().join(format!("talked-{}", first.pid)).exists());
    assert_eq!(lines_of(&site.job_file("job1", "stdout.txt"), "", first.pid), 0, "its agent is stopped");
    assert_succeeded(&site.wait_for_end("job1"));
    let (log, starts) = (site.job_file("job1", "stdout.txt"), site.starts());
    assert_eq!(starts.len(), 2, "{starts:?}");
    for start in &starts {
        assert_eq!(lines_of(&log, "", start.pid), 200, "of {start:?}: {log}");
    }
    let execution_log = site.job_file("job1", "execution.log");
    assert!(
        execution_log.contains("Attempt 1 ended at ") && execution_log.contains("may be missing from the logs"),
        "{execution_log}"
    );
    let why = site.corro(&format!("job why {IN_WORKSPACE} -e cifar -n job1")).ok().stdout;
    assert!(why.contains("may be missing from the logs"), "{why}");
}

/// The server cannot kill a machine that joined by itself: it returns long after another attempt has written to the same file.
#[test]
fn output_read_after_the_lease_is_kept_apart() {
    let mut site = Site::unstarted(&["--no-containers", "--lease", "3"]);
    site.start_server("server", "127.0.0.1:0", "info");
    let mut first = JoinedAgent::start(&site, "machine-1");
    site.prepare(1);
    site.submit_ranks("job1", 1, &talking_rank());
    let rank = site.wait_for_starts(1).remove(0);
    signal(first.child.id(), Signal::STOP);
    site.release_ranks();
    wait_for("the rank to have ended", || site.share().join(format!("talked-{}", rank.pid)).exists());
    let _second = JoinedAgent::start(&site, "machine-2");
    assert_succeeded(&site.wait_for_end("job1"));
    let before = site.job_file("job1", "stdout.txt");
    signal(first.child.id(), Signal::CONT);
    wait_for("the first machine's agent to end", || first.ended().is_some());
    assert_eq!(site.job_file("job1", "stdout.txt"), before, "nothing is mixed into the second attempt");
    let log = site.job_file("job1", "execution.log");
    assert!(log.contains("Read from stdout of rank 0 in attempt 1 after the lease of this node had expired:"), "{log}");
    assert_eq!(lines_of(&log, ">>>   ", rank.pid), 200, "{log}");
}
