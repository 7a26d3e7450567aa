//! 5,000 simulated agents on one server: heartbeat rate, server memory and CPU, placement and start of a gang of 1,000.
//!
//! The server is a real `corro server`. The agents are tasks of one other process; each has joined with the open token, keeps
//! its own WebSocket and sends a heartbeat every second, as real ones do. They run nothing, so that only the server is
//! measured.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::{Scale, Verdict};
use crate::api::Api;
use crate::fixture::{job_json, job_request, make_resources, ranks};
use crate::memory::{peak, resident};
use crate::site::Site;
use crate::stats::{Samples, print_heading};
use crate::{machine, simulated_agents};

pub const PROMISE: &str = "5,000 agents held by one server, and a gang of 1,000 placed and run";
const AGENTS: usize = 5_000;
const GANG: usize = 1_000;
/// Timeout for all joins, and for a gang to run.
const MILESTONE_TIMEOUT: Duration = Duration::from_secs(180);

pub fn run(scale: Scale) -> Result<Verdict> {
    let hold = Duration::from_secs(scale.pick(10, 60));
    let gangs = scale.pick(2, 5);
    raise_open_file_limit()?;
    let mut site = Site::new()?;
    site.serve()?;
    make_resources(&site, AGENTS)?;
    let api = Api::connect(&site)?;
    let server = site.server_pid()?;
    let alone = resident(server)?.rss;

    let began = Instant::now();
    let agents = AgentsProcess::start(&site)?;
    agents.wait("connected")?;
    let connected = began.elapsed().as_secs_f64();
    agents.wait("ready")?;
    api.wait_for_idle_nodes(AGENTS)?;
    let idle = began.elapsed().as_secs_f64();

    let (mut memory, mut processor) =
        (Samples::new("server memory while held: RSS", "MB"), Samples::new("server processor while held", "%"));
    let until = Instant::now() + hold;
    while Instant::now() < until {
        let (at, before) = (Instant::now(), machine::processor_seconds(server)?);
        std::thread::park_timeout(Duration::from_secs(1));
        agents.check()?;
        processor.add(100.0 * (machine::processor_seconds(server)? - before) / at.elapsed().as_secs_f64());
        memory.add(resident(server)?.rss);
    }
    api.wait_for_idle_nodes(AGENTS).context("not every node is still idle")?;

    let ms = |name: &str| Samples::new(name, "ms");
    let (mut ordered, mut running) = (ms("gang of 1,000: all have their orders"), ms("gang of 1,000: all run"));
    let mut used = Samples::new("server processor time for such a gang", "ms");
    let key = api.account_key()?;
    for number in 0..gangs {
        let mut job = job_json(ranks(&["true".to_owned()]));
        job["properties"]["nodeCount"] = GANG.into();
        let request = job_request(job, &api, &key)?;
        let name = format!("gang{number}");
        let before = machine::processor_seconds(server)?;
        let began = api.submit(&name, &request)?;
        ordered.add((agents.wait("ordered")? - began).as_secs_f64() * 1e3);
        running.add((agents.wait("running")? - began).as_secs_f64() * 1e3);
        api.wait_for_success(&name)?;
        api.wait_for_idle_nodes(AGENTS)?;
        used.add(1e3 * (machine::processor_seconds(server)? - before));
    }
    agents.check()?;
    println!(
        "{AGENTS} agents connected after {connected:.1} s, all nodes idle after {idle:.1} s; then held for {} s",
        hold.as_secs()
    );
    println!("server memory: {alone:.1} MB before they came, at most {:.1} MB\n", peak(server)?);
    drop(agents);
    print_heading();
    [&memory, &processor, &ordered, &running, &used].into_iter().for_each(Samples::print_row);
    let figures = format!(
        "{AGENTS} agents held for {} s without a loss: {:.0} MB ({:.1} kB an agent), {:.0} % of one processor ({:.0} µs a heartbeat); gang of {GANG}: all ordered after {:.0} ms, all run after {:.0} ms",
        hold.as_secs(),
        memory.max(),
        1e3 * (memory.max() - alone) / AGENTS as f64,
        processor.p50(),
        1e4 * processor.p50() / AGENTS as f64,
        ordered.p50(),
        running.p50()
    );
    Ok(Verdict { met: true, figures })
}

/// Raises the limit of open files: every agent is one in each process.
fn raise_open_file_limit() -> Result<()> {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum })?;
    let files = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    ensure!(files > 2 * AGENTS as u64, "the limit of open files is {files}, too low for {AGENTS} agents");
    Ok(())
}

/// The process that simulates the agents, and the lines it prints.
struct AgentsProcess {
    child: Child,
    output: Receiver<(Instant, String)>,
}

impl AgentsProcess {
    fn start(site: &Site) -> Result<Self> {
        let token = std::fs::read_to_string(site.data().join("join-token"))?;
        let mut command = Command::new(std::env::current_exe()?);
        command
            .arg(simulated_agents::SUBCOMMAND)
            .arg(site.profile()?.server)
            .arg(AGENTS.to_string())
            .arg(GANG.to_string());
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        writeln!(child.stdin.as_mut().expect("standard input is piped"), "{}", token.trim())?;
        let lines = BufReader::new(child.stdout.take().expect("standard output is piped")).lines();
        let (sender, output) = channel();
        std::thread::spawn(move || {
            lines.map_while(Result::ok).try_for_each(|line| sender.send((Instant::now(), line)))
        });
        Ok(Self { child, output })
    }

    /// Waits for this line and returns its time. Any other line is a failure.
    fn wait(&self, expected: &str) -> Result<Instant> {
        match self.output.recv_timeout(MILESTONE_TIMEOUT) {
            Ok((at, line)) if line == expected => Ok(at),
            Ok((_, line)) => bail!("the agents printed '{line}' instead of '{expected}'"),
            Err(_) => bail!("the agents did not print '{expected}' within {} s", MILESTONE_TIMEOUT.as_secs()),
        }
    }

    /// Fails if an agent has been lost.
    fn check(&self) -> Result<()> {
        match self.output.try_recv() {
            Ok((_, line)) => bail!("an agent was lost: {line}"),
            Err(_) => Ok(()),
        }
    }
}

impl Drop for AgentsProcess {
    fn drop(&mut self) {
        // It exits when its standard input closes; `kill` only makes sure.
        drop(self.child.stdin.take());
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
