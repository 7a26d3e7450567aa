//! Time from submitting a job of four nodes until all four ranks run, on four hosts in network namespaces.
//!
//! The hosts cannot see the server's directory: each mounts the share for the job over TLS before its rank starts. `submit` is
//! the same on the server's own machine, without a mount.

use std::time::Instant;

use anyhow::Result;

use super::{Scale, Verdict};
use crate::api::Api;
use crate::fixture::{NODES, job_json, job_request, ranks};
use crate::netns_cluster::NetnsCluster;
use crate::stats::{Samples, print_heading};

pub const PROMISE: &str = "all four ranks run 500 ms (p50) and 2 s (p99) after the job was submitted";
const LIMIT_P50_MS: f64 = 500.0;
const LIMIT_P99_MS: f64 = 2000.0;
/// Not counted: connections, caches and the login are set up.
const WARM_UP: usize = 3;

pub fn run(scale: Scale) -> Result<Verdict> {
    let cluster = NetnsCluster::start(NODES, &[])?;
    let (api, exe) = (Api::connect(&cluster.site)?, std::env::current_exe()?);
    let key = api.account_key()?;
    let ms = |name: &str| Samples::new(name, "ms");
    let (mut answered, mut first, mut all, mut over) =
        (ms("answered"), ms("first rank runs"), ms("all four ranks run"), ms("job over, all nodes idle again"));
    for sample in 0..WARM_UP + scale.pick(20, 150) {
        let name = format!("job{sample}");
        let job = job_request(job_json(ranks(&cluster.listener.command(&exe, &name))), &api, &key)?;
        let began = api.submit(&name, &job)?;
        let response = Instant::now();
        let (one, four) = cluster.listener.wait(&name, NODES)?;
        api.wait_for_success(&name)?;
        api.wait_for_idle_nodes(NODES)?;
        if sample >= WARM_UP {
            for (samples, at) in
                [(&mut answered, response), (&mut first, one), (&mut all, four), (&mut over, Instant::now())]
            {
                samples.add((at - began).as_secs_f64() * 1e3);
            }
        }
    }
    drop(cluster);
    print_heading();
    [&answered, &first, &all, &over].into_iter().for_each(Samples::print_row);
    let (p50, p99) = (all.p50(), all.p99());
    let figures = format!("p50 {p50:.0} ms, p99 {p99:.0} ms (promised: {LIMIT_P50_MS:.0} and {LIMIT_P99_MS:.0} ms)");
    Ok(Verdict { met: p50 <= LIMIT_P50_MS && p99 <= LIMIT_P99_MS, figures })
}
