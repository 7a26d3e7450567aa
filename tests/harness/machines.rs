//! Simulated machines for agents: a network namespace each, joined with this one by a bridge in another, and a mount namespace
//! in which the server's directory is empty. Needs root, `ip` and FUSE; removed however a test ends.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use corro_test_support::skip;

use super::Site;
use super::fault_injection::JoinedAgent;

pub struct Machines {
    /// Prefix of all names, so that tests can run in parallel.
    prefix: String,
    net: u32,
    n: usize,
}

impl Machines {
    /// `None`, with a notice, if namespaces cannot be created.
    pub fn new(n: usize) -> Option<Machines> {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let has_ip = Command::new("ip").arg("-V").output().is_ok();
        if !rustix::process::geteuid().is_root() || !has_ip || !Path::new("/dev/fuse").exists() {
            skip::missing_component("machines of their own need root, the program `ip` and FUSE");
            return None;
        }
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let (prefix, net) = (format!("m{}x{number}", std::process::id()), (std::process::id() * 7 + number) % 250);
        let machines = Machines { prefix, net, n };
        let (bridge, here) = (machines.bridge(), format!("{}r", machines.prefix));
        run(&format!("ip netns add {bridge}"));
        run(&format!("ip -n {bridge} link add br0 type bridge"));
        run(&format!("ip -n {bridge} link set br0 up"));
        run(&format!("ip link add {here} type veth peer name r netns {bridge}"));
        run(&format!("ip -n {bridge} link set r master br0 up"));
        run(&format!("ip addr add {}/24 dev {here}", machines.server()));
        run(&format!("ip link set {here} up"));
        for machine in 0..n {
            let name = machines.name(machine);
            run(&format!("ip netns add {name}"));
            run(&format!("ip -n {name} link set lo up"));
            run(&format!("ip -n {bridge} link add v{machine} type veth peer name eth0 netns {name}"));
            run(&format!("ip -n {bridge} link set v{machine} master br0 up"));
            run(&format!("ip -n {name} addr add {}/24 dev eth0", machines.address(machine)));
            run(&format!("ip -n {name} link set eth0 up"));
        }
        Some(machines)
    }

    /// This machine's address as the others see it.
    pub fn server(&self) -> String {
        format!("10.197.{}.1", self.net)
    }

    pub fn address(&self, machine: usize) -> String {
        format!("10.197.{}.{}", self.net, machine + 2)
    }

    /// Starts an agent without access to the server's directory, for a site started with `corro server --tls`. It exits when
    /// its node is removed.
    pub fn join(&self, site: &Site, machine: usize) -> JoinedAgent {
        self.join_with(site, machine, &[], &["--once"])
    }

    /// Like `join`, through `before`, a program that runs another, and with other arguments than `--once`.
    pub fn join_with(&self, site: &Site, machine: usize, before: &[&str], words: &[&str]) -> JoinedAgent {
        self.join_as(&format!("machine-{machine}"), site, machine, before, words)
    }

    /// Like `join_with`, under a given name, for a machine with several agents.
    pub fn join_as(&self, name: &str, site: &Site, machine: usize, before: &[&str], words: &[&str]) -> JoinedAgent {
        let dir = site.path().join(name);
        for file in ["join-token", "tls/ca.pem"] {
            let copy = site.path().join(file.rsplit('/').next().expect("a name"));
            // An agent that has just started may be reading the file.
            if !copy.exists() {
                fs::copy(site.data().join(file), copy).expect("the server has it");
            }
        }
        let agent = site.command("corro");
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/run/netns/{}", self.name(machine))).args(["unshare", "-m", "sh", "-c"]);
        command.arg("mount -t tmpfs tmpfs \"$1\" && shift && exec \"$@\"").arg("sh").arg(site.data());
        command.args(before).arg(agent.get_program()).arg("agent").args(words).args([
            "--server",
            &site.url,
            "--join-token-file",
        ]);
        command.arg(site.path().join("join-token")).arg("--ca").arg(site.path().join("ca.pem"));
        command.arg("--data").arg(&dir).current_dir(site.path()).stdin(Stdio::null());
        for (name, value) in agent.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        let log = File::options().append(true).create(true).open(site.path().join(format!("{name}.log")));
        command.env("CORRO_LOG", "info").stdout(Stdio::null()).stderr(log.expect("a log file"));
        JoinedAgent::new(command.spawn().expect("the agent starts"), dir)
    }

