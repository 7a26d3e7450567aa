//! A share mounted with `corro mount` against sshfs and a local disk: sequential and random I/O, small file creation, listing.
//!
//! The server, its share, the SSH server and its directory are on this machine, on one disk. File systems take turns, and
//! ratios are taken within a round. The kernel's cache of a mounted file is dropped before it is read; both servers read from
//! the page cache. Before each turn all earlier writes are synced.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use rustix::fs::{Advice, fadvise};

use super::{Scale, Verdict};
use crate::files::round_rates::RoundRates;
use crate::fixture::{ACCOUNT, GROUP, SHARE};
use crate::goal::{Goal, worst_ratio};
use crate::peers::sshfs::Sshfs;
use crate::site::Site;
use crate::stats::print_heading;
use crate::steps::rounds::print_ratio;

pub const PROMISE: &str = "at least 2 times sshfs in reading and writing, in order and at random (that with --write-cache), and in making \
                           small files and listing them";
const MIN_RATIO: f64 = 2.0;
const CORRO: &str = "corro mount";
const CACHED: &str = "corro mount --write-cache";
const SSHFS: &str = "sshfs";
const DISK: &str = "local disk";
const BUFFER_BYTES: usize = 1 << 20;
const SMALL_BYTES: usize = 4096;
/// Rate limit above any load of this benchmark: throttling per account is a separate promise.
const RATE: &str = "4000000";

/// Working directory on one file system, and the directory of the local disk behind it.
struct FileSystem {
    name: &'static str,
    directory: PathBuf,
    backing_directory: PathBuf,
}

/// A mount by `corro mount`, unmounted on drop.
struct Mount<'a> {
    site: &'a Site,
    mount_point: PathBuf,
}

impl<'a> Mount<'a> {
    fn new(site: &'a Site, mount_point: &Path, options: &str) -> Result<Mount<'a>> {
        let log = mount_point.with_extension("log");
        let (path, log) = (mount_point.display(), log.display());
        site.corro(&format!("mount {SHARE} {path} --account-name {ACCOUNT} --log-file {log} {options}"))?;
        Ok(Mount { site, mount_point: mount_point.to_owned() })
    }
}

impl Drop for Mount<'_> {
    fn drop(&mut self) {
        let _ = self.site.command().args(["unmount", "--lazy"]).arg(&self.mount_point).output();
    }
}

