//! Ranks on several hosts (network namespaces): results, slow networks, and broken connections.

mod processes;

use std::time::{Duration, Instant};

use corro_test_support::skip;
use processes::hosts::{Addresses, Hosts};

const APIS: [(&str, &str); 2] = [("RANK_API", "ordered"), ("RANK_API", "named")];
/// The kernel takes some 7 seconds to detect an unreachable host.
const LIMIT: Duration = Duration::from_secs(20);

#[test]
fn all_collectives_are_right_between_hosts() {
    for (n, each, addresses) in
        [(4, 1, Addresses::V4), (2, 2, Addresses::V4), (2, 2, Addresses::V6), (3, 1, Addresses::V6)]
    {
        let Some(hosts) = Hosts::new(n, addresses) else { return };
        for api in APIS {
            println!("{n} hosts with {each} ranks, {addresses:?}, {api:?}");
            let mut gang = hosts.gang(each, &[api]);
            gang.run_all("all of");
            gang.leave();
        }
    }
}

/// Bytes sent over an interface of a process's host.
fn sent_over(pid: u32, interface: &str) -> u64 {
    let table = std::fs::read_to_string(format!("/proc/{pid}/net/dev")).expect("it lives");
    let line = table.lines().find_map(|line| line.trim().strip_prefix(&format!("{interface}:")));
    let mut fields = line.unwrap_or_else(|| panic!("no {interface} in {table}")).split_whitespace();
    fields.nth(8).and_then(|field| field.parse().ok()).expect("bytes sent")
}

#[test]
fn data_is_sent_over_the_chosen_interface() {
    let Some(hosts) = Hosts::new(2, Addresses::V4) else { return };
    hosts.network(1);
    for chosen in [0, 1] {
        let name = format!("eth{chosen}");
        let mut gang = hosts.gang(1, &[APIS[0], ("HOROVOD_GLOO_IFACE", &name)]);
        let sent = |gang: &processes::Gang, index: usize| sent_over(gang.ranks[1].child.id(), &format!("eth{index}"));
        let before = [sent(&gang, 0), sent(&gang, 1)];
        gang.run_all("reduce much 1000000");
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
    for api in APIS {
        let mut gang = hosts.gang(2, &[api]);
        gang.run_all("reduce slowly 500000");
        gang.leave();
    }
}

#[test]
fn a_killed_rank_is_named_on_all_hosts() {
    let Some(hosts) = Hosts::new(2, Addresses::V4) else { return };
    for api in APIS {
        for victim in [0, 1, 2, 3] {
            let mut gang = hosts.gang(2, &[api]);
            gang.send_all("again busy 300000");
            gang.wait_all("busy");
            let killed = Instant::now();
            gang.ranks[victim].kill();
            let named = format!("rank {victim} on host node{} has died", victim / 2);
            for (rank, other) in gang.others(victim) {
                let failed = other.wait_for("failed busy");
                assert!(failed.contains(&named), "{api:?}: rank {rank} reported: {failed}");
            }
            println!("{api:?}: rank {victim} killed, all failed within {:.1?}", killed.elapsed());
            assert!(killed.elapsed() < LIMIT);
        }
    }
}

/// Disconnects the last host, with its `each` ranks; all ranks must name a rank that they cannot reach.
fn disconnect_last_host(n: usize, each: usize, api: (&str, &str), busy: bool) {
    let Some(hosts) = Hosts::new(n, Addresses::V4) else { return };
    let mut gang = hosts.gang(each, &[api]);
    gang.run_all("reduce first 1000");
    if busy {
        gang.send_all("again busy 3000000");
        gang.wait_all("busy");
    } else {
        // All but one rank wait for it, and no bytes are in flight.
        gang.others(1).for_each(|(_, rank)| rank.send("reduce waits 10"));
    }
    let pulled = Instant::now();
    hosts.disconnect(n - 1);
    let cut: Vec<usize> = ((n - 1) * each..n * each).collect();
    let waiting = if busy { usize::MAX } else { 1 };
    for (rank, other) in gang.others(waiting) {
        let failed = other.wait_for("failed");
        println!("{n}x{each}, {api:?}, busy {busy}: rank {rank} after {:.1?}: {failed}", pulled.elapsed());
        let beyond = |peer: &usize| cut.contains(peer) != cut.contains(&rank);
        let named = (0..n * each)
            .filter(beyond)
            .any(|peer| failed.contains(&format!("rank {peer} on host node{}", peer / each)));
        assert!(named, "{n}x{each}, {api:?}, busy {busy}: rank {rank} reported: {failed}");
    }
    assert!(pulled.elapsed() < LIMIT, "{:?}", pulled.elapsed());
}

#[test]
fn a_disconnected_host_is_noticed_by_all() {
    std::thread::scope(|scope| {
        for api in APIS {
            for busy in [true, false] {
                scope.spawn(move || disconnect_last_host(3, 1, api, busy));
                scope.spawn(move || disconnect_last_host(2, 2, api, busy));
            }
        }
    });
}

#[test]
fn a_reset_connection_is_noticed_by_all_at_once() {
    for api in APIS {
        let Some(hosts) = Hosts::new(3, Addresses::V4) else { return };
        let mut gang = hosts.gang(1, &[api]);
        gang.send_all("again busy 300000");
        gang.wait_all("busy");
        // Connections between hosts 1 and 2, which do not involve rank 0.
        let reset = Instant::now();
        if !hosts.on(1, "ss -K dst 10.88.0.3") {
            skip::unsupported_machine("connections cannot be reset here by `ss -K`");
            return;
        }
        for (rank, process) in gang.ranks.iter_mut().enumerate() {
            let failed = process.wait_for("failed busy");
            println!("{api:?}: rank {rank} after {:.1?}: {failed}", reset.elapsed());
            let named =
                [1, 2].iter().any(|peer| *peer != rank && failed.contains(&format!("rank {peer} on host node{peer}")));
            assert!(named, "{api:?}: rank {rank} reported: {failed}");
        }
        assert!(reset.elapsed() < LIMIT);
    }
}
