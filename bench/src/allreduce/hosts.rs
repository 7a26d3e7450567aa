//! Simulated hosts: network namespaces joined by a bridge in a namespace of its own, isolated from the machine's network. Needs
//! root and `ip`. Everything is removed on drop.

use std::cell::RefCell;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::peers::output_of;

const NAMESPACE_PREFIX: &str = "corrobench";

/// Network namespaces that act as hosts, and the bridge between them.
#[derive(Debug)]
pub struct Hosts {
    /// Prefix of all namespace names.
    tag: String,
    count: usize,
    rate: RefCell<Option<String>>,
}

impl Hosts {
    pub fn create(count: usize) -> Result<Self> {
        ensure!(rustix::process::geteuid().is_root(), "network namespaces need root");
        let hosts = Self { tag: format!("{NAMESPACE_PREFIX}{}", std::process::id()), count, rate: RefCell::new(None) };
        remove_leftovers()?;
        let bridge = hosts.namespace(0);
        ip(&["netns", "add", &bridge]).context("cannot create a network namespace (Debian's package iproute2)")?;
        ip(&["-n", &bridge, "link", "add", "br0", "type", "bridge"])?;
        ip(&["-n", &bridge, "link", "set", "br0", "up"])?;
        for host in 1..=count {
            let (name, veth) = (hosts.namespace(host), format!("v{host}"));
            ip(&["netns", "add", &name])?;
            ip(&["-n", &bridge, "link", "add", &veth, "type", "veth", "peer", "name", "eth0", "netns", &name])?;
            ip(&["-n", &bridge, "link", "set", &veth, "master", "br0", "up"])?;
            ip(&["-n", &name, "addr", "add", &format!("{}/24", hosts.address(host)), "dev", "eth0"])?;
            ip(&["-n", &name, "link", "set", "eth0", "up"])?;
            ip(&["-n", &name, "link", "set", "lo", "up"])?;
        }
        Ok(hosts)
    }

    /// Connects this machine's own network to the bridge; returns this machine's address there.
    pub fn connect_this_machine(&self) -> Result<Ipv4Addr> {
        let (here, name) = (Ipv4Addr::new(10, 88, 0, 254), format!("cb{}", std::process::id()));
        ip(&["link", "add", &name, "type", "veth", "peer", "name", "here", "netns", &self.namespace(0)])?;
        ip(&["-n", &self.namespace(0), "link", "set", "here", "master", "br0", "up"])?;
        ip(&["addr", "add", &format!("{here}/24"), "dev", &name])?;
        ip(&["link", "set", &name, "up"])?;
        Ok(here)
    }

    /// Hosts are counted from 1, the last number of their address.
    pub fn address(&self, host: usize) -> Ipv4Addr {
        Ipv4Addr::new(10, 88, 0, u8::try_from(host).expect("few hosts"))
    }

    pub fn namespace_file(&self, host: usize) -> PathBuf {
        format!("/run/netns/{}", self.namespace(host)).into()
    }

    /// A shell line that runs on a host, under its own host name.
    pub fn shell(&self, host: usize, line: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net={}", self.namespace_file(host).display()));
        command.args(["unshare", "--uts", "sh", "-c", &format!("hostname node{host} && {line}"), "sh"]);
        command
    }

    /// A program that runs on a host; arguments can be added.
    pub fn program(&self, host: usize, program: &str) -> Command {
        let mut command = self.shell(host, "exec \"$@\"");
        command.arg(program);
        command
    }

    /// Replacement of `ssh`: finds the host by its address and runs the command there.
    pub fn remote_shell(&self) -> String {
        format!(
            "#!/bin/sh
while case $1 in -*) true ;; *) false ;; esac; do shift; done
host=${{1##*.}}
shift
exec nsenter --net=/run/netns/{}-$host unshare --uts sh -c \"hostname node$host && $*\"
",
            self.tag
        )
    }

    /// Limits the send rate of each host, or removes the limit.
    pub fn limit_rate(&self, rate: Option<&str>) -> Result<()> {
        for host in 1..=self.count {
            let name = self.namespace(host);
            if self.rate.borrow().is_some() {
                output_of(Command::new("tc").args(["-n", &name, "qdisc", "del", "dev", "eth0", "root"]))?;
            }
            if let Some(rate) = rate {
                let limit = ["root", "tbf", "rate", rate, "burst", "256kb", "latency", "50ms"];
                output_of(Command::new("tc").args(["-n", &name, "qdisc", "add", "dev", "eth0"]).args(limit))?;
            }
        }
        self.rate.replace(rate.map(str::to_owned));
        Ok(())
    }

    pub fn rate(&self) -> Option<String> {
        self.rate.borrow().clone()
    }

    /// The bridge is number 0.
    fn namespace(&self, host: usize) -> String {
        format!("{}-{host}", self.tag)
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for host in 0..=self.count {
            if self.namespace_file(host).exists() {
                let _ = ip(&["netns", "del", &self.namespace(host)]);
            }
        }
    }
}

/// Removes leftovers of a killed benchmark.
fn remove_leftovers() -> Result<()> {
    for line in output_of(Command::new("ip").args(["netns", "list"]))?.lines() {
        let name = line.split_whitespace().next().unwrap_or_default();
        let creator = name.strip_prefix(NAMESPACE_PREFIX).and_then(|rest| rest.split('-').next());
        if creator.is_some_and(|pid| !Path::new("/proc").join(pid).exists()) {
            ip(&["netns", "del", name])?;
        }
    }
    Ok(())
}

fn ip(arguments: &[&str]) -> Result<()> {
    output_of(Command::new("ip").args(arguments)).map(|_| ())
}
