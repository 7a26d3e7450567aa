//! Faults of the link between machines and their server: down, lossy one way, reset, slow.

use std::time::{Duration, Instant};

use corro_test_support::skip;

use super::harness::wait_for;
use super::{Rack, SHORT_LEASE, start_rack};

const LONG_LEASE: &[&str] = &["--no-containers", "--tls", "--lease", "20"];

/// Keeps a fault up for this long.
pub fn hold_for(seconds: u64) {
    let end = Instant::now() + Duration::from_secs(seconds);
    while let Some(left) = end.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) {
        std::thread::park_timeout(left);
    }
}

#[test]
fn a_cut_shorter_than_the_lease_costs_nothing() {
    let Some(rack) = start_rack(2, LONG_LEASE) else { return };
    let starts = rack.start_gang();
    rack.machines.set_link(1, "down");
    hold_for(4);
    rack.machines.set_link(1, "up");
    rack.wait_for_counting();
    rack.finish(2);
    rack.assert_clean(&starts);
}

#[test]
fn a_cut_longer_than_the_lease_loses_the_node_and_the_gang_runs_again_whole() {
    check_lost(
        |rack, machine| rack.machines.set_link(machine, "down"),
        |rack, machine| rack.machines.set_link(machine, "up"),
    );
}

#[test]
fn a_machine_whose_words_do_not_arrive_is_lost() {
    check_one_way("OUTPUT -d");
}

/// The server still receives its messages, but the machine cannot know that.
#[test]
fn a_machine_that_hears_nothing_gives_itself_up() {
    check_one_way("INPUT -s");
}

fn check_one_way(chain: &'static str) {
    if !has_iptables() {
        return;
    }
    let rule = |rack: &Rack, machine: usize, verb: &str| {
        let server = rack.machines.server();
        rack.machines.run_inside(machine, &format!("iptables {verb} {chain} {server} -j DROP"));
    };
    check_lost(|rack, machine| rule(rack, machine, "-A"), |rack, machine| rule(rack, machine, "-D"));
}

/// A fault on the machine of rank 1 that is longer than the lease.
fn check_lost(begin: impl Fn(&Rack, usize), end: impl Fn(&Rack, usize)) {
    let Some(rack) = start_rack(2, SHORT_LEASE) else { return };
    let first = rack.start_gang();
    let lost = first.iter().find(|start| start.rank == 1).expect("two ranks");
    let machine = rack.machine_of(&lost.node);
    begin(&rack, machine);
    super::harness::fault_injection::wait_until_dead(
        "the gang",
        &first.iter().map(|start| start.pid).collect::<Vec<_>>(),
    );
    wait_for("the job to be back in the queue", || rack.site.job("gang")["executionState"] == "queued");
    end(&rack, machine);
    let second = rack.second_attempt(&first);
    assert!(second.iter().all(|start| start.node != lost.node), "{second:?}");
    rack.finish(4);
    rack.assert_clean(&first);
    rack.assert_clean(&second);
    let address = rack.machines.address(machine);
    let said = format!("No heartbeat from node {} at {address} for 3 s", lost.node);
    assert!(rack.history().contains(&said), "{said}\n{}", rack.history());
}

fn has_iptables() -> bool {
    let has = std::process::Command::new("iptables").arg("--version").output().is_ok();
    if !has {
        skip::missing_component("no `iptables` on this machine");
    }
    has
}

#[test]
fn connections_that_are_reset_are_made_again() {
    if !has_iptables() {
        return;
    }
    let Some(rack) = start_rack(2, LONG_LEASE) else { return };
    let starts = rack.start_gang();
    let reset = |verb: &str| {
        let server = rack.machines.server();
        let rule = format!("iptables {verb} OUTPUT -p tcp -d {server} -j REJECT --reject-with tcp-reset");
        rack.machines.run_inside(0, &rule);
    };
    for _ in 0..3 {
        reset("-A");
        hold_for(1);
        reset("-D");
        rack.wait_for_counting();
    }
    rack.finish(2);
    rack.assert_clean(&starts);
}

#[test]
fn a_slow_line_slows_and_breaks_nothing() {
    let Some(rack) = start_rack(2, LONG_LEASE) else { return };
    rack.machines.run_inside(1, "tc qdisc add dev eth0 root tbf rate 256kbit burst 16kbit latency 800ms");
    let starts = rack.start_gang();
    rack.finish(2);
    rack.assert_clean(&starts);
}
