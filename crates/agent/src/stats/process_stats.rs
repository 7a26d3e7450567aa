//! Statistics of the running task's processes: CPU, memory, threads, and time since their last output. Read from
//! `/proc` on request, by the tags that every process of a task carries; nothing is collected otherwise. The state of the
//! task's GPUs is read meanwhile.

use std::collections::{BTreeMap, HashMap};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard};
use std::task::{Context, Poll};
use std::thread::sleep;
use std::time::{Duration, Instant};

use corro_base::procfs::Stat;
use tokio::io::{AsyncRead, ReadBuf};

use corro_launch::kill_tagged;
use corro_model::AttemptId;
use corro_model::batchai::RankStats;
use corro_model::node::TaskStats;

use crate::gpu::monitor::GpuMonitor;
use crate::identity::incarnation::TagPrefix;
use crate::stats::engine_status;

/// Time between the two samples from which the CPU load is computed.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(200);

/// Samples the processes and GPUs of `attempt` on this node. Blocks for [`SAMPLE_INTERVAL`], and longer while the driver
/// of the GPUs does not answer.
pub fn sample(tags: &TagPrefix, attempt: Option<AttemptId>, gpus: &GpuMonitor) -> TaskStats {
    let Some(attempt) = attempt else { return TaskStats::default() };
    let gpu_reading = gpus.request(&attempt);
    let prefix = tags.attempt_prefix(&attempt);
    let before: HashMap<i32, u64> = pids_by_process(&prefix)
        .into_values()
        .flatten()
        .filter_map(|pid| Some((pid, Stat::read(pid)?.cpu_ticks)))
        .collect();
    let began = Instant::now();
    sleep(SAMPLE_INTERVAL);
    let processes = pids_by_process(&prefix).into_iter().filter_map(|(process, pids)| {
        let stats: Vec<(i32, Stat)> = pids.into_iter().filter_map(|pid| Some((pid, Stat::read(pid)?))).collect();
        let engines = engine_status::read_all(&stats.iter().map(|(pid, _)| *pid).collect::<Vec<_>>());
        stats_of(&process, &stats, &before, began.elapsed()).map(|stats| RankStats { engines, ..stats })
    });
    let mut processes: Vec<RankStats> = processes.collect();
    processes.sort_by_key(|stats| stats.rank);
    let gpus = gpu_reading.map_or_else(Vec::new, |ticket| gpus.wait(&attempt, ticket));
    TaskStats { attempt: Some(attempt), processes, gpus }
}

/// Ids of all processes of an attempt.
pub fn pids_of(tags: &TagPrefix, attempt: &AttemptId) -> Vec<i32> {
    pids_by_process(&tags.attempt_prefix(attempt)).into_values().flatten().collect()
}

/// Process ids below `prefix`, grouped by the rest of their tag.
fn pids_by_process(prefix: &str) -> BTreeMap<String, Vec<i32>> {
    let mut by_name: BTreeMap<String, Vec<i32>> = BTreeMap::new();
    for (pid, tag) in kill_tagged::tagged_processes() {
        if let Some(name) = tag.strip_prefix(prefix) {
            by_name.entry(name.to_owned()).or_default().push(pid);
        }
    }
    by_name
}

fn stats_of(name: &str, stats: &[(i32, Stat)], before: &HashMap<i32, u64>, over: Duration) -> Option<RankStats> {
    // The guard carries the same tag but is not the job's; its child is.
    let guard = stats.iter().map(|(pid, _)| *pid).find(|pid| is_guard(*pid));
    let stats: Vec<&(i32, Stat)> = stats.iter().filter(|(pid, _)| Some(*pid) != guard).collect();
    let (pid, _) = stats.iter().min_by_key(|(pid, stat)| (Some(stat.parent) != guard, stat.start_ticks, *pid))?;
    let spent =
        |(pid, stat): &(i32, Stat)| stat.cpu_ticks.saturating_sub(before.get(pid).copied().unwrap_or(stat.cpu_ticks));
    let (_, busiest) = stats.iter().max_by_key(|one| (spent(one), one.1.state == 'R'))?;
    let seconds =
        stats.iter().map(|one| spent(one)).sum::<u64>() as f64 / rustix::param::clock_ticks_per_second() as f64;
    let pages: u64 = stats.iter().map(|(_, stat)| stat.resident_pages).sum();
    Some(RankStats {
        rank: name.strip_prefix("rank-").and_then(|number| number.parse().ok()),
        pid: pid.unsigned_abs(),
        state: busiest.state.to_string(),
        cpu_percent: (seconds / over.as_secs_f64() * 1_000.0).round() / 10.0,
        memory_bytes: pages * rustix::param::page_size() as u64,
        threads: stats.iter().map(|(_, stat)| stat.threads).sum(),
        processes: stats.len() as u32,
        quiet_for_ms: guard.and_then(|guard| silence_ms(guard.unsigned_abs())),
        engines: Vec::new(),
    })
}