pub fn run(scale: Scale) -> Result<Verdict> {
    let mut site = Site::new()?;
    site.serve_with(&["--rate", RATE])?;
    site.corro(&format!("group create -n {GROUP} -l eastus"))?;
    site.corro(&format!("storage account create -g {GROUP} -n {ACCOUNT} -l eastus --sku Standard_LRS"))?;
    site.corro(&format!("storage share create -n {SHARE} --account-name {ACCOUNT}"))?;
    let [mounted, cached, exported, plain] =
        ["mounted", "cached", "exported", "plain"].map(|name| site.path().join(name));
    for directory in [&mounted, &cached, &exported, &plain] {
        fs::create_dir(directory)?;
    }
    let _mounts = [Mount::new(&site, &mounted, "")?, Mount::new(&site, &cached, "--write-cache")?];
    // Separate from the files of the other mount.
    let cached = cached.join("cached");
    fs::create_dir(&cached)?;
    let sshfs = Sshfs::start(site.path(), &exported)?;
    println!("peer: {}", sshfs.version);
    println!("kernel: {}\n", kernel()?);
    let share = site.data().join("shares").join(ACCOUNT).join(SHARE);
    let file_systems = [
        FileSystem { name: CORRO, directory: mounted, backing_directory: share.clone() },
        FileSystem { name: CACHED, directory: cached, backing_directory: share },
        FileSystem { name: SSHFS, directory: sshfs.mount_point.clone(), backing_directory: exported },
        FileSystem { name: DISK, directory: plain.clone(), backing_directory: plain },
    ];
    let size = scale.pick(128 << 20, 512 << 20);
    let accesses = scale.pick(1000, 5000);
    let files = scale.pick(200, 1000);
    let megabytes = move |seconds: f64| size as f64 / 1e6 / seconds;
    let workloads: Vec<Workload> = vec![
        Workload::new("writing in order", "MB/s", move |file_system, round| {
            write_in_order(&file_system.directory.join(format!("large-{round}")), size).map(megabytes)
        }),
        Workload::new("reading in order", "MB/s", move |file_system, round| {
            read_in_order(file_system, &format!("large-{round}"), size).map(megabytes)
        }),
        Workload::new("reading 4 KiB at random", "reads/s", move |file_system, round| {
            let seconds = read_at_random(file_system, &format!("large-{round}"), size, accesses)?;
            Ok(accesses as f64 / seconds)
        }),
        Workload::with_write_cache("writing 4 KiB at random, until closed", "writes/s", move |file_system, round| {
            let path = file_system.directory.join(format!("large-{round}"));
            if file_system.name == CACHED {
                // The other file systems have the file from an earlier workload.
                write_in_order(&path, size)?;
                read_in_order(file_system, &format!("large-{round}"), size)?;
            }
            let seconds = write_at_random(&path, size, accesses)?;
            fs::remove_file(&path)?;
            Ok(accesses as f64 / seconds)
        }),
        Workload::new("making files of 4 KiB", "files/s", move |file_system, round| {
            Ok(files as f64 / create_files(&file_system.directory.join(format!("small-{round}")), files)?)
        }),
        Workload::new("listing files with sizes", "files/s", move |file_system, round| {
            Ok((4 * files) as f64 / list_files(file_system, &format!("listed-{round}"), 4 * files)?)
        }),
    ];
    let mut goals = Vec::new();
    let mut rates: Vec<RoundRates> = workloads.iter().map(|workload| RoundRates::new(workload.unit)).collect();
    // The first round is a warm-up.
    for round in 0..=scale.pick(5, 12) {
        for (workload, rates) in workloads.iter().zip(&mut rates) {
            for file_system in file_systems.iter().filter(|file_system| workload.cached || file_system.name != CACHED) {
                // Flushes the previous turn's writes, so that no turn waits for them.
                rustix::fs::sync();
                let rate = (workload.run)(file_system, round)
                    .with_context(|| format!("{}: {}", file_system.name, workload.name))?;
                if round > 0 {
                    rates.add(file_system.name, rate);
                }
            }
        }
    }
    for (workload, rates) in workloads.iter().zip(&rates) {
        println!("{}", workload.name);
        print_heading();
        rates.print();
        for ours in [Some(CORRO), workload.cached.then_some(CACHED)].into_iter().flatten() {
            print_ratio(&format!("{ours} by {SSHFS}"), &rates.ratios(ours, SSHFS));
            print_ratio(&format!("{ours} by the {DISK}"), &rates.ratios(ours, DISK));
        }
        println!();
        goals.push(goal(workload, rates));
    }
    Ok(Verdict {
        met: goals.iter().all(|goal| goal.met),
        figures: goals.iter().map(|goal| goal.figures.as_str()).collect::<Vec<_>>().join("; "),
    })
}

/// One measured operation.
struct Workload {
    name: &'static str,
    unit: &'static str,
    /// Also run on the mount with a write cache, which then has to meet the goal.
    cached: bool,
    /// The rate of one turn.
    #[allow(clippy::type_complexity)]
    run: Box<dyn Fn(&FileSystem, usize) -> Result<f64>>,
}

impl Workload {
    fn new(
        name: &'static str,
        unit: &'static str,
        run: impl Fn(&FileSystem, usize) -> Result<f64> + 'static,
    ) -> Workload {
        Workload { name, unit, cached: false, run: Box::new(run) }
    }

    fn with_write_cache(
        name: &'static str,
        unit: &'static str,
        run: impl Fn(&FileSystem, usize) -> Result<f64> + 'static,
    ) -> Workload {
        Workload { cached: true, ..Workload::new(name, unit, run) }
    }
}

