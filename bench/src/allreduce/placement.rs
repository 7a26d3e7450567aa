//! Placement of the ranks of one measurement: hosts, and ranks per host. Pure.

use super::hosts::Hosts;

/// Placement of the ranks of one measurement.
#[derive(Clone, Copy, Debug)]
pub enum Placement<'a> {
    /// Number of ranks on this machine.
    OneHost(usize),
    /// One rank on each of the first hosts; the number of ranks.
    Hosts(&'a Hosts, usize),
}

impl Placement<'_> {
    pub fn ranks(&self) -> usize {
        match self {
            Placement::OneHost(ranks) | Placement::Hosts(_, ranks) => *ranks,
        }
    }

    pub fn name(&self) -> String {
        match self {
            Placement::OneHost(ranks) => format!("{ranks} ranks on one host"),
            Placement::Hosts(hosts, ranks) => match hosts.rate() {
                None => format!("{ranks} ranks on {ranks} hosts"),
                Some(rate) => format!("{ranks} ranks on {ranks} hosts at {rate}"),
            },
        }
    }

    /// Name of the only interface that leads to the other ranks.
    pub fn interface(&self) -> &'static str {
        match self {
            Placement::OneHost(_) => "lo",
            Placement::Hosts(..) => "eth0",
        }
    }
}
