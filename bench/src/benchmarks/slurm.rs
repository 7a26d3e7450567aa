//! Time from `cluster create` to four idle nodes that are Slurm allocations, against four bare `sbatch` calls.
//!
//! Both request four allocations of one processor from the same Slurm on this machine, in turns, several commands at once. The
//! bare ones are ready when their scripts report it; ours when the server shows four idle nodes, which adds the command, the
//! start of the agents, their join and the poll that finds them.

use std::fs;
use std::time::Instant;

use anyhow::Result;

use super::{Scale, Verdict};
use crate::api::Api;
use crate::fixture::{CLUSTER, IN_WORKSPACE, NODES, make_resources};
use crate::peers::slurm::Slurm;
use crate::rank::RankListener;
use crate::site::Site;
use crate::stats::{Samples, print_heading};

pub const PROMISE: &str = "four nodes are idle at most 1 s (p50) later than four bare sbatch run";
const LIMIT_S: f64 = 1.0;
const WARM_UP: usize = 1;

pub fn run(scale: Scale) -> Result<Verdict> {
    let samples = scale.pick(5, 30);
    let mut site = Site::new()?;
    let slurm = Slurm::start(site.path())?;
    println!("peer: sbatch, {}\n", slurm.version);
    let nodes = site.path().join("agents");
    fs::create_dir(&nodes)?;
    let nodes = nodes.display().to_string();
    // This Slurm's nodes are small, and have nothing but a processor each.
    let options = ["--cpus-per-task=1", "--mem=0", "--gres=none"].map(|option| format!("--slurm-option={option}"));
    let mut arguments = vec!["--provider", "slurm", "--slurm-node-dir", &nodes];
    arguments.extend(options.iter().map(String::as_str));
    site.set_variable("SLURM_CONF", slurm.configuration_file());
    site.serve_with(&arguments)?;
    make_resources(&site, 0)?;
    site.corro(&delete_command())?;
    let (api, listener) = (Api::connect(&site)?, RankListener::open()?);
    let s = |name: &str| Samples::new(name, "s");
    let mut bare = s("sbatch: all four scripts run");
    let mut ours = s("cluster create: all four nodes idle");
    let mut gone = s("cluster delete: all four allocations gone");
    for sample in 0..WARM_UP + samples {
        slurm.wait_until_free()?;
        let plain = measure_sbatch(&slurm, &site, &listener, &format!("s{sample}"))?;
        slurm.wait_until_free()?;
        let began = Instant::now();
        site.corro(&create_command())?;
        api.wait_for_idle_nodes(NODES)?;
        let created = began.elapsed().as_secs_f64();
        let began = Instant::now();
        site.corro(&delete_command())?;
        slurm.wait_until_free()?;
        if sample >= WARM_UP {
            bare.add(plain);
            ours.add(created);
            gone.add(began.elapsed().as_secs_f64());
        }
    }
    site.down()?;
    print_heading();
    [&bare, &ours, &gone].into_iter().for_each(Samples::print_row);
    let overhead = ours.p50() - bare.p50();
    let figures = format!(
        "{overhead:.2} s more at p50 (promised: at most {LIMIT_S} s): p50 {:.2}, p99 {:.2} s; sbatch p50 {:.2}, p99 {:.2} s",
        ours.p50(),
        ours.p99(),
        bare.p50(),
        bare.p99()
    );
    Ok(Verdict { met: overhead <= LIMIT_S, figures })
}

fn create_command() -> String {
    let login = "--user-name me --password not-a-secret";
    format!("batchai cluster create {IN_WORKSPACE} -n {CLUSTER} --vm-size Standard_NC6 {login} --target {NODES}")
}

fn delete_command() -> String {
    format!("batchai cluster delete {IN_WORKSPACE} -n {CLUSTER} -y")
}

/// Seconds until four scripts run, which then wait to be cancelled.
fn measure_sbatch(slurm: &Slurm, site: &Site, listener: &RankListener, sample: &str) -> Result<f64> {
    let script = site.path().join("bare.sh");
    fs::write(&script, format!("#!/bin/bash\n{}\nexec sleep 600\n", listener.shell_line(sample)))?;
    let began = Instant::now();
    std::thread::scope(|scope| {
        let submits: Vec<_> = (0..NODES).map(|_| scope.spawn(|| slurm.submit_script(&script))).collect();
        submits.into_iter().try_for_each(|submit| submit.join().expect("submitting does not panic"))
    })?;
    let (_, last) = listener.wait(sample, NODES)?;
    slurm.cancel_all()?;
    Ok((last - began).as_secs_f64())
}
