//! The processes of an elastic training: starts them under guards, waits for their exits and shows their output. The output of a slot has one
//! prefix and one pair of files, shared by the processes that run in it one after the other.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use corro_elastic::ProcessId;
use tokio::sync::oneshot;
use tokio::task::{JoinHandle, JoinSet};

use super::ElasticSpec;
use crate::confinement::Confinement;
use crate::console::{Channel, Console, OutputCopy};
use crate::exit::Exit;
use crate::gang::ranks::{Consoles, FailedCopy, FailedStream, pump_output};
use crate::gang::{Failure, GangError, GangSpec, create};
use crate::lines::Mode;
use crate::process::Launcher;
use crate::process_spec::ProcessSpec;
use crate::rank_assignment::Host;
use crate::stopper::Stopper;
use crate::tail::Tail;

/// Dropping it kills the processes.
pub(super) struct Processes {
    waits: JoinSet<(ProcessId, io::Result<Exit>)>,
    running: BTreeMap<ProcessId, RunningProcess>,
    terminations: JoinSet<()>,
    /// Host and slot of each rank as it is shown, in the order of their first starts.
    slots: Vec<SlotOutput>,
    stdout: Console,
    stderr: Console,
    /// Digits of the ranks in names of directories.
    n_digits: usize,
}

/// An event of the processes.
pub(super) enum ProcessEvent {
    Exit(ProcessId, io::Result<Exit>),
    OutputClosed,
}

struct SlotOutput {
    host: String,
    slot: usize,
    /// Writes the output of the last process.
    writer: Option<JoinHandle<()>>,
}

struct RunningProcess {
    stopper: Stopper,
    host: String,
    shown_rank: usize,
    was_stopped: bool,
    stderr_tail: oneshot::Receiver<Tail>,
}

/// A process that has ended.
#[derive(Debug)]
pub(super) struct Ended {
    process: ProcessId,
    pub(super) host: String,
    exit: Exit,
    shown_rank: usize,
    /// Its rank, if it was a member of the current generation.
    pub(super) rank_in_generation: Option<usize>,
    /// Whether it was stopped before.
    pub(super) was_stopped: bool,
    stderr_tail: oneshot::Receiver<Tail>,
}

impl Ended {
    pub(super) fn describe(&self) -> String {
        let Ended { process, host, exit, .. } = self;
        match self.rank_in_generation {
            Some(rank) => format!("process {process} (rank {rank} on {host}) ended with {exit}"),
            None => format!("process {process} on {host} ended with {exit}"),
        }
    }

    /// The failure; its output must be complete.
    pub(super) fn into_failure(mut self) -> Failure {
        Failure {
            rank: self.rank_in_generation.unwrap_or(self.shown_rank),
            host: self.host,
            exit: self.exit,
            stopped: self.was_stopped,
            stderr_tail: self.stderr_tail.try_recv().map(|tail| tail.lines()).unwrap_or_default(),
        }
    }
}

impl Processes {
    pub(super) fn open(
        spec: &ElasticSpec,
        hosts: &[Host],
        out: impl io::Write + Send + 'static,
        err: impl io::Write + Send + 'static,
    ) -> Result<(Processes, Consoles), GangError> {
        let is_single = spec.settings.max == Some(1) && !spec.gang.prefix;
        let mode = if is_single { Mode::Raw } else { Mode::Lines };
        let (stdout, stdout_done) = Console::open(out, mode, Vec::new()).map_err(GangError::Console)?;
        let (stderr, stderr_done) = Console::open(err, mode, Vec::new()).map_err(GangError::Console)?;
        let n_slots = spec.settings.max.unwrap_or_else(|| hosts.iter().map(|host| host.slots).sum());
        let processes = Processes {
            waits: JoinSet::new(),
            running: BTreeMap::new(),
            terminations: JoinSet::new(),
            slots: Vec::new(),
            stdout,
            stderr,
            n_digits: n_slots.saturating_sub(1).to_string().len(),
        };
        Ok((processes, Consoles { stdout: stdout_done, stderr: stderr_done }))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.running.is_empty()
    }

