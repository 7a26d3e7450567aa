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
use crate::files::turns::Turns;
use crate::fixture::{ACCOUNT, GROUP, SHARE};
use crate::goal::{Goal, worst};
use crate::peers::sshfs::Sshfs;
use crate::site::Site;
use crate::stats::heading;
use crate::steps::rounds::print_ratio;

pub const PROMISE: &str = "at least 2 times sshfs in reading and writing, in order and at random (that with --write-cache), and in making \
                           small files and listing them";
const LEAST: f64 = 2.0;
const CORRO: &str = "corro mount";
const CACHED: &str = "corro mount --write-cache";
const SSHFS: &str = "sshfs";
const DISK: &str = "local disk";
const BUFFER: usize = 1 << 20;
const SMALL: usize = 4096;
/// Rate limit above any load of this benchmark: throttling per account is a separate promise.
const RATE: &str = "4000000";

/// Working directory of one file system, and the same directory on the disk.
struct Player {
    name: &'static str,
    place: PathBuf,
    beneath: PathBuf,
}

struct Mount<'a> {
    site: &'a Site,
    place: PathBuf,
}

impl<'a> Mount<'a> {
    fn new(site: &'a Site, place: &Path, options: &str) -> Result<Mount<'a>> {
        let log = place.with_extension("log");
        let (at, log) = (place.display(), log.display());
        site.corro(&format!("mount {SHARE} {at} --account-name {ACCOUNT} --log-file {log} {options}"))?;
        Ok(Mount { site, place: place.to_owned() })
    }
}

impl Drop for Mount<'_> {
    fn drop(&mut self) {
        let _ = self.site.command().args(["unmount", "--lazy"]).arg(&self.place).output();
    }
}

pub fn run(scale: Scale) -> Result<Verdict> {
    let mut site = Site::new()?;
    site.serve_with(&["--rate", RATE])?;
    site.corro(&format!("group create -n {GROUP} -l eastus"))?;
    site.corro(&format!("storage account create -g {GROUP} -n {ACCOUNT} -l eastus --sku Standard_LRS"))?;
    site.corro(&format!("storage share create -n {SHARE} --account-name {ACCOUNT}"))?;
    let [place, cached, exported, plain] =
        ["mounted", "cached", "exported", "plain"].map(|name| site.path().join(name));
    for directory in [&place, &cached, &exported, &plain] {
        fs::create_dir(directory)?;
    }
    let _mounts = [Mount::new(&site, &place, "")?, Mount::new(&site, &cached, "--write-cache")?];
    // Separate from the files of the other mount.
    let cached = cached.join("cached");
    fs::create_dir(&cached)?;
    let sshfs = Sshfs::start(site.path(), &exported)?;
    println!("peer: {}", sshfs.version);
    println!("kernel: {}\n", kernel()?);
    let share = site.data().join("shares").join(ACCOUNT).join(SHARE);
    let players = [
        Player { name: CORRO, place, beneath: share.clone() },
        Player { name: CACHED, place: cached, beneath: share },
        Player { name: SSHFS, place: sshfs.place.clone(), beneath: exported },
        Player { name: DISK, place: plain.clone(), beneath: plain },
    ];
    let size = scale.pick(128 << 20, 512 << 20);
    let jumps = scale.pick(1000, 5000);
    let files = scale.pick(200, 1000);
    let megabytes = move |seconds: f64| size as f64 / 1e6 / seconds;
    let works: Vec<Work> = vec![
        Work::new("writing in order", "MB/s", move |player, round| {
            write_in_order(&player.place.join(format!("large-{round}")), size).map(megabytes)
        }),
        Work::new("reading in order", "MB/s", move |player, round| {
            read_in_order(player, &format!("large-{round}"), size).map(megabytes)
        }),
        Work::new("reading 4 KiB at random", "reads/s", move |player, round| {
            let seconds = read_at_random(player, &format!("large-{round}"), size, jumps)?;
            Ok(jumps as f64 / seconds)
        }),
        Work::of_cached("writing 4 KiB at random, until closed", "writes/s", move |player, round| {
            let path = player.place.join(format!("large-{round}"));
            if player.name == CACHED {
                // The others have theirs from an earlier turn.
                write_in_order(&path, size)?;
                read_in_order(player, &format!("large-{round}"), size)?;
            }
            let seconds = write_at_random(&path, size, jumps)?;
            fs::remove_file(&path)?;
            Ok(jumps as f64 / seconds)
        }),
        Work::new("making files of 4 KiB", "files/s", move |player, round| {
            Ok(files as f64 / make_files(&player.place.join(format!("small-{round}")), files)?)
        }),
        Work::new("listing files with sizes", "files/s", move |player, round| {
            Ok((4 * files) as f64 / list_files(player, &format!("listed-{round}"), 4 * files)?)
        }),
    ];
    let mut goals = Vec::new();
    let mut turns: Vec<Turns> = works.iter().map(|work| Turns::new(work.unit)).collect();
    // The first round is a warm-up.
    for round in 0..=scale.pick(5, 12) {
        for (work, turns) in works.iter().zip(&mut turns) {
            for player in players.iter().filter(|player| work.cached || player.name != CACHED) {
                // Flushes the previous turn's writes, so that no turn waits for them.
                rustix::fs::sync();
                let rate = (work.run)(player, round).with_context(|| format!("{}: {}", player.name, work.name))?;
                if round > 0 {
                    turns.add(player.name, rate);
                }
            }
        }
    }
    for (work, turns) in works.iter().zip(&turns) {
        println!("{}", work.name);
        heading();
        turns.print();
        for ours in [Some(CORRO), work.cached.then_some(CACHED)].into_iter().flatten() {
            print_ratio(&format!("{ours} by {SSHFS}"), &turns.ratios(ours, SSHFS));
            print_ratio(&format!("{ours} by the {DISK}"), &turns.ratios(ours, DISK));
        }
        println!();
        goals.push(goal(work, turns));
    }
    Ok(Verdict {
        met: goals.iter().all(|goal| goal.met),
        figures: goals.iter().map(|goal| goal.figures.as_str()).collect::<Vec<_>>().join("; "),
    })
}

