//! Ranks on several hosts: right over any network, and told when it breaks.

mod processes;

use std::time::{Duration, Instant};

use corro_test_support::skip;
use processes::hosts::{Addresses, Hosts};

const DOORS: [(&str, &str); 2] = [("RANK_DOOR", "direct"), ("RANK_DOOR", "negotiated")];
/// The kernel takes some 7 seconds to believe that nobody answers.
const LIMIT: Duration = Duration::from_secs(20);

#[test]
fn all_collectives_are_right_between_hosts() {
    for (n, each, addresses) in
        [(4, 1, Addresses::V4), (2, 2, Addresses::V4), (2, 2, Addresses::V6), (3, 1, Addresses::V6)]
    {
        let Some(hosts) = Hosts::new(n, addresses) else { return };
        for door in DOORS {
            println!("{n} hosts with {each} ranks, {addresses:?}, {door:?}");
            let mut gang = hosts.gang(each, &[door]);
            gang.all_do("all of");
            gang.leave();
        }
    }
}

/// Bytes sent over an interface of the host that a process is on.
fn sent_over(pid: u32, interface: &str) -> u64 {
    let table = std::fs::read_to_string(format!("/proc/{pid}/net/dev")).expect("it lives");
    let line = table.lines().find_map(|line| line.trim().strip_prefix(&format!("{interface}:")));
    let mut fields = line.unwrap_or_else(|| panic!("no {interface} in {table}")).split_whitespace();
    fields.nth(8).and_then(|field| field.parse().ok()).expect("bytes sent")
}

#[test]
fn data_travels_over_the_interface_that_was_chosen() {
    let Some(hosts) = Hosts::new(2, Addresses::V4) else { return };
    hosts.network(1);
    for chosen in [0, 1] {
        let name = format!("eth{chosen}");
        let mut gang = hosts.gang(1, &[DOORS[0], ("HOROVOD_GLOO_IFACE", &name)]);
        let sent = |gang: &processes::Gang, index: usize| sent_over(gang.ranks[1].child.id(), &format!("eth{index}"));
        let before = [sent(&gang, 0), sent(&gang, 1)];
        gang.all_do("reduce much 1000000");
        let grown = [sent(&gang, 0) - before[0], sent(&gang, 1) - before[1]];
        assert!(grown[chosen] > 2_000_000 && grown[1 - chosen] < 200_000, "{name}: {grown:?}");
        gang.leave();
    }
}

#[test]
fn results_are_right_over_a_slow_network() {
    let Some(hosts) = Hosts::new(2, Addresses::V4) else { return };
    for host in 0..2 {
        let slow = "tc qdisc add dev eth0 root tbf rate 100mbit burst 32kbit latency 400ms";
        assert!(hosts.on(host, slow), "the network can be slowed");
    }
    for door in DOORS {
        let mut gang = hosts.gang(2, &[door]);
        gang.all_do("reduce slowly 500000");
        gang.leave();
    }
}

#[test]
fn a_killed_rank_is_named_on_all_hosts() {
    let Some(hosts) = Hosts::new(2, Addresses::V4) else { return };
    for door in DOORS {
        for victim in [0, 1, 2, 3] {
            let mut gang = hosts.gang(2, &[door]);
            gang.tell_all("again busy 300000");
            gang.all_say("busy");
            let killed = Instant::now();
            gang.ranks[victim].kill();
            let named = format!("rank {victim} on host node{} has died", victim / 2);
            for (rank, other) in gang.others(victim) {
                let failed = other.says("failed busy");
                assert!(failed.contains(&named), "{door:?}: rank {rank} was told: {failed}");
            }
            println!("{door:?}: rank {victim} killed, all were told within {:.1?}", killed.elapsed());
            assert!(killed.elapsed() < LIMIT);
        }
    }
}

/// Pulls the cable of the last host, with its `each` ranks; all must be told of somebody they cannot reach.
fn pull(n: usize, each: usize, door: (&str, &str), busy: bool) {
    let Some(hosts) = Hosts::new(n, Addresses::V4) else { return };
    let mut gang = hosts.gang(each, &[door]);
    gang.all_do("reduce first 1000");
    if busy {
        gang.tell_all("again busy 3000000");
        gang.all_say("busy");
    } else {
        // All but one wait for it, and nothing is under way.
        gang.others(1).for_each(|(_, rank)| rank.tell("reduce waits 10"));
    }
    let pulled = Instant::now();
    hosts.pull_cable(n - 1);
    let cut: Vec<usize> = ((n - 1) * each..n * each).collect();
    let waiting = if busy { usize::MAX } else { 1 };
    for (rank, other) in gang.others(waiting) {
        let failed = other.says("failed");
        println!("{n}x{each}, {door:?}, busy {busy}: rank {rank} after {:.1?}: {failed}", pulled.elapsed());
        let beyond = |peer: &usize| cut.contains(peer) != cut.contains(&rank);
        let named = (0..n * each)
            .filter(beyond)
            .any(|peer| failed.contains(&format!("rank {peer} on host node{}", peer / each)));
        assert!(named, "{n}x{each}, {door:?}, busy {busy}: rank {rank} was told: {failed}");
    }
    assert!(pulled.elapsed() < LIMIT, "{:?}", pulled.elapsed());
}

#[test]
fn a_pulled_cable_is_noticed_by_all() {
    std::thread::scope(|scope| {
        for door in DOORS {
            for busy in [true, false] {
                scope.spawn(move || pull(3, 1, door, busy));
                scope.spawn(move || pull(2, 2, door, busy));
            }
        }
    });
}

#[test]
fn a_reset_connection_is_noticed_by_all_at_once() {
    for door in DOORS {
        let Some(hosts) = Hosts::new(3, Addresses::V4) else { return };
        let mut gang = hosts.gang(1, &[door]);
        gang.tell_all("again busy 300000");
        gang.all_say("busy");
        // Those between hosts 1 and 2; rank 0 has nothing to do with them.
        let reset = Instant::now();
        if !hosts.on(1, "ss -K dst 10.88.0.3") {
            skip::unsupported_machine("connections cannot be reset here by `ss -K`");
            return;
        }
        for (rank, process) in gang.ranks.iter_mut().enumerate() {
            let failed = process.says("failed busy");
            println!("{door:?}: rank {rank} after {:.1?}: {failed}", reset.elapsed());
            let named =
                [1, 2].iter().any(|peer| *peer != rank && failed.contains(&format!("rank {peer} on host node{peer}")));
            assert!(named, "{door:?}: rank {rank} was told: {failed}");
        }
        assert!(reset.elapsed() < LIMIT);
    }
}