fn goal(workload: &Workload, rates: &RoundRates) -> Goal {
    let (ours, option) = if workload.cached { (CACHED, " with --write-cache") } else { (CORRO, "") };
    let ratio = rates.ratios(ours, SSHFS).p50();
    let rate = format!("{:.0} {}", rates.p50(ours), workload.unit);
    worst_ratio([(ratio, rate)].into_iter(), MIN_RATIO, &format!("times sshfs in {}{option}", workload.name))
}

fn kernel() -> Result<String> {
    let output = Command::new("uname").arg("-r").output()?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Timed until close, when both mounts have sent everything.
fn write_in_order(path: &Path, size: usize) -> Result<f64> {
    let buffer = random_bytes(BUFFER_BYTES);
    let began = Instant::now();
    let mut file = File::create(path)?;
    for _ in 0..size / BUFFER_BYTES {
        file.write_all(&buffer)?;
    }
    drop(file);
    Ok(began.elapsed().as_secs_f64())
}

fn open_uncached(file_system: &FileSystem, name: &str) -> Result<File> {
    let file = File::open(file_system.directory.join(name))?;
    if file_system.name != DISK {
        fadvise(&file, 0, None, Advice::DontNeed)?;
    }
    Ok(file)
}

fn read_in_order(file_system: &FileSystem, name: &str, size: usize) -> Result<f64> {
    let mut buffer = vec![0; BUFFER_BYTES];
    let mut file = open_uncached(file_system, name)?;
    let (began, mut read) = (Instant::now(), 0);
    loop {
        match file.read(&mut buffer)? {
            0 => break,
            count => read += count,
        }
    }
    ensure!(read == size, "{read} of {size} bytes were read");
    Ok(began.elapsed().as_secs_f64())
}

fn read_at_random(file_system: &FileSystem, name: &str, size: usize, accesses: usize) -> Result<f64> {
    let file = open_uncached(file_system, name)?;
    fadvise(&file, 0, None, Advice::Random)?;
    let (mut offsets, mut buffer) = (RandomOffsets(1), vec![0; SMALL_BYTES]);
    let began = Instant::now();
    for _ in 0..accesses {
        file.read_exact_at(&mut buffer, offsets.next(size))?;
    }
    Ok(began.elapsed().as_secs_f64())
}

fn write_at_random(path: &Path, size: usize, accesses: usize) -> Result<f64> {
    let (mut offsets, buffer) = (RandomOffsets(2), random_bytes(SMALL_BYTES));
    let began = Instant::now();
    let file = OpenOptions::new().write(true).open(path)?;
    for _ in 0..accesses {
        file.write_all_at(&buffer, offsets.next(size))?;
    }
    drop(file);
    Ok(began.elapsed().as_secs_f64())
}

fn create_files(directory: &Path, files: usize) -> Result<f64> {
    let content = random_bytes(SMALL_BYTES);
    let began = Instant::now();
    fs::create_dir(directory)?;
    for number in 0..files {
        fs::write(directory.join(format!("file-{number:05}")), &content)?;
    }
    Ok(began.elapsed().as_secs_f64())
}

/// Lists new files, created in the backing directory, so that no mount has them cached.
fn list_files(file_system: &FileSystem, name: &str, files: usize) -> Result<f64> {
    create_files(&file_system.backing_directory.join(name), files)?;
    let began = Instant::now();
    let mut bytes = 0;
    for entry in fs::read_dir(file_system.directory.join(name))? {
        bytes += entry?.metadata()?.len();
    }
    ensure!(bytes == (files * SMALL_BYTES) as u64, "the listing of {files} files sums up to {bytes} bytes");
    Ok(began.elapsed().as_secs_f64())
}

fn random_bytes(length: usize) -> Vec<u8> {
    let mut offsets = RandomOffsets(3);
    (0..length).map(|_| offsets.draw() as u8).collect()
}

/// Linear congruential generator of offsets, with the same sequence for all file systems.
struct RandomOffsets(u64);

impl RandomOffsets {
    fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 33
    }

    fn next(&mut self, size: usize) -> u64 {
        self.draw() % (size / SMALL_BYTES) as u64 * SMALL_BYTES as u64
    }
}