    #[expect(clippy::too_many_arguments, reason = "what a process is started with")]
    pub(super) async fn start(
        &mut self,
        launcher: &Launcher,
        gang: &GangSpec,
        id: ProcessId,
        host: String,
        slot: usize,
        env: BTreeMap<String, String>,
        tag: String,
    ) -> Result<(), GangError> {
        let shown_rank = self.rank_of_slot(gang, &host, slot).await?;
        let (argv, cwd) = (gang.argv.clone(), gang.cwd.clone());
        let spec = ProcessSpec { argv, env, cwd, tag, confinement: Confinement::default() };
        let process = launcher.spawn(spec).await;
        let mut process = process.map_err(|source| GangError::Spawn { rank: shown_rank, source })?;
        let stdout = process.stdout.take().expect("a new process has its output");
        let stderr = process.stderr.take().expect("a new process has its output");
        let (out, err) = (self.stdout.for_rank(shown_rank), self.stderr.for_rank(shown_rank));
        let (complete, stderr_tail) = oneshot::channel();
        let output = &mut self.slots[shown_rank];
        let before = output.writer.take();
        output.writer = Some(tokio::spawn(async move {
            // The lines of two processes are not mixed.
            if let Some(before) = before {
                let _ = before.await;
            }
            let (_, tail) = tokio::join!(pump_output(stdout, out), pump_output(stderr, err));
            let _ = complete.send(tail);
        }));
        let stopper = process.stopper();
        self.running.insert(id, RunningProcess { stopper, host, shown_rank, was_stopped: false, stderr_tail });
        self.waits.spawn(async move { (id, process.wait().await) });
        Ok(())
    }

    /// The rank with which the output of a slot is shown. A new slot gets the next one.
    async fn rank_of_slot(&mut self, gang: &GangSpec, host: &str, slot: usize) -> Result<usize, GangError> {
        if let Some(rank) = self.slots.iter().position(|known| known.slot == slot && known.host == host) {
            return Ok(rank);
        }
        let rank = self.slots.len();
        for (stream, console) in [("stdout", &self.stdout), ("stderr", &self.stderr)] {
            let prefix = if gang.prefix { format!("[{rank}]<{stream}>:") } else { String::new() };
            let digits = self.n_digits;
            let path = gang.output_dir.as_ref().map(|dir| dir.join(format!("rank.{rank:0digits$}")).join(stream));
            let copy = match path {
                Some(path) => match create(&path) {
                    Ok(file) => Some(OutputCopy { path, file }),
                    Err(source) => return Err(GangError::OutputFile { path, source }),
                },
                None => None,
            };
            // Fails when the stream is closed, which `next_event` reports.
            let _ = console.add_channel(Channel { prefix, copy }).await;
        }
        self.slots.push(SlotOutput { host: host.to_owned(), slot, writer: None });
        Ok(rank)
    }

    /// The next process that ends. With `watch_output`, also tells when the reader of standard output or standard error has closed it. Cancel safe.
    pub(super) async fn next_event(&mut self, watch_output: bool) -> ProcessEvent {
        tokio::select! {
            Some(next) = self.waits.join_next() => {
                let (process, exit) = next.expect("waiting neither panics nor is cancelled");
                ProcessEvent::Exit(process, exit)
            }
            () = self.stdout.closed(), if watch_output => ProcessEvent::OutputClosed,
            () = self.stderr.closed(), if watch_output => ProcessEvent::OutputClosed,
            else => std::future::pending().await,
        }
    }

    pub(super) fn remove(&mut self, process: ProcessId, exit: Exit) -> Option<Ended> {
        let RunningProcess { host, shown_rank, was_stopped, stderr_tail, .. } = self.running.remove(&process)?;
        Some(Ended { process, host, exit, shown_rank, rank_in_generation: None, was_stopped, stderr_tail })
    }

    /// Sends SIGTERM, and SIGKILL after the grace period.
    pub(super) fn terminate(&mut self, process: ProcessId, grace: Duration) {
        if let Some(process) = self.running.get_mut(&process) {
            process.was_stopped = true;
            let stopper = process.stopper.clone();
            self.terminations.spawn(async move { stopper.terminate(grace).await });
        }
    }

    pub(super) fn terminate_all(&mut self, grace: Duration) {
        for process in self.running.keys().copied().collect::<Vec<_>>() {
            self.terminate(process, grace);
        }
    }

    pub(super) fn kill_all(&mut self) {
        self.running.values().for_each(|process| process.stopper.kill());
    }

    /// Waits until all output is written.
    pub(super) async fn finish_output(self, consoles: Consoles) -> (FailedStream, FailedCopy) {
        for writer in self.slots.into_iter().filter_map(|slot| slot.writer) {
            // A failed writer loses only its output.
            let _ = writer.await;
        }
        drop((self.stdout, self.stderr));
        consoles.finish().await
    }
}
