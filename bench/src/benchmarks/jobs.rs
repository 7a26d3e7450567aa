//! Throughput of no-op jobs of one node, end to end on four local nodes, against Slurm and HyperQueue.
//!
//! A job is a shell line that prints one word. It is submitted through the REST interface by one client with keep-alive
//! connections, its process is run by a node's agent, its output is a file on the share. The clock runs from the first submit
//! until the last job has ended. Every engine has four nodes that run one job at a time and writes one log per job. Engines
//! take turns, so that other load on the machine affects all alike.

use std::path::Path;
use std::time::Instant;

use anyhow::{Result, anyhow, ensure};
use serde_json::json;

use super::{Scale, Verdict};
use crate::api::Api;
use crate::fixture::{ACCOUNT, NODES, SHARE, job_json, job_request, make_resources};
use crate::machine::processor_seconds;
use crate::peers::hyperqueue::HyperQueue;
use crate::peers::slurm::Slurm;
use crate::site::Site;
use crate::stats::{Samples, print_heading};

pub const PROMISE: &str = "at least 5 times the jobs per second of Slurm and at least those of HyperQueue";
const MIN_SPEEDUP_OVER_SLURM: f64 = 5.0;
/// Command of every job, in every engine.
const COMMAND: &str = "echo done";
/// Concurrent requests.
const MAX_IN_FLIGHT: usize = 8;

pub fn run(scale: Scale) -> Result<Verdict> {
    let (rounds, jobs, slurm_jobs) = scale.pick((2, 1_000, 200), (5, 5_000, 1_000));
    let peers = tempfile::Builder::new().prefix("corro-bench-peers-").tempdir()?;
    let (slurm, hyperqueue) = if std::env::var_os("CORRO_BENCH_ALONE").is_some() {
        (Err(anyhow!("disabled by CORRO_BENCH_ALONE")), Err(anyhow!("disabled by CORRO_BENCH_ALONE")))
    } else {
        (Slurm::start(peers.path()), HyperQueue::install(peers.path()))
    };
    let corro = Corro::start()?;
    let rate = |name: &str| Samples::new(name, "jobs/s");
    let mut own = rate(&format!("Corro, {jobs} jobs"));
    let mut slurm_single = rate(&format!("Slurm, {slurm_jobs} jobs, one a submit"));
    let mut slurm_array = rate(&format!("Slurm, {slurm_jobs} jobs, one array"));
    let mut queue_single = rate(&format!("HyperQueue, {jobs} jobs, one a submit"));
    let mut queue_array = rate(&format!("HyperQueue, {jobs} jobs, one array"));
    let mut server = Samples::new("Corro's server: processor time a job", "ms");
    let mut agents = Samples::new("Corro's agents: processor time a job", "ms");
    corro.run_round("warmup", 50)?;
    for round in 0..rounds {
        let before = corro.processor_seconds()?;
        own.add(corro.run_round(&format!("round{round}"), jobs)?);
        let after = corro.processor_seconds()?;
        server.add(1e3 * (after.0 - before.0) / jobs as f64);
        agents.add(1e3 * (after.1 - before.1) / jobs as f64);
        if let Ok(hyperqueue) = &hyperqueue {
            for result in hyperqueue.run(jobs, 1, COMMAND)? {
                queue_single.add(result.single);
                queue_array.add(result.array);
            }
        }
        if let Ok(slurm) = &slurm {
            slurm_single.add(slurm.single(slurm_jobs)?);
            slurm_array.add(slurm.array(slurm_jobs)?);
        }
    }
    drop(corro);
    match &slurm {
        Ok(slurm) => println!("peer: {}, a controller and {NODES} nodes of one processor", slurm.version),
        Err(error) => println!("peer: no Slurm: {error:#}"),
    }
    match &hyperqueue {
        Ok(hyperqueue) => println!("peer: HyperQueue {}, {NODES} workers of one processor", hyperqueue.version),
        Err(error) => println!("peer: no HyperQueue: {error:#}"),
    }
    println!();
    print_heading();
    [&own, &server, &agents, &slurm_single, &slurm_array, &queue_single, &queue_array]
        .into_iter()
        .filter(|samples| samples.count() > 0)
        .for_each(Samples::print_row);
    Ok(verdict(
        &own,
        slurm.is_ok().then(|| faster(&slurm_single, &slurm_array)),
        hyperqueue.is_ok().then(|| faster(&queue_single, &queue_array)),
    ))
}