    /// Adds a second network to the machine, as `eth1`, and returns its address there.
    pub fn add_network(&self, machine: usize) -> String {
        let (name, bridge, address) =
            (self.name(machine), self.bridge(), format!("10.198.{}.{}", self.net, machine + 2));
        run(&format!("ip -n {bridge} link add w{machine} type veth peer name eth1 netns {name}"));
        run(&format!("ip -n {bridge} link set w{machine} master br0 up"));
        run(&format!("ip -n {name} addr add {address}/24 dev eth1"));
        run(&format!("ip -n {name} link set eth1 up"));
        address
    }

    /// Sets the machine's link `up` or `down`.
    pub fn set_link(&self, machine: usize, state: &str) {
        run(&format!("ip -n {} link set v{machine} {state}", self.bridge()));
    }

    /// Runs a command line in the machine's network namespace.
    pub fn run_inside(&self, machine: usize, line: &str) {
        run(&format!("nsenter --net=/run/netns/{} {line}", self.name(machine)));
    }

    /// All processes in the machine's network namespace.
    pub fn processes_on(&self, machine: usize) -> Vec<u32> {
        use std::os::unix::fs::MetadataExt;
        let Ok(space) = fs::metadata(format!("/run/netns/{}", self.name(machine))) else { return Vec::new() };
        let is_there =
            |pid: &u32| fs::metadata(format!("/proc/{pid}/ns/net")).is_ok_and(|found| found.ino() == space.ino());
        all_processes().filter(is_there).collect()
    }

    /// Simulates a power cut: kills all processes of the machine at once, without any message to the server.
    pub fn power_off(&self, machine: usize) {
        self.set_link(machine, "down");
        // Processes may fork while others are killed.
        super::wait_for("nothing to run on the machine", || {
            let left = self.processes_on(machine);
            left.iter().for_each(|pid| super::signal(*pid, rustix::process::Signal::KILL));
            left.iter().all(|pid| !super::is_alive(*pid))
        });
    }

    fn name(&self, machine: usize) -> String {
        format!("{}h{machine}", self.prefix)
    }

    fn bridge(&self) -> String {
        format!("{}b", self.prefix)
    }
}

impl Drop for Machines {
    fn drop(&mut self) {
        // Links vanish with the namespace of either end.
        for name in (0..self.n).map(|machine| self.name(machine)).chain([self.bridge()]) {
            let _ = Command::new("ip").args(["netns", "del", &name]).output();
        }
    }
}

fn run(line: &str) {
    let mut words = line.split_whitespace();
    let output = Command::new(words.next().expect("a program")).args(words).output().expect("it starts");
    assert!(output.status.success(), "`{line}`: {}", String::from_utf8_lossy(&output.stderr));
}

/// Mounts from a server on the agent's machine.
pub fn mounted_on(pid: u32) -> Vec<String> {
    let table = fs::read_to_string(format!("/proc/{pid}/mountinfo")).unwrap_or_default();
    let ours = table.lines().filter(|line| line.contains("corro://"));
    ours.filter_map(|line| line.split(' ').nth(4)).map(str::to_owned).collect()
}

/// All processes of the machine that this one is on, by its mount namespace.
pub fn processes_beside(space: &Path) -> Vec<u32> {
    let is_there = |pid: &u32| fs::read_link(format!("/proc/{pid}/ns/mnt")).is_ok_and(|found| found == space);
    all_processes().filter(is_there).collect()
}

fn all_processes() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").expect("Linux has it").flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}