struct Work {
    name: &'static str,
    unit: &'static str,
    /// Also run on the mount with a write cache, which then has to meet the goal.
    cached: bool,
    /// The rate of one turn.
    #[allow(clippy::type_complexity)]
    run: Box<dyn Fn(&Player, usize) -> Result<f64>>,
}

impl Work {
    fn new(name: &'static str, unit: &'static str, run: impl Fn(&Player, usize) -> Result<f64> + 'static) -> Work {
        Work { name, unit, cached: false, run: Box::new(run) }
    }

    fn of_cached(
        name: &'static str,
        unit: &'static str,
        run: impl Fn(&Player, usize) -> Result<f64> + 'static,
    ) -> Work {
        Work { cached: true, ..Work::new(name, unit, run) }
    }
}

fn goal(work: &Work, turns: &Turns) -> Goal {
    let (ours, how) = if work.cached { (CACHED, " with --write-cache") } else { (CORRO, "") };
    let ratio = turns.ratios(ours, SSHFS).p50();
    let at = format!("{:.0} {}", turns.p50(ours), work.unit);
    worst([(ratio, at)].into_iter(), LEAST, &format!("times sshfs in {}{how}", work.name))
}

fn kernel() -> Result<String> {
    let shown = Command::new("uname").arg("-r").output()?;
    Ok(String::from_utf8_lossy(&shown.stdout).trim().to_owned())
}

/// Timed until close, when both mounts have sent everything.
fn write_in_order(path: &Path, size: usize) -> Result<f64> {
    let buffer = noise(BUFFER);
    let began = Instant::now();
    let mut file = File::create(path)?;
    for _ in 0..size / BUFFER {
        file.write_all(&buffer)?;
    }
    drop(file);
    Ok(began.elapsed().as_secs_f64())
}

fn opened(player: &Player, name: &str) -> Result<File> {
    let file = File::open(player.place.join(name))?;
    if player.name != DISK {
        fadvise(&file, 0, None, Advice::DontNeed)?;
    }
    Ok(file)
}

fn read_in_order(player: &Player, name: &str, size: usize) -> Result<f64> {
    let mut buffer = vec![0; BUFFER];
    let mut file = opened(player, name)?;
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

fn read_at_random(player: &Player, name: &str, size: usize, jumps: usize) -> Result<f64> {
    let file = opened(player, name)?;
    fadvise(&file, 0, None, Advice::Random)?;
    let (mut places, mut buffer) = (Places(1), vec![0; SMALL]);
    let began = Instant::now();
    for _ in 0..jumps {
        file.read_exact_at(&mut buffer, places.next(size))?;
    }
    Ok(began.elapsed().as_secs_f64())
}

fn write_at_random(path: &Path, size: usize, jumps: usize) -> Result<f64> {
    let (mut places, buffer) = (Places(2), noise(SMALL));
    let began = Instant::now();
    let file = OpenOptions::new().write(true).open(path)?;
    for _ in 0..jumps {
        file.write_all_at(&buffer, places.next(size))?;
    }
    drop(file);
    Ok(began.elapsed().as_secs_f64())
}

fn make_files(directory: &Path, files: usize) -> Result<f64> {
    let content = noise(SMALL);
    let began = Instant::now();
    fs::create_dir(directory)?;
    for number in 0..files {
        fs::write(directory.join(format!("file-{number:05}")), &content)?;
    }
    Ok(began.elapsed().as_secs_f64())
}

/// Lists new files, created behind the mounts' backs, so that nothing is cached.
fn list_files(player: &Player, name: &str, files: usize) -> Result<f64> {
    make_files(&player.beneath.join(name), files)?;
    let began = Instant::now();
    let mut bytes = 0;
    for entry in fs::read_dir(player.place.join(name))? {
        bytes += entry?.metadata()?.len();
    }
    ensure!(bytes == (files * SMALL) as u64, "a list of {files} files has {bytes} bytes in them");
    Ok(began.elapsed().as_secs_f64())
}

fn noise(length: usize) -> Vec<u8> {
    let mut places = Places(3);
    (0..length).map(|_| places.draw() as u8).collect()
}

/// Offsets of random access, the same for all.
struct Places(u64);

impl Places {
    fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 33
    }

    fn next(&mut self, size: usize) -> u64 {
        self.draw() % (size / SMALL) as u64 * SMALL as u64
    }
}
