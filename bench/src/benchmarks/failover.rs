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
use crate::fixture::{NODES, job_json, ranks, request_of};
use crate::rack::{Rack, signal};
use crate::site::wait_for;
use crate::stats::{Samples, heading};

pub const PROMISE: &str = "after a rank's death 2 s, a host's 5 s beyond the lease, the server's 3 s (p50)";
const LIMITS_MS: [f64; 3] = [2000.0, 5000.0, 3000.0];
/// The shortest lease that a server accepts.
const LEASE: Duration = Duration::from_secs(3);
const OPTIONS: &[&str] = &["--lease", "3"];
/// A unique sleep time, to recognise the rank's process.
const SLEEP: &str = "sleep 86397";

pub fn run(scale: Scale) -> Result<Verdict> {
    let mut bench = Bench { rack: Rack::start(NODES, OPTIONS)?, n_jobs: 0 };
    let ms = |name: &str| Samples::new(name, "ms");
    let (mut rank, mut host, mut server) = (
        ms("rank killed: all nodes idle again"),
        ms("host killed: gang runs again, less the lease"),
        ms("server killed: the next job runs"),
    );
    for _ in 0..scale.pick(3, 20) {
        rank.add(bench.rank_dies()?);
        host.add(bench.host_dies()?);
        server.add(bench.server_dies()?);
    }
    drop(bench);
    heading();
    [&rank, &host, &server].into_iter().for_each(Samples::row);
    let p50 = [rank.p50(), host.p50(), server.p50()];
    let figures = format!(
        "p50 {:.0} ms after a rank's death, {:.0} ms beyond the lease after a host's, {:.0} ms after the server's (promised: {:.0}, {:.0} and {:.0} ms)",
        p50[0], p50[1], p50[2], LIMITS_MS[0], LIMITS_MS[1], LIMITS_MS[2]
    );
    Ok(Verdict { met: p50.iter().zip(LIMITS_MS).all(|(p50, limit)| *p50 <= limit), figures })
}

struct Bench {
    rack: Rack,
    n_jobs: usize,
}

impl Bench {
    fn rank_dies(&mut self) -> Result<f64> {
        let api = Api::connect(&self.rack.site)?;
        self.start_gang(&api)?;
        let killed = Instant::now();
        signal(self.sleeper(2)?, Signal::KILL);
        api.wait_for_idle_nodes(NODES)?;
        Ok(ms_since(killed))
    }

    fn host_dies(&mut self) -> Result<f64> {
        let api = Api::connect(&self.rack.site)?;
        let name = self.start_gang(&api)?;
        let killed = Instant::now();
        self.rack.power_off(3)?;
        self.rack.replace(3)?;
        let (_, all) = self.rack.ear.wait(&name, NODES)?;
        let passed = (all - killed).saturating_sub(LEASE).as_secs_f64() * 1e3;
        api.terminate(&name)?;
        api.wait_for_idle_nodes(NODES)?;
        Ok(passed)
    }

    fn server_dies(&mut self) -> Result<f64> {
        let killed = Instant::now();
        self.rack.site.kill()?;
        self.rack.serve_again(OPTIONS)?;
        let api = Api::connect(&self.rack.site)?;
        let (name, exe) = (self.next_name(), std::env::current_exe()?);
        let job = ranks(&self.rack.ear.command(&exe, &name));
        let (_, all) = self.submit(&api, &name, job)?;
        api.wait_for_success(&name)?;
        api.wait_for_idle_nodes(NODES)?;
        Ok((all - killed).as_secs_f64() * 1e3)
    }

    /// Starts ranks that report that they run, and stay.
    fn start_gang(&mut self, api: &Api) -> Result<String> {
        let (name, exe) = (self.next_name(), std::env::current_exe()?);
        let words = self.rack.ear.command(&exe, &name).join(" ");
        let job = json!({"customMpiSettings": {"commandLine": format!("{words}; exec {SLEEP}")}});
        self.submit(api, &name, job)?;
        Ok(name)
    }

    fn submit(&self, api: &Api, name: &str, job: Value) -> Result<(Instant, Instant)> {
        api.submit(name, &request_of(job_json(job), api, &api.account_key()?)?)?;
        self.rack.ear.wait(name, NODES)
    }

    fn next_name(&mut self) -> String {
        self.n_jobs += 1;
        format!("job{}", self.n_jobs)
    }

    /// Process id of the rank on a host.
    fn sleeper(&self, host: usize) -> Result<u32> {
        wait_for("a rank to sleep", Duration::from_millis(2), || {
            let sleeps = |pid: &u32| {
                let words = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
                String::from_utf8_lossy(&words).replace('\0', " ").trim_end() == SLEEP
            };
            Ok(self.rack.processes_on(host)?.into_iter().find(sleeps))
        })
        .context("a rank on every host")
    }
}

fn ms_since(then: Instant) -> f64 {
    then.elapsed().as_secs_f64() * 1e3
}
