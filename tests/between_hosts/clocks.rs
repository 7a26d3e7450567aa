//! A machine whose clock is wrong by an hour: certificates, passes and leases must not care.

use std::path::PathBuf;

use super::harness::Site;
use super::harness::machines::Machines;
use super::{Rack, SHORT_LEASE};

/// What shows a program another time than the machine's.
fn another_clock() -> Option<PathBuf> {
    let libraries = std::fs::read_dir("/usr/lib").into_iter().flatten().flatten();
    libraries.map(|entry| entry.path().join("faketime/libfaketime.so.1")).find(|library| library.exists())
}

#[test]
fn clocks_that_are_wrong_by_an_hour_disturb_nothing() {
    let Some(clock) = another_clock() else {
        eprintln!("SKIPPED: no libfaketime on this machine, so no clock can be wrong");
        return;
    };
    let Some(machines) = Machines::new(2) else { return };
    let mut site = Site::unstarted(SHORT_LEASE);
    site.host("server", &format!("{}:0", machines.server()), "info");
    let join = |machine, shift: &str| {
        // What measures spans of time is right on every machine.
        let (preload, shift) = (format!("LD_PRELOAD={}", clock.display()), format!("FAKETIME={shift}"));
        machines.join_with(&site, machine, &["env", "FAKETIME_DONT_FAKE_MONOTONIC=1", &shift, &preload], &[])
    };
    let agents = vec![join(0, "+1h"), join(1, "-1h")];
    site.prepare(2);
    let rack = Rack { agents, site, machines };
    let starts = rack.start_gang();
    for agent in &rack.agents {
        let maps = std::fs::read_to_string(format!("/proc/{}/maps", agent.child.id())).expect("the agent lives");
        assert!(maps.contains("libfaketime"), "its clock is right");
    }
    rack.finish(2);
    rack.assert_clean(&starts);
}
