//! A machine whose clock is wrong by an hour: certificates, mount tokens and leases must be unaffected.

use corro_test_support::skip;

use super::harness::Site;
use super::harness::fake_clock::{FakeClock, library};
use super::harness::machines::Machines;
use super::{Rack, SHORT_LEASE};

#[test]
fn clocks_that_are_wrong_by_an_hour_disturb_nothing() {
    let Some(clock) = library() else {
        skip::missing_component("no libfaketime on this machine, so no clock can be wrong");
        return;
    };
    let Some(machines) = Machines::new(2) else { return };
    let mut site = Site::unstarted(SHORT_LEASE);
    site.start_server("server", &format!("{}:0", machines.server()), "info");
    let join = |machine, shift: &str| {
        // Monotonic clocks stay right on every machine.
        let (preload, shift) = (format!("LD_PRELOAD={}", clock.display()), format!("FAKETIME={shift}"));
        machines.join_with(&site, machine, &["env", "FAKETIME_DONT_FAKE_MONOTONIC=1", &shift, &preload], &[])
    };
    let agents = vec![join(0, "+1h"), join(1, "-1h")];
    site.prepare(2);
    let rack = Rack { agents, site, machines };
    let starts = rack.start_gang();
    for agent in &rack.agents {
        assert!(FakeClock::is_seen_by(agent.child.id()), "its clock is right");
    }
    rack.finish(2);
    rack.assert_clean(&starts);
}
