//! The running ranks of a gang: waits for their exits, stops all after the first failure (a rank that others name as the cause may end by itself
//! first), and completes their output.

use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use tokio::io::AsyncRead;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, sleep_until, timeout_at};

use super::{GangError, GangSpec};
use crate::console::{Console, ConsoleResult, RankConsole};
use crate::exit::Exit;
use crate::lines::{Mode, pump_into};
use crate::process::Process;
use crate::stopper::Stopper;
use crate::tail::Tail;

const TAIL_LINES: usize = 20;
const TAIL_BYTES: usize = 16 * 1024;

/// How the gang ended, before its output is complete.
pub(super) enum GangEnd {
    Succeeded,
    /// Failed ranks, in the order of their exits. The first one ended by itself.
    Failed(Vec<RankEnd>),
    Stopped(i32),
}

/// Exit of one rank.
pub(super) struct RankEnd {
    pub(super) rank: usize,
    pub(super) exit: Exit,
    /// Whether it was stopped before.
    pub(super) stopped: bool,
}

/// How long a rank that others name as the cause of their failure may take to end by itself before it is stopped.
const CAUSE_TIMEOUT: Duration = Duration::from_millis(500);

/// The running ranks. Dropping it drops the processes, which kills them.
pub(super) struct Ranks {
    waits: JoinSet<(usize, io::Result<Exit>)>,
    stoppers: Vec<Stopper>,
    /// Stdout and stderr of each rank.
    outputs: Vec<(JoinHandle<Tail>, JoinHandle<Tail>)>,
    /// The last lines of each rank's stderr, once it is complete.
    tails: Vec<watch::Receiver<Option<Tail>>>,
}

impl Ranks {
    pub(super) fn new() -> Ranks {
        Ranks { waits: JoinSet::new(), stoppers: Vec::new(), outputs: Vec::new(), tails: Vec::new() }
    }

    pub(super) fn add(&mut self, rank: usize, mut process: Process, stdout: &Console, stderr: &Console) {
        let out = process.stdout.take().expect("a new process has its output");
        let err = process.stderr.take().expect("a new process has its output");
        let (complete, tail) = watch::channel(None);
        let (out, err) = (pump_output(out, stdout.for_rank(rank)), pump_output(err, stderr.for_rank(rank)));
        let err = async move {
            let tail = err.await;
            complete.send_replace(Some(tail.clone()));
            tail
        };
        self.outputs.push((tokio::spawn(out), tokio::spawn(err)));
        self.tails.push(tail);
        self.stoppers.push(process.stopper());
        self.waits.spawn(async move { (rank, process.wait().await) });
    }

    /// Waits until every rank has ended. `on_end` is called for each.
    pub(super) async fn watch(
        &mut self,
        stops: &mut mpsc::Receiver<i32>,
        spec: &GangSpec,
        on_end: impl Fn(usize, Exit),
    ) -> Result<GangEnd, GangError> {
        let mut signal = None;
        let mut ended: BTreeSet<usize> = BTreeSet::new();
        let mut failed: Vec<RankEnd> = Vec::new();
        // Failed ranks whose output names another rank that had not failed by itself.
        let mut victims: BTreeSet<usize> = BTreeSet::new();
        let mut is_stopping = false;
        // When all ranks are stopped, even if a named rank has not ended.
        let mut stop_at: Option<Instant> = None;
        let mut terminations = JoinSet::new();
        loop {
            let must_stop = tokio::select! {
                next = self.waits.join_next() => {
                    let Some(next) = next else { break };
                    let (rank, exit) = next.expect("waiting neither panics nor is cancelled");
                    let exit = exit.map_err(|source| GangError::Wait { rank, source })?;
                    on_end(rank, exit);
                    ended.insert(rank);
                    if exit.success() {
                        continue;
                    }
                    failed.push(RankEnd { rank, exit, stopped: is_stopping });
                    let until = *stop_at.get_or_insert(Instant::now() + CAUSE_TIMEOUT);
                    let is_known = |cause| ended.contains(&cause) && !victims.contains(&cause);
                    let is_victim = !is_stopping && self.waits_for_cause(rank, is_known, spec.find_cause, until).await;
                    if is_victim {
                        victims.insert(rank);
                    }
                    !is_victim
                }
                Some(number) = stops.recv() => {
                    if is_stopping {
                        self.stoppers.iter().for_each(Stopper::kill);
                    }
                    if failed.is_empty() {
                        signal = signal.or(Some(number));
                    }
                    true
                }
                () = sleep_until(stop_at.unwrap_or_else(Instant::now)), if stop_at.is_some() && !is_stopping => true,
            };
            if must_stop && !is_stopping {
                is_stopping = true;
                self.terminate(spec.grace, &mut terminations);
            }
        }
        Ok(match signal {
            Some(signal) => GangEnd::Stopped(signal),
            None if failed.is_empty() => GangEnd::Succeeded,
            None => GangEnd::Failed(failed),
        })
    }

