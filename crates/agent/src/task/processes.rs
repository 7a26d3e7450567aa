//! The processes of one phase of a task on this node: copies their output to the logs and stops them together. Dropping
//! it kills them.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::io::AsyncRead;
use tokio::sync::watch;
use tokio::task::JoinSet;

use corro_launch::exit::Exit;
use corro_launch::lines::{Mode, pump_into};
use corro_launch::process::Process;
use corro_launch::stopper::Stopper;
use corro_launch::tail::Tail;
use corro_model::Timestamp;
use corro_model::explain::{MAX_TAIL_BYTES, MAX_TAIL_LINES, excerpt};

use crate::output::curve_recorder::{ProcessTap, StreamTap};
use crate::output::log_file::LogFile;
use crate::output::log_sink::{LateOutput, LogSink};
use crate::stats::process_stats::OutputActivity;
use crate::task::control::{TaskControl, wait_for_stop};
use crate::task_errors::now;

/// A process that has ended, with all its output written.
#[derive(Debug)]
pub struct ProcessEnd {
    pub rank: usize,
    pub exit: io::Result<Exit>,
    /// A stop had been requested before it ended.
    pub stopped: bool,
    /// When it ended; its output may take longer.
    pub at: Timestamp,
    pub stderr: Vec<String>,
}

/// Destination of a process's output.
#[derive(Clone, Debug)]
pub struct ProcessOutput {
    pub stdout: Arc<LogFile>,
    pub stderr: Arc<LogFile>,
    pub mode: Mode,
    /// Put before each line in the files.
    pub line_prefix: Option<String>,
    /// Destination once the lease is over and others may write to those files.
    pub late: Option<LateOutput>,
}

/// A set of supervised processes.
#[derive(Debug, Default)]
pub struct TaskProcesses {
    running: JoinSet<ProcessEnd>,
    stoppers: Vec<Stopper>,
    stopping: Arc<AtomicBool>,
    /// Grace of the stop in progress.
    grace: Option<Duration>,
    terminations: JoinSet<()>,
}

impl TaskProcesses {
    /// Adds a started process. `tap` feeds its output to the training curves.
    pub fn add(&mut self, rank: usize, process: Process, output: ProcessOutput, tap: Option<ProcessTap>) {
        self.stoppers.push(process.stopper());
        self.running.spawn(supervise(rank, process, output, tap, Arc::clone(&self.stopping)));
    }

    /// Whether no process runs.
    pub fn is_empty(&self) -> bool {
        self.running.is_empty()
    }

    /// Sends SIGTERM to all and SIGKILL after `grace`. A second stop has an effect only if its grace is shorter.
    pub fn stop(&mut self, grace: Duration) {
        if self.grace.is_some_and(|given| given <= grace) {
            return;
        }
        self.grace = Some(grace);
        self.stopping.store(true, Ordering::SeqCst);
        for stopper in self.stoppers.clone() {
            self.terminations.spawn(async move { stopper.terminate(grace).await });
        }
    }

    /// The next process that ends; `None` when all have ended. Meanwhile obeys stops requested by `control`.
    pub async fn next(&mut self, control: &mut watch::Receiver<TaskControl>) -> Option<ProcessEnd> {
        loop {
            tokio::select! {
                ended = self.running.join_next() => {
                    return Some(ended?.expect("watching over a process neither panics nor is cancelled"));
                }
                grace = wait_for_stop(control, self.grace) => self.stop(grace),
            }
        }
    }
}

/// Reads the output while waiting: the wait also kills descendants that keep the pipes open.
async fn supervise(
    rank: usize,
    mut process: Process,
    output: ProcessOutput,
    tap: Option<ProcessTap>,
    stopping: Arc<AtomicBool>,
) -> ProcessEnd {
    let activity = OutputActivity::track(process.pid());
    let stdout = process.stdout.take().map(|stream| activity.watch(stream));
    let stderr = process.stderr.take().map(|stream| activity.watch(stream));
    let mut tail = Tail::new(MAX_TAIL_LINES, MAX_TAIL_BYTES);
    let wait = async {
        let exit = process.wait().await;
        // Read at the moment of the exit, so that two ranks that fail independently at once both count as causes.
        (exit, stopping.load(Ordering::SeqCst), now())
    };
    let late = |name: &str| output.late.as_ref().map(|late| late.for_stream(name));
    let stream_tap = |of: fn(&ProcessTap) -> &StreamTap| tap.as_ref().map(|tap| of(tap).clone());
    let prefix = output.line_prefix.as_deref();
    let stdout_sink = LogSink::new(&output.stdout, stream_tap(|tap| &tap.stdout), late("stdout")).with_prefix(prefix);
    let stderr_sink = LogSink::new(&output.stderr, stream_tap(|tap| &tap.stderr), late("stderr")).with_prefix(prefix);
    let ((exit, stopped, at), (), ()) = tokio::join!(
        wait,
        copy_to_log(stdout, output.mode, None, stdout_sink),
        copy_to_log(stderr, output.mode, Some(&mut tail), stderr_sink),
    );
    if let Some(tap) = &tap {
        tap.finish();
    }
    ProcessEnd { rank, exit, stopped, at, stderr: excerpt(&tail.lines()) }
}

async fn copy_to_log(reader: Option<impl AsyncRead + Unpin>, mode: Mode, tail: Option<&mut Tail>, mut log: LogSink) {
    if let Some(reader) = reader
        && let Err(error) = pump_into(reader, mode, tail, &mut log).await
    {
        tracing::warn!(%error, path = %log.path().display(), "the output of a process could not be read to its end");
    }
}
