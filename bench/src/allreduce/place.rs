//! Placement of the ranks of one measurement: hosts, and ranks per host. Pure.

use super::hosts::Hosts;

#[derive(Clone, Copy, Debug)]
pub enum Place<'a> {
    /// Number of ranks on this machine.
    Here(usize),
    /// One rank on each of the first hosts, and their number.
    Hosts(&'a Hosts, usize),
}

impl Place<'_> {
    pub fn ranks(&self) -> usize {
        match self {
            Place::Here(ranks) | Place::Hosts(_, ranks) => *ranks,
        }
    }

    pub fn name(&self) -> String {
        match self {
            Place::Here(ranks) => format!("{ranks} ranks on one host"),
            Place::Hosts(hosts, ranks) => match hosts.rate() {
                None => format!("{ranks} ranks on {ranks} hosts"),
                Some(rate) => format!("{ranks} ranks on {ranks} hosts at {rate}"),
            },
        }
    }

    /// Name of the only interface that leads to the other ranks.
    pub fn interface(&self) -> &'static str {
        match self {
            Place::Here(_) => "lo",
            Place::Hosts(..) => "eth0",
        }
    }
}
