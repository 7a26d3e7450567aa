//! Kills: the server, an agent, or any process of a node, at random moments; some agents are only silenced, so that their
//! lease runs out. A killed server is started again where it was; everything else is Corro's business.

use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::dice_of;
use super::harness::{Site, signal};
use super::ledger::Ledger;

#[derive(Default)]
pub struct Kills(BTreeMap<&'static str, usize>);

impl Kills {
    pub fn total(&self) -> usize {
        self.0.values().sum()
    }
}

impl fmt::Display for Kills {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "kills: {}", self.total())?;
        self.0.iter().try_for_each(|(what, count)| write!(f, ", {what} {count}"))
    }
}

pub fn kill_until(site: &mut Site, ledger: &Ledger, until: Instant, seed: u64) -> Kills {
    let (mut kills, mut dice) = (Kills::default(), dice_of(0, seed));
    while Instant::now() < until {
        std::thread::park_timeout(Duration::from_millis(20 + dice.between(0, 400)));
        ledger.saw_nodes(site.agents().into_iter().map(|(node, _)| node));
        let what = match dice.between(0, 10) {
            0..2 => {
                site.crash_and_restart();
                Some("servers")
            }
            2..4 => dice.pick(&site.agents()).map(|(_, pid)| {
                signal(*pid, Signal::KILL);
                "agents"
            }),
            4 => dice.pick(&site.agents()).map(|(_, pid)| {
                signal(*pid, Signal::STOP);
                "agents silenced"
            }),
            _ => dice.pick(&site.node_processes()).map(|pid| {
                let what = if is_ours(*pid) { "guards" } else { "ranks" };
                signal(*pid, Signal::KILL);
                what
            }),
        };
        if let Some(what) = what {
            *kills.0.entry(what).or_default() += 1;
        }
    }
    kills
}

/// Our own executable beside the ranks.
fn is_ours(pid: u32) -> bool {
    std::fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|exe| exe.ends_with("corro"))
}