/// Time of the last output of each process, by the process id of its guard. One map per program: process ids are unique
/// on a machine.
static LAST_OUTPUT: LazyLock<Mutex<HashMap<u32, Arc<AtomicU64>>>> = LazyLock::new(Mutex::default);
static CLOCK_START: LazyLock<Instant> = LazyLock::new(Instant::now);

fn last_output() -> MutexGuard<'static, HashMap<u32, Arc<AtomicU64>>> {
    LAST_OUTPUT.lock().expect("no one panics while holding what was heard")
}

/// Whether the process id is that of a guard with tracked output.
fn is_guard(pid: i32) -> bool {
    last_output().contains_key(&pid.unsigned_abs())
}

/// Whether the process is the direct child of a guard, not a descendant.
pub fn is_guarded(pid: i32) -> bool {
    Stat::read(pid).is_some_and(|stat| is_guard(stat.parent))
}

fn silence_ms(pid: u32) -> Option<u64> {
    let last_output_ms = last_output().get(&pid)?.load(Ordering::Relaxed);
    (last_output_ms > 0).then(|| clock_ms().saturating_sub(last_output_ms))
}

/// Milliseconds since the program's start plus one: 0 means no output yet.
fn clock_ms() -> u64 {
    CLOCK_START.elapsed().as_millis() as u64 + 1
}

/// Tracks the output of one process while it exists.
#[derive(Debug)]
pub struct OutputActivity {
    pid: u32,
    last_output_ms: Arc<AtomicU64>,
}

impl OutputActivity {
    pub fn track(pid: u32) -> OutputActivity {
        let last_output_ms = Arc::<AtomicU64>::default();
        last_output().insert(pid, last_output_ms.clone());
        OutputActivity { pid, last_output_ms }
    }

    /// Wraps a stream so that every read of data updates the time of the last output.
    pub fn watch<R>(&self, stream: R) -> ActivityReader<R> {
        ActivityReader { stream, last_output_ms: self.last_output_ms.clone() }
    }
}

impl Drop for OutputActivity {
    fn drop(&mut self) {
        let mut last_output = last_output();
        if last_output.get(&self.pid).is_some_and(|last_output_ms| Arc::ptr_eq(last_output_ms, &self.last_output_ms)) {
            last_output.remove(&self.pid);
        }
    }
}

/// A stream that records when data was last read from it.
#[derive(Debug)]
pub struct ActivityReader<R> {
    stream: R,
    last_output_ms: Arc<AtomicU64>,
}

impl<R: AsyncRead + Unpin> AsyncRead for ActivityReader<R> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<std::io::Result<()>> {
        let before = buf.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buf);
        if buf.filled().len() > before {
            self.last_output_ms.store(clock_ms(), Ordering::Relaxed);
        }
        read
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rank_is_the_sum_of_its_processes() {
        let stat = |state, cpu_ticks, start_ticks| Stat {
            state,
            parent: 9,
            cpu_ticks,
            threads: 2,
            start_ticks,
            resident_pages: 10,
        };
        let ticks = rustix::param::clock_ticks_per_second();
        let stats = [(41, stat('R', 500 + ticks, 200)), (40, stat('S', 100, 100)), (42, stat('S', 70, 300))];
        // The third process began after the first sample: CPU time before it does not count.
        let before = HashMap::from([(41, 500), (40, 100)]);
        let got = stats_of("rank-3", &stats, &before, Duration::from_secs(2)).expect("figures");
        assert_eq!((got.rank, got.pid, got.state.as_str()), (Some(3), 40, "R"));
        assert_eq!((got.cpu_percent, got.threads, got.processes), (50.0, 6, 3));
        assert_eq!(got.memory_bytes, 30 * rustix::param::page_size() as u64);
        assert_eq!(stats_of("preparation", &stats, &before, Duration::from_secs(1)).and_then(|f| f.rank), None);
        assert_eq!(stats_of("rank-3", &[], &before, Duration::from_secs(1)), None);
        // The process with tracked output is the guard; its child is the rank. No process has these ids.
        let guard = i32::MAX;
        let _ear = OutputActivity::track(guard.unsigned_abs());
        let rank = Stat { parent: guard, ..stat('R', 7, 60) };
        let with_guard = [(guard, stat('S', 5, 50)), (44, stat('S', 5, 55)), (45, rank)];
        let got = stats_of("rank-0", &with_guard, &HashMap::new(), Duration::from_secs(1)).expect("figures");
        assert_eq!((got.pid, got.processes), (45, 2));
    }

    #[tokio::test]
    async fn output_activity_is_tracked_until_dropped() {
        // No process has this id.
        let pid = u32::MAX;
        let activity = OutputActivity::track(pid);
        assert_eq!(silence_ms(pid), None);
        let mut stream = activity.watch(&b"word"[..]);
        let mut text = String::new();
        tokio::io::AsyncReadExt::read_to_string(&mut stream, &mut text).await.expect("a stream of bytes");
        assert!(text == "word" && silence_ms(pid).is_some());
        drop(activity);
        assert_eq!(silence_ms(pid), None);
    }
}
