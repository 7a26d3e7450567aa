//! The processes of one phase of a task on this node: their output goes to the logs, and they can be stopped together.
//! Entered by `prepare` (a crew of one) and `ranks`. Dropping a crew kills it.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::io::AsyncRead;
use tokio::sync::watch;
use tokio::task::JoinSet;

use corro_launch::exit::Exit;
use corro_launch::lines::{Mode, pump_into};
use corro_launch::process::{Process, Stopper};
use corro_launch::tail::Tail;
use corro_model::Timestamp;

use crate::output::curve_recorder::{Hearing, Listener};
use crate::output::log_file::LogFile;
use crate::output::log_sink::{LateOutput, LogSink};
use crate::stats::process_stats::Ear;
use crate::task::control::{Control, stop_asked};
use crate::task_errors::now;

const TAIL_LINES: usize = 20;
const TAIL_BYTES: usize = 4 * 1024;

/// A process that ended, with every byte it wrote in its log.
#[derive(Debug)]
pub struct Ended {
    pub rank: usize,
    pub exit: io::Result<Exit>,
    /// It had been told to stop before it ended.
    pub stopped: bool,
    /// When it ended; its output may take longer.
    pub at: Timestamp,
    pub stderr: Vec<String>,
}

/// Where a process's output goes.
#[derive(Clone, Debug)]
pub struct Output {
    pub stdout: Arc<LogFile>,
    pub stderr: Arc<LogFile>,
    pub mode: Mode,
    /// Where it goes when others may write to those files.
    pub late: Option<LateOutput>,
}

#[derive(Debug, Default)]
pub struct Crew {
    running: JoinSet<Ended>,
    stoppers: Vec<Stopper>,
    stopping: Arc<AtomicBool>,
    /// Of the stop that is under way.
    grace: Option<Duration>,
    terminations: JoinSet<()>,
}

impl Crew {
    /// `hearing` is for whoever listens to what it tells of itself.
    pub fn add(&mut self, rank: usize, process: Process, output: Output, hearing: Option<Hearing>) {
        self.stoppers.push(process.stopper());
        self.running.spawn(watch_over(rank, process, output, hearing, Arc::clone(&self.stopping)));
    }

    /// Asks all to end and kills what is left after `grace`. A second stop counts if it is more urgent.
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

    /// The next process that ends; `None` when all have. Meanwhile does what `control` says about stopping.
    pub async fn next(&mut self, control: &mut watch::Receiver<Control>) -> Option<Ended> {
        loop {
            tokio::select! {
                ended = self.running.join_next() => {
                    return Some(ended?.expect("watching over a process neither panics nor is cancelled"));
                }
                grace = stop_asked(control, self.grace) => self.stop(grace),
            }
        }
    }
}

/// Reads while waiting: the wait also clears away leftovers that hold the pipes open.
async fn watch_over(
    rank: usize,
    mut process: Process,
    output: Output,
    hearing: Option<Hearing>,
    stopping: Arc<AtomicBool>,
) -> Ended {
    let ear = Ear::of(process.pid());
    let stdout = process.stdout.take().map(|stream| ear.listen(stream));
    let stderr = process.stderr.take().map(|stream| ear.listen(stream));
    let mut tail = Tail::new(TAIL_LINES, TAIL_BYTES);
    let wait = async {
        let exit = process.wait().await;
        // Asked at this moment, so that two ranks that fail by themselves together are both to blame.
        (exit, stopping.load(Ordering::SeqCst), now())
    };
    let late = |name: &str| output.late.as_ref().map(|late| late.of(name));
    let listener = |of: fn(&Hearing) -> &Listener| hearing.as_ref().map(|hearing| of(hearing).clone());
    let ((exit, stopped, at), (), ()) = tokio::join!(
        wait,
        copy(
            stdout,
            output.mode,
            None,
            LogSink::new(&output.stdout, listener(|hearing| &hearing.stdout), late("stdout"))
        ),
        copy(
            stderr,
            output.mode,
            Some(&mut tail),
            LogSink::new(&output.stderr, listener(|hearing| &hearing.stderr), late("stderr"))
        ),
    );
    if let Some(hearing) = &hearing {
        hearing.finish();
    }
    Ended { rank, exit, stopped, at, stderr: tail.lines() }
}

async fn copy(reader: Option<impl AsyncRead + Unpin>, mode: Mode, tail: Option<&mut Tail>, mut log: LogSink) {
    if let Some(reader) = reader
        && let Err(error) = pump_into(reader, mode, tail, &mut log).await
    {
        tracing::warn!(%error, path = %log.path().display(), "the output of a process could not be read to its end");
    }
}
