//! One reading of the kernel's counters, and the line of the table that follows from two readings. Missing values count
//! as 0.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::read_to_string;
use std::path::Path;
use std::time::Duration;

use corro_base::procfs;
use corro_launch::kill_tagged::processes_with_tag;

/// Header line of the machine's table.
pub const HEADER: &str = "time,cpu_percent,memory_used_bytes,memory_total_bytes,disk_read_bytes_per_s,\
disk_written_bytes_per_s,network_received_bytes_per_s,network_sent_bytes_per_s,job_processes,job_cpu_percent,\
job_memory_bytes,job_read_bytes_per_s,job_written_bytes_per_s\n";

/// Clock ticks per second (USER_HZ).
const TICKS_PER_S: f64 = 100.0;
const SECTOR_BYTES: u64 = 512;

/// Counters of the machine and of the job's processes at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CounterReading {
    /// Ticks of all CPUs: busy, and in total.
    processors: (u64, u64),
    memory_used: u64,
    memory_total: u64,
    /// Bytes read and written by disks, received and sent by networks.
    disks: (u64, u64),
    networks: (u64, u64),
    processes: BTreeMap<u32, Process>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Process {
    ticks: u64,
    memory: u64,
    read: u64,
    written: u64,
}

impl CounterReading {
    /// Reads the counters. Blocks while scanning `/proc`.
    pub fn read(tag: &str) -> CounterReading {
        let text = |path: &str| read_to_string(path).unwrap_or_default();
        let (memory_used, memory_total) = memory(&text("/proc/meminfo"));
        let is_disk = |name: &str| Path::new("/sys/block").join(name).join("device").exists();
        CounterReading {
            processors: processors(&text("/proc/stat")),
            memory_used,
            memory_total,
            disks: disks(&text("/proc/diskstats"), is_disk),
            networks: networks(&text("/proc/net/dev")),
            processes: processes_with_tag(tag).into_iter().filter_map(|id| Some((id, process(id)?))).collect(),
        }
    }
}

/// A line of the table without its time.
pub fn line(before: &CounterReading, after: &CounterReading, time: Duration) -> String {
    let seconds = time.as_secs_f64().max(0.001);
    let rate = |before: u64, after: u64| (after.saturating_sub(before) as f64 / seconds).round();
    let share = |(work, all): (u64, u64), (work_before, all_before): (u64, u64)| {
        let all = all.saturating_sub(all_before).max(1);
        100.0 * work.saturating_sub(work_before) as f64 / all as f64
    };
    // A new process contributes everything; the last part of a process that has ended is missing.
    let of_job = |what: fn(&Process) -> u64| {
        let new =
            |(id, process): (&u32, &Process)| what(process).saturating_sub(before.processes.get(id).map_or(0, what));
        after.processes.iter().map(new).sum::<u64>()
    };
    let mut line = String::new();
    write!(
        line,
        "{:.1},{},{},{},{},{},{},{},{:.1},{},{},{}",
        share(after.processors, before.processors),
        after.memory_used,
        after.memory_total,
        rate(before.disks.0, after.disks.0),
        rate(before.disks.1, after.disks.1),
        rate(before.networks.0, after.networks.0),
        rate(before.networks.1, after.networks.1),
        after.processes.len(),
        100.0 * of_job(|process| process.ticks) as f64 / TICKS_PER_S / seconds,
        after.processes.values().map(|process| process.memory).sum::<u64>(),
        rate(0, of_job(|process| process.read)),
        rate(0, of_job(|process| process.written)),
    )
    .expect("writing to a string does not fail");
    line
}

fn processors(stat: &str) -> (u64, u64) {
    let all = stat.lines().find_map(|line| line.strip_prefix("cpu ")).unwrap_or_default();
    // user, nice, system, idle, iowait, irq, softirq, steal; guest time is included in user.
    let ticks: Vec<u64> = all.split_whitespace().take(8).map(|ticks| ticks.parse().unwrap_or(0)).collect();
    let idle = ticks.iter().skip(3).take(2).sum::<u64>();
    let all = ticks.iter().sum::<u64>();
    (all - idle, all)
}

