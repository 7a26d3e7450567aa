//! Upload and download of 1 GiB over loopback by the storage commands: speed, and memory independent of the size.
//!
//! Whole commands are timed, from start to end, login included. A download is synced to the disk when the command ends, so its
//! floor is a copy with a sync; an upload's floor is a copy without one.

use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::{Scale, Verdict};
use crate::content;
use crate::fixture::{ACCOUNT, GROUP, SHARE};
use crate::memory::{peak, resident};
use crate::site::Site;
use crate::stats::{Samples, print_heading};

pub const PROMISE: &str = "500 MB/s or more each way, with memory that is flat within 16 MB between 64 MiB and 1 GiB";
const MIN_MB_S: f64 = 500.0;
const MAX_GROWTH_MB: f64 = 16.0;
const SMALL_BYTES: u64 = 64 << 20;
const LARGE_BYTES: u64 = 1 << 30;
/// Poll interval of a command's peak memory; the kernel keeps the peak, so only its last moments can be missed.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// One transfer of one size, each way.
struct Round {
    upload: TransferResult,
    download: TransferResult,
}

/// Duration of a command, and its peak memory in MB.
struct TransferResult {
    seconds: f64,
    peak: f64,
}

pub fn run(scale: Scale) -> Result<Verdict> {
    let rounds = scale.pick(3, 10);
    let mut site = Site::new()?;
    site.up()?;
    site.corro(&format!("group create -n {GROUP} -l eastus"))?;
    site.corro(&format!("storage account create -g {GROUP} -n {ACCOUNT} -l eastus --sku Standard_LRS"))?;
    site.corro(&format!("storage share create -n {SHARE} --account-name {ACCOUNT}"))?;
    let speed = |name: &str| Samples::new(name, "MB/s");
    let memory = |name: &str| Samples::new(name, "MB");
    let mut floor = speed("floor: plain copy");
    let mut synced_floor = speed("floor: plain copy and sync");
    let mut up = speed("upload 1 GiB");
    let mut down = speed("download 1 GiB");
    let mut peaks = [
        [memory("peak of upload, 64 MiB"), memory("peak of upload, 1 GiB")],
        [memory("peak of download, 64 MiB"), memory("peak of download, 1 GiB")],
        [memory("peak of server, after 64 MiB"), memory("peak of server, after 1 GiB")],
    ];
    // All small ones first: the server's peak only ever grows.
    for (size_idx, size) in [SMALL_BYTES, LARGE_BYTES].into_iter().enumerate() {
        for number in 0..rounds {
            let seed = (number + size_idx * rounds) as u64 + 1;
            let round = run_round(&site, size, seed)?;
            peaks[0][size_idx].add(round.upload.peak);
            peaks[1][size_idx].add(round.download.peak);
            peaks[2][size_idx].add(peak(site.server_pid()?)?);
            if size == LARGE_BYTES {
                up.add(mb_s(round.upload.seconds));
                down.add(mb_s(round.download.seconds));
                let [plain, synced] = measure_floors(&site)?;
                floor.add(mb_s(plain));
                synced_floor.add(mb_s(synced));
            }
        }
    }
    let mut rest = memory("server at rest afterwards: RSS");
    rest.add(resident(site.server_pid()?)?.rss);
    print_heading();
    [&floor, &synced_floor, &up, &down].into_iter().for_each(Samples::print_row);
    peaks.iter().flatten().chain([&rest]).for_each(Samples::print_row);
    let growth = peaks.each_ref().map(|[small, large]| large.max() - small.max());
    let flat = growth.iter().all(|growth| *growth <= MAX_GROWTH_MB);
    let figures = format!(
        "upload p50 {:.0} MB/s, download p50 {:.0} MB/s (promised: {MIN_MB_S:.0}; plain copy {:.0}, with sync {:.0}); \
         memory grows by {:.1} MB (upload), {:.1} MB (download), {:.1} MB (server) (promised: {MAX_GROWTH_MB:.0})",
        up.p50(),
        down.p50(),
        floor.p50(),
        synced_floor.p50(),
        growth[0],
        growth[1],
        growth[2]
    );
    Ok(Verdict { met: up.p50() >= MIN_MB_S && down.p50() >= MIN_MB_S && flat, figures })
}

const SOURCE: &str = "source.bin";
const COPY: &str = "copy.bin";

fn run_round(site: &Site, size: u64, seed: u64) -> Result<Round> {
    let (source, copy) = (site.path().join(SOURCE), site.path().join(COPY));
    content::write_random(&source, size, seed)?;
    let file_options = format!("-s {SHARE} --account-name {ACCOUNT} --path data.bin --no-progress");
    let upload = run_timed(site, &format!("storage file upload {file_options} --source {SOURCE}"))?;
    // Writeback of the upload would slow down the download.
    content::sync(&site.data().join("shares").join(ACCOUNT).join(SHARE).join("data.bin"))?;
    let download = run_timed(site, &format!("storage file download {file_options} --dest {COPY}"))?;
    if content::fingerprint(&source)? != content::fingerprint(&copy)? {
        bail!("the downloaded file differs from the uploaded one");
    }
    std::fs::remove_file(&copy)?;
    site.corro(&format!("storage file delete -s {SHARE} --account-name {ACCOUNT} --path data.bin"))?;
    Ok(Round { upload, download })
}

/// The same bytes by plain copies in the same directory: the limit of the disk and the kernel.
fn measure_floors(site: &Site) -> Result<[f64; 2]> {
    let (source, copy) = (site.path().join(SOURCE), site.path().join(COPY));
    let plain = content::copy(&source, &copy, false)?;
    content::sync(&copy)?;
    std::fs::remove_file(&copy)?;
    let synced = content::copy(&source, &copy, true)?;
    std::fs::remove_file(&copy)?;
    Ok([plain, synced])
}

fn run_timed(site: &Site, line: &str) -> Result<TransferResult> {
    let log = site.path().join("command.log");
    let mut command = site.command();
    command.args(line.split_whitespace()).stdout(Stdio::null()).stderr(std::fs::File::create(&log)?);
    let began = Instant::now();
    let mut child = command.spawn().context("cannot start a command")?;
    let pid = child.id();
    let watcher = std::thread::spawn(move || watch_peak(pid));
    let status = child.wait()?;
    let seconds = began.elapsed().as_secs_f64();
    let peak = watcher.join().expect("watching does not panic");
    if !status.success() {
        bail!("'corro {line}' ended with {status}: {}", read(&log));
    }
    Ok(TransferResult { seconds, peak })
}

/// Polls until the process is gone.
fn watch_peak(pid: u32) -> f64 {
    let mut highest = 0.0_f64;
    // An exited process has no memory statistics.
    while let Ok(now) = peak(pid) {
        highest = highest.max(now);
        std::thread::park_timeout(POLL_INTERVAL);
    }
    highest
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

fn mb_s(seconds: f64) -> f64 {
    LARGE_BYTES as f64 / 1e6 / seconds
}