    /// Whether the last lines of a failed rank name another rank whose own failure is not known yet.
    async fn waits_for_cause(
        &mut self,
        rank: usize,
        is_known: impl Fn(usize) -> bool,
        find_cause: fn(&[String]) -> Option<usize>,
        until: Instant,
    ) -> bool {
        let tail = self.tails[rank].wait_for(Option::is_some);
        let Ok(Ok(tail)) = timeout_at(until, tail).await else { return false };
        let cause = tail.as_ref().and_then(|tail| find_cause(&tail.lines()));
        cause.is_some_and(|cause| cause < self.stoppers.len() && !is_known(cause))
    }

    fn terminate(&self, grace: Duration, terminations: &mut JoinSet<()>) {
        for stopper in self.stoppers.clone() {
            terminations.spawn(async move { stopper.terminate(grace).await });
        }
    }

    /// Waits until all output is written.
    pub(super) async fn finish_output(self, consoles: Consoles) -> Output {
        let mut tails = Vec::new();
        for (out, err) in self.outputs {
            // A failed reader loses only its output.
            let _ = out.await;
            tails.push(err.await.ok());
        }
        let (failed_stream, failed_copy) = consoles.finish().await;
        Output { tails, failed_stream, failed_copy }
    }
}

/// Receivers of the consoles' results.
pub(crate) struct Consoles {
    pub(crate) stdout: oneshot::Receiver<ConsoleResult>,
    pub(crate) stderr: oneshot::Receiver<ConsoleResult>,
}

/// The stream that could not be written, and why.
pub(crate) type FailedStream = Option<(&'static str, io::Error)>;
/// The copy that could not be written, and why.
pub(crate) type FailedCopy = Option<(PathBuf, io::Error)>;

impl Consoles {
    /// Waits until the consoles have written everything.
    pub(crate) async fn finish(self) -> (FailedStream, FailedCopy) {
        let (mut failed_stream, mut failed) = (None, None);
        for (name, console) in [("standard output", self.stdout), ("standard error", self.stderr)] {
            let Ok(ConsoleResult { stream, failed_copy }) = console.await else { continue };
            failed = failed.or(failed_copy);
            match stream {
                // The reader has closed the stream, as `head` does.
                Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
                    failed_stream.get_or_insert((name, error));
                }
                _ => {}
            }
        }
        (failed_stream, failed)
    }
}

/// Result of the ranks' output.
pub(super) struct Output {
    /// The last lines of every rank's stderr.
    pub(super) tails: Vec<Option<Tail>>,
    pub(super) failed_stream: FailedStream,
    pub(super) failed_copy: FailedCopy,
}

pub(crate) async fn pump_output(reader: impl AsyncRead + Unpin, mut console: RankConsole) -> Tail {
    let mut tail = Tail::new(TAIL_LINES, TAIL_BYTES);
    // Raw mode, because the console assembles lines itself and needs every byte at once for the copies.
    if pump_into(reader, Mode::Raw, Some(&mut tail), &mut console).await.is_ok() {
        // Fails only when the stream is closed.
        let _ = console.finish().await;
    }
    tail
}
