//! Agents are killed or fall silent. Their jobs run elsewhere, and never twice at once.

use rustix::process::Signal;

use super::harness::faulty::{JoinedAgent, SHARE, processes_of, wait_until_dead, waiting_rank};
use super::harness::{Site, is_alive, signal, wait_for};
use super::{DAEMON, assert_succeeded, daemons, detail, error_of, pids};

#[test]
fn a_killed_agent_takes_its_gang_down_and_the_job_runs_elsewhere() {
    check_killed_agent(1);
}

/// The others must be told to stop although the one they meet at is gone.
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
    site.let_go();
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
    // The cluster is whole again.
    site.wait_for_nodes(1);
}

/// Its last word comes while it is still connected: it must not be given the job again, to lose it once more.
#[test]
fn an_agent_that_is_told_to_end_costs_its_job_one_attempt() {
    let site = Site::start();
    site.prepare(1);
    site.submit_ranks("job1", 1, &waiting_rank(""));
    for attempt in 1..=2 {
        let node = site.wait_for_starts(attempt)[attempt - 1].node.clone();
        signal(site.agent_of(&node), Signal::TERM);
    }
    site.wait_for_starts(3);
    site.let_go();
    assert_succeeded(&site.wait_for_end("job1"));
    assert_eq!(site.starts().len(), 3, "{:?}", site.starts());
}

#[test]
fn a_silent_node_is_noticed_by_its_lease_and_its_job_never_runs_twice_at_once() {
    let site = Site::start_with(&["--no-containers", "--lease", "3"]);
    // With a node to spare the second attempt need not wait for a new one.
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
    site.let_go();
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
    site.host("server", "127.0.0.1:0", "info");
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
    site.let_go();
    assert_succeeded(&site.wait_for_end("job1"));
    assert_eq!(site.starts().len(), 2);
    assert_eq!(second.ended(), None, "the second machine stays a node");
}