/// The faster of two ways to submit: a peer counts with it.
fn faster<'a>(one: &'a Samples, other: &'a Samples) -> &'a Samples {
    if one.p50() >= other.p50() { one } else { other }
}

fn verdict(own: &Samples, slurm: Option<&Samples>, hyperqueue: Option<&Samples>) -> Verdict {
    let rate = own.p50();
    let (Some(slurm), Some(hyperqueue)) = (slurm, hyperqueue) else {
        let missing = if slurm.is_none() { "Slurm" } else { "HyperQueue" };
        return Verdict { met: false, figures: format!("{missing} was not measured; Corro alone: {rate:.0} jobs/s") };
    };
    let (times_slurm, times_hyperqueue) = (rate / slurm.p50(), rate / hyperqueue.p50());
    let figures = format!(
        "{rate:.0} jobs/s (p50): {times_slurm:.1} times Slurm's {:.0} (promised: {MIN_SPEEDUP_OVER_SLURM:.0}) and {times_hyperqueue:.2} times HyperQueue's {:.0} (promised: 1)",
        slurm.p50(),
        hyperqueue.p50()
    );
    Verdict { met: times_slurm >= MIN_SPEEDUP_OVER_SLURM && times_hyperqueue >= 1.0, figures }
}

/// A site with the tutorial's cluster.
struct Corro {
    site: Site,
    api: Api,
    key: String,
}

impl Corro {
    fn start() -> Result<Self> {
        let mut site = Site::new()?;
        site.up()?;
        make_resources(&site, NODES)?;
        let api = Api::connect(&site)?;
        api.wait_for_idle_nodes(NODES)?;
        let key = api.account_key()?;
        Ok(Self { site, api, key })
    }

    /// CPU time of the server and of all agents so far, without the jobs' own processes and their guards.
    fn processor_seconds(&self) -> Result<(f64, f64)> {
        let agents = self.site.agents();
        let agents = agents.iter().map(|(_, pid)| processor_seconds(*pid)).sum::<Result<f64>>()?;
        Ok((processor_seconds(self.site.server_pid()?)?, agents))
    }

    /// Jobs per second, from the first submit until the last has ended.
    fn run_round(&self, name: &str, jobs: usize) -> Result<f64> {
        let names: Vec<String> = (0..jobs).map(|job| format!("{name}_{job:05}")).collect();
        let mut job = job_json(json!({"customToolkitSettings": {"commandLine": COMMAND}}));
        job["properties"]["nodeCount"] = json!(1);
        job["properties"]["stdOutErrPathPrefix"] = json!(format!("$AZ_BATCHAI_JOB_MOUNT_ROOT/{SHARE}/{name}"));
        let request = job_request(job, &self.api, &self.key)?;
        let began = Instant::now();
        self.api.submit_all(&names, &request, MAX_IN_FLIGHT)?;
        self.api.wait_for_last_job(names.last().expect("there are jobs"), NODES)?;
        let elapsed = began.elapsed().as_secs_f64();
        let succeeded = self.api.count_succeeded(name)?;
        ensure!(succeeded == jobs, "{succeeded} of {jobs} jobs have succeeded when all nodes are idle");
        let logs = count_complete_logs(&self.site.data().join("shares").join(ACCOUNT).join(SHARE).join(name))?;
        ensure!(logs == jobs, "{logs} of {jobs} logs are on the share");
        Ok(jobs as f64 / elapsed)
    }
}

/// Number of complete logs below a directory.
fn count_complete_logs(directory: &Path) -> Result<usize> {
    let mut count = 0;
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            count += count_complete_logs(&entry.path())?;
        } else if entry.file_name() == "stdout.txt" && std::fs::read(entry.path())? == b"done\n" {
            count += 1;
        }
    }
    Ok(count)
}