/// Used and total memory in bytes. Available memory does not count as used.
fn memory(meminfo: &str) -> (u64, u64) {
    procfs::Memory::parse(meminfo)
        .map_or((0, 0), |memory| (memory.total.saturating_sub(memory.available), memory.total))
}

/// Whole disks only: partitions and volumes on them count the same bytes again.
fn disks(diskstats: &str, is_disk: impl Fn(&str) -> bool) -> (u64, u64) {
    let of = |line: &str| {
        let columns: Vec<&str> = line.split_whitespace().collect();
        let sectors = |at: usize| columns.get(at)?.parse::<u64>().ok();
        is_disk(columns.get(2)?).then_some((sectors(5)? * SECTOR_BYTES, sectors(9)? * SECTOR_BYTES))
    };
    sum(diskstats.lines().filter_map(of))
}

/// All interfaces but the loopback.
fn networks(dev: &str) -> (u64, u64) {
    let of = |line: &str| {
        let (name, counts) = line.split_once(':')?;
        let counts: Vec<u64> = counts.split_whitespace().map(|count| count.parse().unwrap_or(0)).collect();
        (name.trim() != "lo").then_some((*counts.first()?, *counts.get(8)?))
    };
    sum(dev.lines().filter_map(of))
}

fn sum(pairs: impl Iterator<Item = (u64, u64)>) -> (u64, u64) {
    pairs.fold((0, 0), |(a, b), (c, d)| (a + c, b + d))
}

/// Counters of a process; `None` if it has ended.
fn process(id: u32) -> Option<Process> {
    let text = |name: &str| {
        let bytes = std::fs::read(format!("/proc/{id}/{name}")).ok()?;
        Some(String::from_utf8_lossy(&bytes).into_owned())
    };
    let io = text("io").unwrap_or_default();
    let count = |name: &str| io.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok()).unwrap_or(0);
    Some(Process {
        ticks: procfs::Stat::parse(&text("stat")?)?.cpu_ticks,
        memory: procfs::field_bytes(&text("status")?, "VmRSS").unwrap_or(0),
        read: count("read_bytes:"),
        written: count("write_bytes:"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_counters_are_parsed() {
        assert_eq!(processors("cpu  10 1 5 80 4 0 0 0 0 0\ncpu0 1 1 1 1\n"), (16, 100));
        assert_eq!(processors(""), (0, 0));
        assert_eq!(memory("MemTotal: 1000 kB\nMemFree: 1 kB\nMemAvailable: 400 kB\n"), (600 * 1024, 1000 * 1024));
        let disks_now = " 254 0 vda 7 0 20 1 8 0 40 1 0 0 0\n 254 1 vda1 7 0 20 1 8 0 40 1 0 0 0\n";
        assert_eq!(disks(disks_now, |name| name == "vda"), (20 * 512, 40 * 512));
        let dev = "Inter-| Receive\n face |bytes\n lo: 9 1 0 0 0 0 0 0 9 1\n eth0: 5 1 0 0 0 0 0 0 6 1\n";
        assert_eq!(networks(dev), (5, 6));
    }

    #[test]
    fn a_line_has_the_rates_between_two_readings() {
        let process = |ticks, memory, written| Process { ticks, memory, read: 0, written };
        let before = CounterReading {
            processors: (100, 1000),
            memory_total: 64,
            disks: (0, 1000),
            processes: [(1, process(100, 10, 0)), (2, process(7, 10, 0))].into(),
            ..CounterReading::default()
        };
        let after = CounterReading {
            processors: (150, 1100),
            memory_used: 32,
            memory_total: 64,
            disks: (2000, 1000),
            networks: (4, 8),
            processes: [(1, process(300, 20, 4096)), (3, process(100, 1, 0))].into(),
        };
        let line = line(&before, &after, Duration::from_secs(2));
        assert_eq!(line, "50.0,32,64,1000,0,2,4,2,150.0,21,0,2048");
        assert_eq!(HEADER.trim_end().split(',').count(), line.split(',').count() + 1);
    }

    #[test]
    fn this_machine_can_be_read() {
        let reading = CounterReading::read("no process has such a tag/");
        assert!(reading.memory_total > 0 && reading.processors.1 > 0 && reading.processes.is_empty(), "{reading:?}");
        assert!(super::process(std::process::id()).is_some_and(|process| process.memory > 0));
    }
}
