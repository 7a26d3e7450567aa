//! Start of `corro up` until the first authorised request is answered, on a fresh and on a filled data directory.
//!
//! Executable and data are in the page cache, as after a restart of the server.

use std::time::Instant;

use anyhow::{Result, ensure};
use corro_model::batchai::JobCreateParameters;

use super::{Scale, Verdict};
use crate::api::Api;
use crate::fixture::{job_json, job_request, make_resources, ranks};
use crate::site::Site;
use crate::stats::{Samples, print_heading};

pub const PROMISE: &str = "ready in under 1 s, on a fresh data directory and on one with 1,000 jobs";
const LIMIT_MS: f64 = 1000.0;
const JOBS: usize = 1000;
/// Queued jobs; the rest have ended, as on any server in use.
const QUEUED: usize = 100;

pub fn run(scale: Scale) -> Result<Verdict> {
    let count = scale.pick(20, 100);
    let (mut fresh_first_line, mut fresh) = samples("fresh directory");
    for _ in 0..count {
        let mut site = Site::new()?;
        measure_start(&mut site, &mut fresh_first_line, &mut fresh)?;
    }
    let mut site = Site::new()?;
    fill(&mut site)?;
    let (mut filled_first_line, mut filled) = samples("1,000 jobs");
    for _ in 0..count {
        measure_start(&mut site, &mut filled_first_line, &mut filled)?;
    }
    print_heading();
    [&fresh_first_line, &fresh, &filled_first_line, &filled].into_iter().for_each(Samples::print_row);
    let met = fresh.p99() < LIMIT_MS && filled.p99() < LIMIT_MS;
    let figures = format!(
        "fresh p50 {:.0} ms, p99 {:.0} ms; 1,000 jobs p50 {:.0} ms, p99 {:.0} ms (promised: under {LIMIT_MS:.0} ms)",
        fresh.p50(),
        fresh.p99(),
        filled.p50(),
        filled.p99()
    );
    Ok(Verdict { met, figures })
}

fn samples(directory: &str) -> (Samples, Samples) {
    (
        Samples::new(format!("{directory}: first line"), "ms"),
        Samples::new(format!("{directory}: first request answered"), "ms"),
    )
}

fn measure_start(site: &mut Site, first_line: &mut Samples, ready: &mut Samples) -> Result<()> {
    let began = site.up()?;
    let line = Instant::now();
    Api::connect(site)?.list_groups()?;
    let answered = Instant::now();
    first_line.add((line - began).as_secs_f64() * 1e3);
    ready.add((answered - began).as_secs_f64() * 1e3);
    site.down()
}

/// A thousand jobs on a cluster without nodes: most terminated, some queued.
fn fill(site: &mut Site) -> Result<()> {
    site.up()?;
    make_resources(site, 0)?;
    let api = Api::connect(site)?;
    let job: JobCreateParameters = job_request(job_json(ranks(&["true".to_owned()])), &api, &api.account_key()?)?;
    for number in 0..JOBS {
        let name = format!("job{number}");
        api.submit(&name, &job)?;
        if number >= QUEUED {
            api.terminate(&name)?;
        }
    }
    let count = api.count_jobs()?;
    ensure!(count == JOBS, "the data directory holds {count} jobs instead of {JOBS}");
    site.down()
}
