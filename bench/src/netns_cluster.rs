//! A server on this machine and one agent on each of several hosts in network namespaces, which cannot see the server's
//! directory: real joins over TLS, real mounts. Needs root, `ip` and FUSE. Everything is torn down on drop.

use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process, set_parent_process_death_signal};

use crate::allreduce::hosts::Hosts;
use crate::api::Api;
use crate::fixture::make_resources;
use crate::peers::output_of;
use crate::rank::RankListener;
use crate::site::{DEADLINE, Site, wait_for};

/// Server, agents and hosts.
pub struct NetnsCluster {
    agents: Vec<Child>,
    pub site: Site,
    pub listener: RankListener,
    address: String,
    hosts: Hosts,
}

impl NetnsCluster {
    /// The tutorial's cluster with `count` hosts as nodes; returns when they are idle.
    pub fn start(count: usize, options: &[&str]) -> Result<Self> {
        ensure!(Path::new("/dev/fuse").exists(), "this machine has no /dev/fuse, which the hosts need to mount shares");
        let hosts = Hosts::create(count)?;
        let here = hosts.connect_this_machine()?;
        let (listener, mut site) = (RankListener::open_at(here.into())?, Site::new()?);
        site.serve_at(&format!("{here}:0"), options)?;
        let server = site.profile()?.server;
        let address = server.trim_start_matches("https://").to_owned();
        for file in ["join-token", "tls/ca.pem"] {
            let name = file.rsplit('/').next().context("the path has no file name")?;
            std::fs::copy(site.data().join(file), site.path().join(name))
                .context("the server has not written its join token or CA")?;
        }
        let mut cluster = Self { agents: Vec::new(), site, listener, address, hosts };
        for host in 1..=count {
            let agent = cluster.start_agent(host)?;
            cluster.agents.push(agent);
        }
        make_resources(&cluster.site, count)?;
        Api::connect(&cluster.site)?.wait_for_idle_nodes(count)?;
        Ok(cluster)
    }

    /// Restarts the killed server at the same address.
    pub fn restart_server(&mut self, options: &[&str]) -> Result<()> {
        let address = self.address.clone();
        self.site.serve_at(&address, options).map(|_| ())
    }

    /// Kills everything on a host at once. Counted from 1.
    pub fn power_off(&mut self, host: usize) -> Result<()> {
        wait_for("the end of all processes of a host", Duration::from_millis(1), || {
            let pids = self.processes_on(host)?;
            pids.iter().for_each(|pid| signal(*pid, Signal::KILL));
            // Our child remains as a zombie until it is reaped.
            Ok(pids.iter().all(|pid| *pid == self.agents[host - 1].id()).then_some(()))
        })?;
        self.agents[host - 1].wait()?;
        Ok(())
    }

    /// Replaces the powered-off machine by a new one with an empty disk.
    pub fn replace(&mut self, host: usize) -> Result<()> {
        std::fs::remove_dir_all(self.site.path().join(format!("host-{host}")))?;
        self.agents[host - 1] = self.start_agent(host)?;
        Ok(())
    }

    pub fn processes_on(&self, host: usize) -> Result<Vec<u32>> {
        let name = self.hosts.namespace_file(host);
        let name = name.file_name().context("the path has no file name")?;
        let pids = output_of(Command::new("ip").args(["netns", "pids"]).arg(name))?;
        Ok(pids.split_whitespace().filter_map(|pid| pid.parse().ok()).collect())
    }

    fn start_agent(&self, host: usize) -> Result<Child> {
        let corro = self.site.command();
        let mut command = Command::new("nsenter");
        command.arg(format!("--net={}", self.hosts.namespace_file(host).display())).args(["unshare", "-m", "sh", "-c"]);
        command.arg("mount -t tmpfs tmpfs \"$1\" && shift && exec \"$@\"").arg("sh").arg(self.site.data());
        command.arg(corro.get_program()).args(["agent", "--server", &format!("https://{}", self.address)]);
        command.arg("--join-token-file").arg(self.site.path().join("join-token"));
        command.arg("--ca").arg(self.site.path().join("ca.pem"));
        command.arg("--data").arg(self.site.path().join(format!("host-{host}")));
        for (name, value) in corro.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        let log = File::options().append(true).create(true).open(self.site.path().join(format!("host-{host}.log")))?;
        command.env("CORRO_MPIRUN", "none").stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        command.current_dir(self.site.path());
        // SAFETY: runs between fork and exec and makes one async-signal-safe system call.
        unsafe {
            command.pre_exec(|| Ok(set_parent_process_death_signal(Some(Signal::TERM))?));
        }
        command.spawn().context("cannot start an agent on a host")
    }
}

impl Drop for NetnsCluster {
    fn drop(&mut self) {
        self.agents.iter().for_each(|agent| signal(agent.id(), Signal::TERM));
        let deadline = Instant::now() + DEADLINE;
        for agent in &mut self.agents {
            while matches!(agent.try_wait(), Ok(None)) && Instant::now() < deadline {
                std::thread::park_timeout(Duration::from_millis(5));
            }
            let _ = agent.kill();
            let _ = agent.wait();
        }
    }
}

pub fn signal(pid: u32, signal: Signal) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        // It may have exited already.
        let _ = kill_process(pid, signal);
    }
}
