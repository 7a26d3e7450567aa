//! The ranks of a gang while they run: waits for their ends, stops them all after the first failure, and sees their
//! output to its end. Entered by `gang` only.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use tokio::io::AsyncRead;
use tokio::sync::{mpsc, oneshot};
use tokio::task::{JoinHandle, JoinSet};

use super::GangError;
use crate::console::{Console, RankConsole, Written};
use crate::exit::Exit;
use crate::lines::{Mode, pump_into};
use crate::process::{Process, Stopper};
use crate::tail::Tail;

const TAIL_LINES: usize = 20;
const TAIL_BYTES: usize = 16 * 1024;

/// How the gang ended, before its output is complete.
pub(super) enum Ending {
    Succeeded,
    Failed(usize, Exit),
    Stopped(i32),
}

/// The running ranks. Dropping it drops the processes, which kills them.
pub(super) struct Ranks {
    waits: JoinSet<(usize, io::Result<Exit>)>,
    stoppers: Vec<Stopper>,
    /// Stdout and stderr of each rank.
    outputs: Vec<(JoinHandle<Tail>, JoinHandle<Tail>)>,
}

impl Ranks {
    pub(super) fn new() -> Ranks {
        Ranks { waits: JoinSet::new(), stoppers: Vec::new(), outputs: Vec::new() }
    }

    pub(super) fn add(&mut self, rank: usize, mut process: Process, stdout: &Console, stderr: &Console) {
        let out = process.stdout.take().expect("a new process has its output");
        let err = process.stderr.take().expect("a new process has its output");
        self.outputs
            .push((tokio::spawn(show(out, stdout.for_rank(rank))), tokio::spawn(show(err, stderr.for_rank(rank)))));
        self.stoppers.push(process.stopper());
        self.waits.spawn(async move { (rank, process.wait().await) });
    }

    /// Returns when every rank has ended.
    pub(super) async fn watch(
        &mut self,
        stops: &mut mpsc::Receiver<i32>,
        grace: Duration,
    ) -> Result<Ending, GangError> {
        let mut ending = Ending::Succeeded;
        let mut terminations = JoinSet::new();
        loop {
            tokio::select! {
                ended = self.waits.join_next() => {
                    let Some(ended) = ended else { return Ok(ending) };
                    let (rank, exit) = ended.expect("waiting neither panics nor is cancelled");
                    let exit = exit.map_err(|source| GangError::Wait { rank, source })?;
                    if !exit.success() && matches!(ending, Ending::Succeeded) {
                        ending = Ending::Failed(rank, exit);
                        self.terminate(grace, &mut terminations);
                    }
                }
                Some(signal) = stops.recv() => match ending {
                    Ending::Succeeded => {
                        ending = Ending::Stopped(signal);
                        self.terminate(grace, &mut terminations);
                    }
                    _ => self.stoppers.iter().for_each(Stopper::kill),
                },
            }
        }
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
            // A reader that failed has lost its text only.
            let _ = out.await;
            tails.push(err.await.ok());
        }
        let mut output = Output { tails, not_shown: None, lost_copy: None };
        for (name, console) in [("standard output", consoles.stdout), ("standard error", consoles.stderr)] {
            let Ok(Written { shown, lost_copy }) = console.await else { continue };
            output.lost_copy = output.lost_copy.or(lost_copy);
            match shown {
                // The reader has seen enough, as `head` does.
                Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
                    output.not_shown.get_or_insert((name, error));
                }
                _ => {}
            }
        }
        output
    }
}

/// Where it is told what became of the ranks' output.
pub(super) struct Consoles {
    pub(super) stdout: oneshot::Receiver<Written>,
    pub(super) stderr: oneshot::Receiver<Written>,
}

/// What became of the ranks' output.
pub(super) struct Output {
    /// The last lines of every rank's stderr.
    pub(super) tails: Vec<Option<Tail>>,
    /// The stream that could not be written, and why.
    pub(super) not_shown: Option<(&'static str, io::Error)>,
    pub(super) lost_copy: Option<(PathBuf, io::Error)>,
}

async fn show(reader: impl AsyncRead + Unpin, mut console: RankConsole) -> Tail {
    let mut tail = Tail::new(TAIL_LINES, TAIL_BYTES);
    // Whole lines are made by the console, which has to see every byte at once for the copies.
    if pump_into(reader, Mode::Raw, Some(&mut tail), &mut console).await.is_ok() {
        // Fails only when the stream is closed, and then there is nowhere to end a line.
        let _ = console.finish().await;
    }
    tail
}
