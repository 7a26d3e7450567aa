//! Durable job submits per second by 64 HTTP clients; every acknowledged job must survive `kill -9`.
//!
//! Each client keeps its connection and submits one job after another, with a share to mount and a key to encrypt, to a cluster
//! without nodes. The server is killed while they submit. The floors are the disk's own synced writes, and rows of the same
//! size through plain SQLite with group commit for as many clients.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::{Scale, Verdict};
use crate::api::Api;
use crate::clients::Session;
use crate::disk;
use crate::fixture::{EXPERIMENT, job_json, job_request, make_resources, ranks};
use crate::site::Site;
use crate::stats::{Samples, print_heading};

pub const PROMISE: &str = "64 clients get 2,000 durable submits a second where the disk syncs in under 1 ms";
const CLIENTS: usize = 64;
const MIN_RATE: f64 = 2_000.0;
const MAX_SYNC_MS: f64 = 1.0;
/// Not counted: connections and caches are set up.
const WARM_UP: Duration = Duration::from_secs(1);
/// Approximate size of one job in the database, in bytes.
const ROW_BYTES: usize = 1_400;

/// Record of one client: the duration of each of its submits, and the time of its acknowledgement.
struct ClientRecord {
    number: usize,
    acknowledgements: Vec<(Instant, Duration)>,
}

pub fn run(scale: Scale) -> Result<Verdict> {
    let time = scale.pick(Duration::from_secs(8), Duration::from_secs(30));
    let mut site = Site::new()?;
    let floor_time = time / 4;
    let syncs = disk::measure_syncs(site.path(), floor_time)?;
    let sync_rate = 1e3 / syncs.mean();
    let rows = disk::measure_group_commits(site.path(), floor_time, CLIENTS, ROW_BYTES)?;

    site.up()?;
    make_resources(&site, 0)?;
    let api = Api::connect(&site)?;
    let job = serde_json::to_vec(&job_request(job_json(ranks(&["true".to_owned()])), &api, &api.account_key()?)?)?;
    let session = Session::log_in(&site)?;
    let (began, stop) = (Instant::now() + WARM_UP, AtomicBool::new(false));
    let clients = std::thread::scope(|scope| -> Result<Vec<ClientRecord>> {
        let submit = |number| {
            let (session, job, stop) = (&session, &job, &stop);
            scope.spawn(move || submit_until_stopped(session, job, number, stop))
        };
        let clients: Vec<_> = (0..CLIENTS).map(submit).collect();
        std::thread::sleep(WARM_UP + time);
        // Killed under full load: pending requests get no response.
        site.kill()?;
        stop.store(true, Ordering::Relaxed);
        clients.into_iter().map(|client| client.join().expect("a client does not panic")).collect()
    })?;
    let ended = began + time;
    let all: usize = clients.iter().map(|client| client.acknowledgements.len()).sum();
    let counted =
        clients.iter().flat_map(|client| &client.acknowledgements).filter(|(at, _)| (began..ended).contains(at));
    let times =
        Samples::from_values("submit: acknowledged", "ms", counted.map(|(_, took)| took.as_secs_f64() * 1e3).collect());
    let rate = times.count() as f64 / time.as_secs_f64();

    let restarted = site.up()?;
    let lost = count_missing(&site, &clients)?;
    print_heading();
    syncs.print_row();
    times.print_row();
    println!("\nfloor: synced writes one after another: {sync_rate:.0}/s");
    println!("floor: SQLite alone, {CLIENTS} clients, rows of {ROW_BYTES} bytes in groups: {rows:.0}/s");
    println!("submits: {rate:.0}/s over {} s by {CLIENTS} clients", time.as_secs());
    println!(
        "killed with SIGKILL under load; after the restart {} of {all} acknowledged jobs are there (looked up within {:.1} s)",
        all - lost,
        restarted.elapsed().as_secs_f64()
    );
    ensure!(all > 0, "no job was acknowledged");
    let fast_disk = syncs.p50() < MAX_SYNC_MS;
    let note = match (fast_disk, rate >= MIN_RATE) {
        (false, true) => ", slower than the promise requires",
        (false, false) => ", too slow for the promise to hold here",
        (true, _) => "",
    };
    let figures = format!(
        "{rate:.0}/s, p50 {:.1} ms, p99 {:.1} ms, {lost} of {all} acknowledged lost (promised: {MIN_RATE:.0}/s, none); a synced write takes {:.2} ms, {sync_rate:.0}/s{note}",
        times.p50(),
        times.p99(),
        syncs.p50()
    );
    Ok(Verdict { met: lost == 0 && (rate >= MIN_RATE || !fast_disk), figures })
}

/// One job after another until the server is gone.
fn submit_until_stopped(session: &Session, job: &[u8], number: usize, stop: &AtomicBool) -> Result<ClientRecord> {
    let mut connection = session.connect()?;
    let mut acknowledgements = Vec::new();
    loop {
        let path = session.job_path(EXPERIMENT, &job_name(number, acknowledgements.len()));
        let began = Instant::now();
        match connection.exchange("PUT", &path, job) {
            Ok((202, _)) => acknowledgements.push((Instant::now(), began.elapsed())),
            Ok((status, body)) => bail!("a submit failed with status {status}: {}", String::from_utf8_lossy(body)),
            // A broken connection is normally the kill; an earlier break shows as a lower rate.
            Err(_) if stop.load(Ordering::Relaxed) || !acknowledgements.is_empty() => {
                return Ok(ClientRecord { number, acknowledgements });
            }
            Err(error) => return Err(error),
        }
    }
}

/// Number of acknowledged jobs that the restarted server does not know.
fn count_missing(site: &Site, clients: &[ClientRecord]) -> Result<usize> {
    let session = Session::log_in(site)?;
    let mut connection = session.connect()?;
    let mut found = std::collections::HashSet::new();
    let mut next = Some(session.jobs_path(EXPERIMENT));
    while let Some(target) = next {
        let (status, body) = connection.exchange("GET", &target, b"")?;
        ensure!(status == 200, "a list failed with status {status}");
        let page: serde_json::Value = serde_json::from_slice(body)?;
        let jobs = page["value"].as_array().context("the response is not a list")?;
        found.extend(jobs.iter().filter_map(|job| job["name"].as_str().map(str::to_owned)));
        let link = page["nextLink"].as_str().and_then(|link| link.split_once("://")?.1.split_once('/'));
        next = link.map(|(_, rest)| format!("/{rest}"));
    }
    let acknowledged =
        clients.iter().flat_map(|client| (0..client.acknowledgements.len()).map(|n| job_name(client.number, n)));
    Ok(acknowledged.filter(|name| !found.contains(name)).count())
}

fn job_name(client: usize, n: usize) -> String {
    format!("c{client}-{n}")
}
