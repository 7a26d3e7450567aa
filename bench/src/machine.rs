//! Description of the machine and of its load during a benchmark: enough to judge the numbers, without host names or paths.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use crate::stats::Samples;

pub fn describe() {
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    println!("machine: {cores} cores, {}, {} memory", cpu_model(), memory());
    let kernel = read("/proc/sys/kernel/osrelease");
    println!("kernel: Linux {}; temporary directory on {}", kernel.trim(), file_system(&std::env::temp_dir()));
    match disk_sync() {
        Ok(sync) => println!("disk: a synced write of 4 KiB takes {:.2} ms (p50 of 50)", sync.p50()),
        Err(error) => println!("disk: cannot write to the temporary directory: {error}"),
    }
    println!("load average at the start: {}; processor busy: {}", load_average(), busy());
}

/// CPU use of other processes, measured over half an idle second.
fn busy() -> String {
    let sample = || parse_cpu_ticks(&read("/proc/stat"));
    let before = sample();
    std::thread::park_timeout(Duration::from_millis(500));
    match (before, sample()) {
        (Some((idle, all)), Some((idle_now, all_now))) if all_now > all => {
            format!("{:.0} %", 100.0 - 100.0 * (idle_now - idle) as f64 / (all_now - all) as f64)
        }
        _ => "unknown".to_owned(),
    }
}

/// Shortest measured period, in kernel ticks: half a second on two cores.
const MIN_TICKS: u64 = 100;

/// CPU time of a whole benchmark, to separate the share of other processes.
pub struct Usage {
    idle: u64,
    all: u64,
    own: u64,
}

impl Usage {
    pub fn now() -> Option<Self> {
        let (idle, all) = parse_cpu_ticks(&read("/proc/stat"))?;
        Some(Self { idle, all, own: own_ticks(&read("/proc/self/stat"))? })
    }

    /// CPU use since `before`, in percent of the machine, of everything but this process and its reaped descendants. `None`
    /// when too little time has passed.
    pub fn others_since(&self, before: &Usage) -> Option<f64> {
        let all = self.all.saturating_sub(before.all);
        if all < MIN_TICKS {
            return None;
        }
        let busy = all.saturating_sub(self.idle.saturating_sub(before.idle));
        Some(100.0 * busy.saturating_sub(self.own.saturating_sub(before.own)) as f64 / all as f64)
    }
}

/// User and system time that a process has used so far.
pub fn processor_seconds(pid: u32) -> anyhow::Result<f64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let (_, fields) = stat.rsplit_once(')').unwrap_or_default();
    let ticks: u64 = fields.split_whitespace().skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
    Ok(ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
}

/// User and system ticks of this process and of its reaped descendants.
fn own_ticks(stat: &str) -> Option<u64> {
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_whitespace().skip(11).take(4).map(|field| field.parse::<u64>().ok()).sum()
}

/// Idle (including I/O wait) and total ticks since boot.
fn parse_cpu_ticks(stat: &str) -> Option<(u64, u64)> {
    let ticks =
        stat.lines().next()?.split_whitespace().skip(1).map(str::parse).collect::<Result<Vec<u64>, _>>().ok()?;
    Some((ticks.get(3)? + ticks.get(4)?, ticks.iter().take(8).sum()))
}

/// Lower bound of an acknowledged change: the store syncs every commit.
fn disk_sync() -> io::Result<Samples> {
    let dir = tempfile::tempdir()?;
    let mut file = File::create(dir.path().join("sync"))?;
    let mut samples = Samples::new("sync", "ms");
    for _ in 0..50 {
        let began = Instant::now();
        file.write_all(&[7; 4096])?;
        file.sync_all()?;
        samples.add(began.elapsed().as_secs_f64() * 1e3);
    }
    Ok(samples)
}

/// Over one, five and fifteen minutes.
pub fn load_average() -> String {
    read("/proc/loadavg").split_whitespace().take(3).collect::<Vec<_>>().join(" ")
}

fn cpu_model() -> String {
    let text = read("/proc/cpuinfo");
    let line = text.lines().find(|line| line.starts_with("model name"));
    line.and_then(|line| line.split_once(':'))
        .map_or_else(|| "unknown CPU".to_owned(), |(_, name)| name.trim().to_owned())
}

fn memory() -> String {
    let text = read("/proc/meminfo");
    let kib = text.lines().find_map(|line| line.strip_prefix("MemTotal:")?.split_whitespace().next()?.parse().ok());
    kib.map_or_else(|| "unknown".to_owned(), |kib: u64| format!("{:.1} GiB", kib as f64 / f64::from(1 << 20)))
}

fn file_system(directory: &Path) -> String {
    let directory = directory.canonicalize().unwrap_or_else(|_| directory.to_owned());
    file_system_of(&read("/proc/self/mountinfo"), &directory)
}

/// Type of the mount that holds `directory`: the longest matching mount point, of equally long ones the last.
fn file_system_of(mounts: &str, directory: &Path) -> String {
    let mounts = mounts.lines().filter_map(|line| {
        let (mount, source) = line.split_once(" - ")?;
        let point = Path::new(mount.split(' ').nth(4)?);
        directory.starts_with(point).then_some((point.components().count(), source.split(' ').next()?))
    });
    mounts
        .max_by_key(|(depth, _)| *depth)
        .map_or_else(|| "an unknown file system".to_owned(), |(_, kind)| kind.to_owned())
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_for_the_disk_is_idle() {
        assert_eq!(parse_cpu_ticks("cpu  1 2 3 10 5 0 0 1 9 9\ncpu0 1 1"), Some((15, 22)));
        assert_eq!(parse_cpu_ticks(""), None);
    }

    #[test]
    fn reaped_children_count_as_own_time() {
        let stat = "7 (a) b) S 1 7 7 0 -1 4194304 100 200 0 0 11 12 13 14 20 0 1 0 100 200 300";
        assert_eq!(own_ticks(stat), Some(50));
        let before = Usage { idle: 100, all: 200, own: 10 };
        assert_eq!(Usage { idle: 150, all: 300, own: 40 }.others_since(&before), Some(20.0));
        assert_eq!(Usage { idle: 150, all: 299, own: 40 }.others_since(&before), None);
    }

    #[test]
    fn the_nearest_mount_counts() {
        let mounts = "1 0 8:1 / / rw,relatime shared:1 - ext4 /dev/a rw\n\
                      2 1 0:5 / /tmp rw - tmpfs tmpfs rw\n\
                      3 1 0:6 / /tmpfoo rw - xfs /dev/b rw\n";
        let check = |directory: &str, kind: &str| assert_eq!(file_system_of(mounts, Path::new(directory)), kind);
        check("/tmp/x", "tmpfs");
        check("/var/tmp", "ext4");
        check("/tmpfoo", "xfs");
    }
}
