//! Records the metrics that ranks print, by rank: only the node knows which of several ranks wrote a line of a shared
//! log. One file per node in `curves/` beside the job's logs, created with the first metric; the server reads these
//! instead of the logs, which may be large. Never slows a rank down: output above a rate limit is not parsed, and after
//! a write error recording stops.

use std::fs::File;
use std::io::Write;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use corro_metrics::{Curves, MetricStream, curve_file};
use corro_model::NodeId;
use corro_model::layout::{ProcessSlot, Role};
use corro_model::metrics::CURVES;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::events::Reporter;
use crate::output::output_dir::OutputDir;
use crate::output::progress_estimate::ProgressEstimate;
use crate::task_errors::now;

/// Interval of writes to the file.
const FLUSH_INTERVAL: Duration = Duration::from_secs(1);
/// Limit of parsed output of a node, in bytes per second.
const MAX_BYTES_PER_S: usize = 4 * 1024 * 1024;
/// The expected end is reported again when it has moved by this fraction of the remaining time.
const MIN_RELATIVE_CHANGE: f64 = 0.05;

/// Recorder for all ranks of this node. Clones share the state.
#[derive(Clone, Debug)]
pub struct Recorder(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    /// Directory beside the job's logs, if it can be created.
    directory: Option<OutputDir>,
    name: String,
    file: Option<File>,
    given_up: bool,
    curves: Curves,
    /// Sequence number of the last point written.
    written: u64,
    bytes_this_second: usize,
    window_start: Instant,
    /// Progress of each tapped stream.
    estimates: Vec<ProgressEstimate>,
    reported_end: Option<Instant>,
}

/// Parser of one output stream of a process.
#[derive(Clone, Debug)]
pub struct StreamTap {
    recorder: Recorder,
    stream: Arc<Mutex<MetricStream>>,
    /// Index in `State::estimates`.
    estimate_idx: usize,
}

/// Parsers of both output streams of a process.
#[derive(Clone, Debug)]
pub struct ProcessTap {
    pub stdout: StreamTap,
    pub stderr: StreamTap,
}

/// Background task that writes to the file until dropped.
pub struct WriterTask(JoinHandle<()>);

impl Recorder {
    pub fn new(logs: &OutputDir, node: &NodeId) -> Recorder {
        let state = State {
            directory: logs.sibling(CURVES).ok(),
            name: format!("{node}.jsonl"),
            file: None,
            given_up: false,
            curves: Curves::default(),
            written: 0,
            bytes_this_second: 0,
            window_start: Instant::now(),
            estimates: Vec::new(),
            reported_end: None,
        };
        Recorder(Arc::new(Mutex::new(state)))
    }

    /// Taps a process that may print metrics. The job has `n_slots` processes on `n_nodes` nodes.
    pub fn tap_process(&self, slot: &ProcessSlot, n_slots: usize, n_nodes: usize) -> Option<ProcessTap> {
        let (rank, shared) = match slot.role {
            Role::ParameterServer => return None,
            // Processes on other nodes write through it, without saying which.
            Role::Mpirun => (None, true),
            Role::Command => (None, n_nodes > 1),
            Role::Rank | Role::Worker => ((n_slots > 1).then(|| u32::try_from(slot.index).unwrap_or(u32::MAX)), false),
        };
        let tap = || {
            let stream = Arc::new(Mutex::new(MetricStream::log(rank, shared)));
            let mut state = self.state();
            state.estimates.push(ProgressEstimate::default());
            StreamTap { recorder: self.clone(), stream, estimate_idx: state.estimates.len() - 1 }
        };
        Some(ProcessTap { stdout: tap(), stderr: tap() })
    }

    /// Starts writing in the background until the result is dropped. Also reports the expected end of the task.
    pub fn start_writer(&self, reporter: Reporter) -> WriterTask {
        let recorder = self.clone();
        WriterTask(tokio::spawn(async move {
            loop {
                tokio::time::sleep(FLUSH_INTERVAL).await;
                recorder.flush().await;
                let end = recorder.state().new_expected_end(Instant::now());
                if let Some(end) = end {
                    reporter.expected_end(end).await;
                }
            }
        }))
    }

