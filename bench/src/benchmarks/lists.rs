//! Latency of listing 1,000 jobs in one page while other clients submit at full rate.
//!
//! The listed jobs are queued on the same cluster as the submitted ones, so that each includes its reason for waiting. The
//! floor is the same page without other clients.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use super::{Scale, Verdict};
use crate::api::Api;
use crate::clients::{Connection, Session};
use crate::fixture::{EXPERIMENT, IN_WORKSPACE, job_json, job_request, make_resources, ranks};
use crate::site::Site;
use crate::stats::{Samples, print_heading};

pub const PROMISE: &str = "a list of 1,000 jobs comes in under 50 ms (p99) while jobs are submitted";
const LIMIT_MS: f64 = 50.0;
const JOBS: usize = 1_000;
const SUBMITTERS: usize = 8;
/// Experiment of the concurrently submitted jobs.
const BUSY_EXPERIMENT: &str = "busy";

pub fn run(scale: Scale) -> Result<Verdict> {
    let time = scale.pick(Duration::from_secs(10), Duration::from_secs(40));
    let mut site = Site::new()?;
    site.up()?;
    make_resources(&site, 0)?;
    site.corro(&format!("batchai experiment create {IN_WORKSPACE} -n {BUSY_EXPERIMENT}"))?;
    let api = Api::connect(&site)?;
    let job = serde_json::to_vec(&job_request(job_json(ranks(&["true".to_owned()])), &api, &api.account_key()?)?)?;
    let session = Session::log_in(&site)?;
    let mut connection = session.connect()?;
    for n in 0..JOBS {
        submit(&mut connection, &session, EXPERIMENT, &format!("job{n}"), &job)?;
    }
    let alone = measure_lists(&mut connection, &session, "floor: 1,000 jobs, no submits", time / 4)?;
    let (stop, submitted) = (AtomicBool::new(false), AtomicUsize::new(0));
    let busy = std::thread::scope(|scope| -> Result<Samples> {
        let submitters: Vec<_> = (0..SUBMITTERS)
            .map(|number| {
                let (session, job, stop, submitted) = (&session, &job, &stop, &submitted);
                scope.spawn(move || -> Result<()> {
                    let mut connection = session.connect()?;
                    for n in 0.. {
                        if stop.load(Ordering::Relaxed) {
                            break;
                        }
                        submit(&mut connection, session, BUSY_EXPERIMENT, &format!("c{number}-{n}"), job)?;
                        submitted.fetch_add(1, Ordering::Relaxed);
                    }
                    Ok(())
                })
            })
            .collect();
        let listed = measure_lists(&mut connection, &session, "1,000 jobs, eight clients submit", time);
        stop.store(true, Ordering::Relaxed);
        for submitter in submitters {
            submitter.join().expect("a client does not panic")?;
        }
        listed
    })?;
    print_heading();
    alone.print_row();
    busy.print_row();
    let rate = submitted.load(Ordering::Relaxed) as f64 / time.as_secs_f64();
    println!("\nsubmits meanwhile: {rate:.0}/s");
    let figures = format!(
        "p50 {:.1} ms, p99 {:.1} ms with {rate:.0} submits/s beside it (promised: p99 under {LIMIT_MS:.0} ms); alone p99 {:.1} ms",
        busy.p50(),
        busy.p99(),
        alone.p99()
    );
    Ok(Verdict { met: busy.p99() < LIMIT_MS, figures })
}

fn submit(connection: &mut Connection, session: &Session, experiment: &str, name: &str, job: &[u8]) -> Result<()> {
    let (status, body) = connection.exchange("PUT", &session.job_path(experiment, name), job)?;
    ensure!(status == 202, "a submit failed with status {status}: {}", String::from_utf8_lossy(body));
    Ok(())
}

/// Latencies of one list after another; each must contain every job.
fn measure_lists(connection: &mut Connection, session: &Session, name: &str, time: Duration) -> Result<Samples> {
    let target = session.jobs_path(EXPERIMENT);
    let began = Instant::now();
    let mut times = Vec::new();
    while began.elapsed() < time {
        let started = Instant::now();
        let (status, body) = connection.exchange("GET", &target, b"")?;
        times.push(started.elapsed().as_secs_f64() * 1e3);
        let count = body.windows(8).filter(|bytes| bytes == b"\"id\":\"/s").count();
        ensure!(status == 200 && count >= JOBS, "a list has status {status} and {count} jobs");
    }
    Ok(Samples::from_values(name, "ms", times))
}
