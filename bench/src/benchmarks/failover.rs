//! Recovery time after the death of a rank, a host or the server, with a gang over four hosts in network namespaces.
//!
//! A rank: until the job has failed and all nodes are idle. A host, all of whose processes are killed and which is replaced at
//! once by a new one: until the whole gang runs again, less the lease that has to expire first. The server, which is restarted
//! at once: until another job's ranks run.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::process::Signal;
use serde_json::{Value, json};

use super::{Scale, Verdict};
use crate::api::Api;
use crate::fixture::{NODES, job_json, job_request, ranks};
use crate::netns_cluster::{NetnsCluster, signal};
use crate::site::wait_for;
use crate::stats::{Samples, print_heading};

pub const PROMISE: &str = "after a rank's death 2 s, a host's 5 s beyond the lease, the server's 3 s (p50)";
const MAX_RECOVERY_MS: [f64; 3] = [2000.0, 5000.0, 3000.0];
/// The shortest lease that a server accepts.
const LEASE_TIME: Duration = Duration::from_secs(3);
const SERVER_OPTIONS: &[&str] = &["--lease", "3"];
/// Command that a rank ends in; the unusual time identifies its process.
const SLEEP_COMMAND: &str = "sleep 86397";

pub fn run(scale: Scale) -> Result<Verdict> {
    let mut benchmark = FailoverBenchmark { cluster: NetnsCluster::start(NODES, SERVER_OPTIONS)?, n_jobs: 0 };
    let ms = |name: &str| Samples::new(name, "ms");
    let (mut rank, mut host, mut server) = (
        ms("rank killed: all nodes idle again"),
        ms("host killed: gang runs again, less the lease"),
        ms("server killed: the next job runs"),
    );
    for _ in 0..scale.pick(3, 20) {
        rank.add(benchmark.kill_rank()?);
        host.add(benchmark.kill_host()?);
        server.add(benchmark.kill_server()?);
    }
    drop(benchmark);
    print_heading();
    [&rank, &host, &server].into_iter().for_each(Samples::print_row);
    let p50 = [rank.p50(), host.p50(), server.p50()];
    let figures = format!(
        "p50 {:.0} ms after a rank's death, {:.0} ms beyond the lease after a host's, {:.0} ms after the server's (promised: {:.0}, {:.0} and {:.0} ms)",
        p50[0], p50[1], p50[2], MAX_RECOVERY_MS[0], MAX_RECOVERY_MS[1], MAX_RECOVERY_MS[2]
    );
    Ok(Verdict { met: p50.iter().zip(MAX_RECOVERY_MS).all(|(p50, limit)| *p50 <= limit), figures })
}

/// The cluster, and the number of jobs submitted so far.
struct FailoverBenchmark {
    cluster: NetnsCluster,
    n_jobs: usize,
}

impl FailoverBenchmark {
    fn kill_rank(&mut self) -> Result<f64> {
        let api = Api::connect(&self.cluster.site)?;
        self.start_gang(&api)?;
        let killed = Instant::now();
        signal(self.rank_pid(2)?, Signal::KILL);
        api.wait_for_idle_nodes(NODES)?;
        Ok(ms_since(killed))
    }

    fn kill_host(&mut self) -> Result<f64> {
        let api = Api::connect(&self.cluster.site)?;
        let name = self.start_gang(&api)?;
        let killed = Instant::now();
        self.cluster.power_off(3)?;
        self.cluster.replace(3)?;
        let (_, all) = self.cluster.listener.wait(&name, NODES)?;
        let recovery = (all - killed).saturating_sub(LEASE_TIME).as_secs_f64() * 1e3;
        api.terminate(&name)?;
        api.wait_for_idle_nodes(NODES)?;
        Ok(recovery)
    }

    fn kill_server(&mut self) -> Result<f64> {
        let killed = Instant::now();
        self.cluster.site.kill()?;
        self.cluster.restart_server(SERVER_OPTIONS)?;
        let api = Api::connect(&self.cluster.site)?;
        let (name, exe) = (self.next_name(), std::env::current_exe()?);
        let job = ranks(&self.cluster.listener.command(&exe, &name));
        let (_, all) = self.submit(&api, &name, job)?;
        api.wait_for_success(&name)?;
        api.wait_for_idle_nodes(NODES)?;
        Ok((all - killed).as_secs_f64() * 1e3)
    }

    /// Starts ranks that report that they run, and stay.
    fn start_gang(&mut self, api: &Api) -> Result<String> {
        let (name, exe) = (self.next_name(), std::env::current_exe()?);
        let command = self.cluster.listener.command(&exe, &name).join(" ");
        let job = json!({"customMpiSettings": {"commandLine": format!("{command}; exec {SLEEP_COMMAND}")}});
        self.submit(api, &name, job)?;
        Ok(name)
    }

    fn submit(&self, api: &Api, name: &str, job: Value) -> Result<(Instant, Instant)> {
        api.submit(name, &job_request(job_json(job), api, &api.account_key()?)?)?;
        self.cluster.listener.wait(name, NODES)
    }

    fn next_name(&mut self) -> String {
        self.n_jobs += 1;
        format!("job{}", self.n_jobs)
    }

    /// Process id of the rank on a host.
    fn rank_pid(&self, host: usize) -> Result<u32> {
        wait_for("a rank that sleeps", Duration::from_millis(2), || {
            let is_rank = |pid: &u32| {
                let command_line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
                String::from_utf8_lossy(&command_line).replace('\0', " ").trim_end() == SLEEP_COMMAND
            };
            Ok(self.cluster.processes_on(host)?.into_iter().find(is_rank))
        })
        .context("no rank on a host")
    }
}

fn ms_since(then: Instant) -> f64 {
    then.elapsed().as_secs_f64() * 1e3
}