    /// Writes the points recorded so far, on a blocking thread.
    pub async fn flush(&self) {
        if self.state().has_unwritten_points() {
            let recorder = self.clone();
            let _ = tokio::task::spawn_blocking(move || recorder.state().write()).await;
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for WriterTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl StreamTap {
    pub fn observe(&self, block: &[u8]) {
        let mut state = self.recorder.state();
        if state.admit(block.len()) {
            let mut stream = self.stream();
            stream.push(block, Some(now().millis()), &mut state.curves);
            if let Some(progress) = stream.progress() {
                state.estimates[self.estimate_idx].report(Instant::now(), progress);
            }
        }
    }

    fn stream(&self) -> MutexGuard<'_, MetricStream> {
        self.stream.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ProcessTap {
    /// Handles a last line without a newline, when the process has ended.
    pub fn finish(&self) {
        for tap in [&self.stdout, &self.stderr] {
            let mut state = tap.recorder.state();
            tap.stream().finish(&mut state.curves);
        }
    }
}

impl State {
    fn admit(&mut self, bytes: usize) -> bool {
        if self.window_start.elapsed() > Duration::from_secs(1) {
            (self.bytes_this_second, self.window_start) = (0, Instant::now());
        }
        self.bytes_this_second += bytes;
        !self.given_up && self.bytes_this_second <= MAX_BYTES_PER_S
    }

    /// Expected end of the slowest stream, if it differs enough from the one last reported.
    fn new_expected_end(&mut self, now: Instant) -> Option<Instant> {
        let end = self.estimates.iter().filter_map(ProgressEstimate::expected_end).max()?;
        let change = |reported: Instant| end.max(reported) - end.min(reported);
        let threshold = end.saturating_duration_since(now).mul_f64(MIN_RELATIVE_CHANGE).max(FLUSH_INTERVAL);
        let is_new = self.reported_end.is_none_or(|reported| change(reported) > threshold);
        is_new.then(|| *self.reported_end.insert(end))
    }

    fn has_unwritten_points(&self) -> bool {
        !self.given_up && self.curves.seq() > self.written
    }

    fn write(&mut self) {
        let text = curve_file::encode_since(&self.curves, self.written);
        self.written = self.curves.seq();
        if let Err(error) = self.append(text.as_bytes()) {
            // The server reads the logs instead.
            tracing::warn!(%error, name = self.name, "cannot write a job's training curves");
            self.given_up = true;
        }
    }

    fn append(&mut self, text: &[u8]) -> std::io::Result<()> {
        let file = match &mut self.file {
            Some(file) => file,
            None => {
                let directory = self.directory.as_ref().ok_or(std::io::ErrorKind::NotFound)?;
                directory.make()?;
                self.file.insert(directory.append(&self.name)?)
            }
        };
        file.write_all(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    fn slot(role: Role, index: usize) -> ProcessSlot<'static> {
        let (stdout, stderr) = ("stdout.txt".to_owned(), "stderr.txt".to_owned());
        ProcessSlot { number: index, role, index, host_idx: 0, command: "x", stdout, stderr }
    }

    #[tokio::test]
    async fn each_rank_of_a_shared_log_has_curves_of_its_own() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let logs = OutputDir::of_test(directory.path(), "stdouterr");
        let recorder = Recorder::new(&logs, &testing::node(1));
        let hearings = [0, 1].map(|rank| recorder.tap_process(&slot(Role::Rank, rank), 2, 2).expect("a rank"));
        hearings[0].stdout.observe(b"nothing to tell\n");
        recorder.flush().await;
        assert!(!directory.path().join(CURVES).exists(), "no file without figures");
        hearings[0].stdout.observe(b"step=1 loss=2\n");
        hearings[1].stdout.observe(b"step=1 loss=4\nstep=2 lo");
        recorder.flush().await;
        hearings[1].stdout.observe(b"ss=3");
        hearings[1].finish();
        recorder.flush().await;
        let file = directory.path().join(CURVES).join(format!("{}.jsonl", testing::node(1)));
        let mut lines: Vec<serde_json::Value> = std::fs::read_to_string(file)
            .expect("the file is there")
            .lines()
            .map(|line| serde_json::from_str(line).expect("JSON"))
            .collect();
        lines.iter_mut().for_each(|line| line["points"][0][1] = serde_json::Value::Null);
        let recorded: Vec<String> =
            lines.iter().map(|line| format!("{} {} {}", line["name"], line["rank"], line["points"])).collect();
        assert_eq!(
            recorded,
            [r#""loss" 0 [[1.0,null,2.0]]"#, r#""loss" 1 [[1.0,null,4.0]]"#, r#""loss" 1 [[2.0,null,3.0]]"#]
        );
    }

    #[test]
    fn processes_that_are_not_ranks_have_shared_curves() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let recorder = Recorder::new(&OutputDir::of_test(directory.path(), "stdouterr"), &testing::node(1));
        assert!(recorder.tap_process(&slot(Role::ParameterServer, 0), 3, 2).is_none());
        for (role, n_slots) in [(Role::Rank, 1), (Role::Command, 1), (Role::Mpirun, 1)] {
            let tap_process = recorder.tap_process(&slot(role, 0), n_slots, 2).expect("it tells");
            tap_process.stdout.observe(b"step=1 loss=2\n");
        }
        let ranks: Vec<Option<u32>> = recorder.state().curves.iter().map(|(key, _)| key.rank).collect();
        assert_eq!(ranks, [None]);
    }

    #[test]
    fn output_above_the_rate_limit_is_skipped() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let recorder = Recorder::new(&OutputDir::of_test(directory.path(), "stdouterr"), &testing::node(1));
        let tap_process = recorder.tap_process(&slot(Role::Rank, 0), 1, 1).expect("it tells");
        recorder.state().window_start = Instant::now() + Duration::from_secs(3600);
        tap_process.stdout.observe(&vec![b'x'; MAX_BYTES_PER_S]);
        tap_process.stdout.observe(b"step=1 loss=2\n");
        assert_eq!(recorder.state().curves.seq(), 0);
    }
}
