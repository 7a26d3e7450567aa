//! Time from submitting a container job with a local image until its rank runs, against `docker run` of the same image.
//!
//! The request is that of `submit`, on an idle node. Both sides create a container of the same image on the same daemon, with
//! the same mount and the host's network, take turns, and report from inside to the same listener. Corro additionally starts
//! the rank as a second process in a container that outlives it.

use std::process::Stdio;
use std::time::Instant;

use anyhow::{Result, bail};
use serde_json::json;

use super::{Scale, Verdict};
use crate::api::Api;
use crate::fixture::{job_json, job_request, make_resources};
use crate::peers::docker::{Docker, IMAGE};
use crate::rank::RankListener;
use crate::site::Site;
use crate::stats::{Samples, print_heading};

pub const PROMISE: &str = "a rank in a container runs at most 200 ms (p50) later than with docker run of the same";
const LIMIT_MS: f64 = 200.0;
/// Not counted: connections, caches and the login are set up.
const WARM_UP: usize = 2;

pub fn run(scale: Scale) -> Result<Verdict> {
    let samples = scale.pick(15, 100);
    let mut site = Site::new()?;
    let docker = Docker::start()?;
    println!("peer: docker run, Docker {}\n", docker.version);
    std::os::unix::fs::symlink(&docker.socket, site.engine_socket())?;
    site.up()?;
    make_resources(&site, 1)?;
    let api = Api::connect(&site)?;
    api.wait_for_idle_nodes(1)?;
    let benchmark = ContainerBenchmark { key: api.account_key()?, listener: RankListener::open()?, site, api, docker };
    let ms = |name: &str| Samples::new(name, "ms");
    let (mut plain, mut ours) = (ms("docker run: its process runs"), ms("request: the rank runs in its container"));
    for sample in 0..WARM_UP + samples {
        let (run, rank) = (benchmark.docker_run(sample)?, benchmark.submit_job(sample)?);
        if sample >= WARM_UP {
            plain.add(run);
            ours.add(rank);
        }
    }
    drop(benchmark);
    print_heading();
    [&plain, &ours].into_iter().for_each(Samples::print_row);
    let overhead = ours.p50() - plain.p50();
    let figures = format!(
        "{overhead:.0} ms more at p50 (promised: at most {LIMIT_MS:.0}): p50 {:.0}, p99 {:.0} ms; docker run p50 {:.0}, p99 {:.0} ms",
        ours.p50(),
        ours.p99(),
        plain.p50(),
        plain.p99()
    );
    Ok(Verdict { met: overhead <= LIMIT_MS, figures })
}

/// Both engines and the listener of the ranks; fields drop in order, the daemon last.
struct ContainerBenchmark {
    site: Site,
    api: Api,
    listener: RankListener,
    key: String,
    docker: Docker,
}

impl ContainerBenchmark {
    fn docker_run(&self, sample: usize) -> Result<f64> {
        let name = format!("run{sample}");
        let mut command = self.docker.command();
        let data = self.site.data();
        command.args(["run", "--rm", "--network", "host", "-v"]).arg(format!("{0}:{0}", data.display()));
        command.args([IMAGE, "bash", "-c", &self.listener.shell_line(&name)]).stdin(Stdio::null());
        let began = Instant::now();
        let mut child = command.spawn()?;
        let (_, reported) = self.listener.wait(&name, 1)?;
        if !child.wait()?.success() {
            bail!("docker run failed");
        }
        Ok((reported - began).as_secs_f64() * 1e3)
    }

    fn submit_job(&self, sample: usize) -> Result<f64> {
        let name = format!("job{sample}");
        let mut job = job_json(json!({"customMpiSettings": {"commandLine": self.listener.shell_line(&name)}}));
        job["properties"]["nodeCount"] = json!(1);
        job["properties"]["containerSettings"] = json!({"imageSourceRegistry": {"image": IMAGE}});
        let job = job_request(job, &self.api, &self.key)?;
        let began = self.api.submit(&name, &job)?;
        let (_, reported) = self.listener.wait(&name, 1)?;
        self.api.wait_for_success(&name)?;
        self.api.wait_for_idle_nodes(1)?;
        Ok((reported - began).as_secs_f64() * 1e3)
    }
}
