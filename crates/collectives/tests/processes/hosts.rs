//! Hosts as network namespaces, connected by a bridge in another namespace, so that tests can disconnect and slow networks. Needs root and
//! `ip`; all namespaces are removed at the end of a test.

use std::ffi::OsString;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};

use corro_test_support::skip;

use super::{Gang, Rank, Variables, new_job, own_command, variables};

pub struct Hosts {
    /// Prefix of all names, so that tests can run at the same time.
    prefix: String,
    n: usize,
    addresses: Addresses,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Addresses {
    V4,
    V6,
}

impl Hosts {
    /// `None`, with a message, where this is not possible.
    pub fn new(n: usize, addresses: Addresses) -> Option<Hosts> {
        static MADE: AtomicU64 = AtomicU64::new(0);
        let usable = rustix::process::geteuid().is_root() && Command::new("ip").arg("-V").output().is_ok();
        if !usable {
            skip::unsupported_machine("hosts in network namespaces need root and the program `ip`");
            return None;
        }
        let prefix = format!("c{}x{}", std::process::id(), MADE.fetch_add(1, Ordering::Relaxed));
        let hosts = Hosts { prefix, n, addresses };
        run(&format!("ip netns add {}", hosts.bridge()));
        hosts.network(0);
        Some(hosts)
    }

    /// Connects the hosts with an interface `eth<index>`.
    pub fn network(&self, index: usize) {
        let bridge = self.bridge();
        run(&format!("ip -n {bridge} link add br{index} type bridge"));
        run(&format!("ip -n {bridge} link set br{index} up"));
        for host in 0..self.n {
            let name = self.name(host);
            if index == 0 {
                run(&format!("ip netns add {name}"));
                run(&format!("ip -n {name} link set lo up"));
            }
            run(&format!("ip -n {bridge} link add v{index}h{host} type veth peer name eth{index} netns {name}"));
            run(&format!("ip -n {bridge} link set v{index}h{host} master br{index} up"));
            let options = if self.addresses == Addresses::V6 { "/64 nodad" } else { "/24" };
            run(&format!("ip -n {name} addr add {}{options} dev eth{index}", self.address(index, host)));
            run(&format!("ip -n {name} link set eth{index} up"));
        }
    }

    pub fn address(&self, index: usize, host: usize) -> String {
        match self.addresses {
            Addresses::V4 => format!("10.88.{index}.{}", host + 1),
            Addresses::V6 => format!("fd00:88:{index}::{}", host + 1),
        }
    }

    pub fn disconnect(&self, host: usize) {
        run(&format!("ip -n {} link set v0h{host} down", self.bridge()));
    }

    /// Runs a command on a host; true when it succeeded.
    pub fn on(&self, host: usize, command: &str) -> bool {
        try_run(&format!("nsenter --net=/run/netns/{} {command}", self.name(host))).is_ok()
    }

    /// Starts `each` ranks on every host, host by host, and waits until they are connected. Host names are `node0`, `node1`...
    pub fn gang(&self, each: usize, more: &[(&str, &str)]) -> Gang {
        let job = new_job();
        let size = self.n * each;
        let rank_variables = |rank: usize| -> Variables {
            let (rank, size, master) = (rank.to_string(), size.to_string(), self.address(0, 0));
            let numbers = [("RANK", &*rank), ("WORLD_SIZE", &*size), ("MASTER_ADDR", &*master), ("MASTER_PORT", &*job)];
            [variables(&numbers), variables(more)].concat()
        };
        let mut gang = Gang { ranks: Vec::new() };
        for rank in 0..size {
            let script = format!("hostname node{}; exec \"$@\"", rank / each);
            let enter = ["nsenter", &format!("--net=/run/netns/{}", self.name(rank / each)), "unshare", "--uts", "sh"];
            let command = enter.into_iter().chain(["-c", &script, "sh"]).map(OsString::from).chain(own_command());
            gang.ranks.push(Rank::start(command.collect(), &rank_variables(rank)));
        }
        gang.wait_all("ready");
        gang
    }

    fn name(&self, host: usize) -> String {
        format!("{}h{host}", self.prefix)
    }

    fn bridge(&self) -> String {
        format!("{}b", self.prefix)
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        // Interfaces are removed with their namespaces. Namespaces that were not created cause errors, which are ignored.
        for name in (0..self.n).map(|host| self.name(host)).chain([self.bridge()]) {
            let _ = try_run(&format!("ip netns del {name}"));
        }
    }
}

fn run(command: &str) {
    try_run(command).unwrap_or_else(|error| panic!("`{command}`: {error}"));
}

fn try_run(command: &str) -> Result<(), String> {
    let mut words = command.split_whitespace();
    let program = words.next().expect("a command has a program");
    let output = Command::new(program).args(words).output().map_err(|error| error.to_string())?;
    if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) }
}
