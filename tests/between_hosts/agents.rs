//! Killed and frozen agents, machines that lose power, an absent server.

use rustix::process::Signal;

use super::harness::fault_injection::{RankStart, wait_until_dead};
use super::harness::{signal, wait_for};
use super::{Rack, SHORT_LEASE, start_rack};

fn pids(starts: &[RankStart]) -> Vec<u32> {
    starts.iter().map(|start| start.pid).collect()
}

fn machine_of_rank(rack: &Rack, starts: &[RankStart], rank: usize) -> usize {
    rack.machine_of(&starts.iter().find(|start| start.rank == rank).expect("it started").node)
}

/// The machine rejoins, the gang runs on it again, and nothing is left of either attempt.
fn rejoin_and_finish(mut rack: Rack, machine: usize, first: &[RankStart]) {
    rack.agents[machine] = rack.machines.join_with(&rack.site, machine, &[], &[]);
    let second = rack.second_attempt(first);
    rack.finish(4);
    rack.assert_clean(first);
    rack.assert_clean(&second);
}

#[test]
fn nothing_runs_on_a_machine_whose_agent_was_killed_and_the_gang_runs_again() {
    let Some(rack) = start_rack(2, SHORT_LEASE) else { return };
    let first = rack.start_gang();
    let machine = machine_of_rank(&rack, &first, 0);
    signal(rack.agents[machine].child.id(), Signal::KILL);
    wait_until_dead("the gang", &pids(&first));
    wait_for("nothing to be left on the machine", || rack.machines.processes_on(machine).len() <= 1);
    rejoin_and_finish(rack, machine, &first);
}

#[test]
fn a_machine_without_power_is_lost_and_comes_back_as_another_node() {
    let Some(rack) = start_rack(2, SHORT_LEASE) else { return };
    let first = rack.start_gang();
    let machine = machine_of_rank(&rack, &first, 1);
    rack.machines.power_off(machine);
    wait_until_dead("the gang", &pids(&first));
    wait_for("the job to be back in the queue", || rack.site.job("gang")["executionState"] == "queued");
    rack.machines.set_link(machine, "up");
    rejoin_and_finish(rack, machine, &first);
}

/// No order can reach its ranks: its guards end them in time.
#[test]
fn ranks_of_a_frozen_agent_end_before_their_job_runs_elsewhere() {
    let Some(rack) = start_rack(2, SHORT_LEASE) else { return };
    rack.site.submit_ranks("gang", 1, &super::counting_rank());
    let first = rack.site.wait_for_starts(1);
    let agent = rack.agents[rack.machine_of(&first[0].node)].child.id();
    signal(agent, Signal::STOP);
    let second = rack.second_attempt(&first);
    assert_ne!(second[0].node, first[0].node);
    signal(agent, Signal::CONT);
    rack.site.release_ranks();
    let job = rack.site.wait_for_end("gang");
    assert_eq!(job["executionState"], "succeeded", "{job:#}");
    assert_eq!(rack.site.starts().len(), 2);
    rack.assert_clean(&first);
}

#[test]
fn a_server_that_is_away_for_longer_than_the_lease_costs_nothing() {
    let Some(mut rack) = start_rack(2, SHORT_LEASE) else { return };
    let starts = rack.start_gang();
    let address = rack.site.address();
    rack.site.kill_server();
    super::network::hold_for(5);
    rack.site.start_server("server", &address, "info");
    rack.wait_for_counting();
    rack.finish(2);
    rack.assert_clean(&starts);
}
