//! Placement of the ranks of one measurement: hosts, and ranks per host. Pure.

use super::hosts::Hosts;

#[derive(Clone, Copy, Debug)]
pub enum Place<'a> {
    /// So many ranks on this machine.
    Here(usize),
    /// One rank on each of the first so many hosts.
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

    /// Where only one interface leads to the others, its name.
    pub fn interface(&self) -> &'static str {
        match self {
            Place::Here(_) => "lo",
            Place::Hosts(..) => "eth0",
        }
    }
}
