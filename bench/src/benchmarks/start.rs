//! Server start on a data directory with 100,000 jobs, until the first authorised request is answered.
//!
//! One queued and one ended job are submitted, then their rows are multiplied in the database under other names: a tenth is
//! queued, the rest have ended. `--jobs N` measures another number; the promise is for the default. Executable and data are in
//! the page cache, as after a restart of the server.

use std::time::Instant;

use anyhow::{Context, Result, ensure};
use rusqlite::{Connection, params};

use super::{Scale, Verdict};
use crate::api::Api;
use crate::fixture::{job_json, job_request, make_resources, ranks};
use crate::site::Site;
use crate::stats::{Samples, print_heading};

pub const PROMISE: &str = "ready in under 2 s with 100,000 jobs in the data directory";
const LIMIT_MS: f64 = 2000.0;
const JOBS: usize = 100_000;
/// One of this many jobs is queued; the others have ended.
const QUEUED_EVERY: usize = 10;

pub fn run(scale: Scale, arguments: &[String]) -> Result<Verdict> {
    let jobs = super::parse_jobs_option(arguments, JOBS)?;
    let mut site = Site::new()?;
    let size = fill(&mut site, jobs)?;
    let mut ready = Samples::new(format!("{jobs} jobs: first request answered"), "ms");
    let mut memory = Samples::new("memory of the server then", "MB");
    for _ in 0..scale.pick(5, 20) {
        let began = site.up()?;
        let api = Api::connect(&site)?;
        api.list_groups()?;
        ready.add(began.elapsed().as_secs_f64() * 1e3);
        memory.add(crate::memory::resident(site.server_pid()?)?.rss);
        site.down()?;
    }
    site.up()?;
    let count = Api::connect(&site)?.count_jobs()?;
    ensure!(count == jobs, "the server has {count} jobs instead of {jobs}");
    let floor = measure_read_floor(&site, jobs)?;
    print_heading();
    floor.print_row();
    ready.print_row();
    memory.print_row();
    let figures = format!(
        "p50 {:.0} ms, p99 {:.0} ms for {jobs} jobs in {size:.0} MB (promised: under {LIMIT_MS:.0} ms); {:.1} times reading the rows",
        ready.p50(),
        ready.p99(),
        ready.p50() / floor.p50()
    );
    Ok(Verdict { met: ready.p99() < LIMIT_MS, figures })
}

/// Fills the database and returns its size in MB.
fn fill(site: &mut Site, jobs: usize) -> Result<f64> {
    site.up()?;
    make_resources(site, 0)?;
    let api = Api::connect(site)?;
    let job = job_request(job_json(ranks(&["true".to_owned()])), &api, &api.account_key()?)?;
    for name in ["waits", "ended"] {
        api.submit(name, &job)?;
    }
    api.terminate("ended")?;
    site.down()?;
    let path = site.data().join("corro.db");
    let mut database = Connection::open(&path)?;
    let transaction = database.transaction()?;
    let row = |name: &str| -> Result<(String, String)> {
        let sql = "SELECT key, body FROM records WHERE kind = 'job' AND key LIKE '%/' || ?1";
        Ok(transaction.query_row(sql, [name], |row| row.try_into())?)
    };
    let samples = [row("waits")?, row("ended")?];
    for n in samples.len()..jobs {
        let (key, body) = &samples[usize::from(n % QUEUED_EVERY != 0)];
        let old = key.rsplit('/').next().context("a key has a name")?;
        let name = format!("job{n}");
        let mut record: serde_json::Value = serde_json::from_str(body)?;
        record["name"] = name.clone().into();
        record["sequence"] = (n as u64 + 1).into();
        let key = format!("{}{name}", key.strip_suffix(old).context("a key ends in its name")?);
        let mut insert = transaction.prepare_cached("INSERT INTO records VALUES ('job', ?1, ?2)")?;
        insert.execute(params![key, record.to_string()])?;
    }
    transaction.commit()?;
    database.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)")?;
    Ok(std::fs::metadata(&path)?.len() as f64 / 1e6)
}

/// Time that plain SQLite needs to read every row.
fn measure_read_floor(site: &Site, jobs: usize) -> Result<Samples> {
    let database = Connection::open(site.data().join("corro.db"))?;
    let mut samples = Samples::new("floor: SQLite reads every row", "ms");
    for _ in 0..5 {
        let began = Instant::now();
        let mut query = database.prepare("SELECT kind, key, body FROM records")?;
        let bytes = query.query_map([], |row| Ok(row.get_ref(2)?.as_str().map_or(0, str::len)))?;
        let total: usize = bytes.sum::<rusqlite::Result<usize>>()?;
        ensure!(total > jobs, "the database has no rows");
        samples.add(began.elapsed().as_secs_f64() * 1e3);
    }
    Ok(samples)
}
