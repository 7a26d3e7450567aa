//! Runs all ranks of a gang on this machine: `corro run`. Starts the rendezvous, the ranks and their output; the first
//! rank that fails, or a stop, ends them all. Never prints a word of its own.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::time::Duration;

use thiserror::Error;
use tokio::io::AsyncRead;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, oneshot};
use tokio::task::{JoinHandle, JoinSet};

use crate::console::{Channel, Console, RankConsole};
use crate::environment::{GangContext, for_rank};
use crate::exit::Exit;
use crate::lines::{Mode, pump_into};
use crate::place::{Host, place};
use crate::process::{Launcher, Process, ProcessSpec, SpawnError, Stopper};
use crate::rendezvous::{Rendezvous, RendezvousError, known_scopes};
use crate::tail::Tail;

/// What to run, once per slot.
#[derive(Clone, Debug)]
pub struct GangSpec {
    pub argv: Vec<String>,
    /// What every rank starts from; the variables of its place are added.
    pub env: BTreeMap<String, String>,
    pub cwd: PathBuf,
    pub hosts: Vec<Host>,
    /// `[<rank>]<stdout>:` before every line.
    pub prefix: bool,
    /// Also keep `rank.<rank>/stdout` and `stderr` in this folder.
    pub output_dir: Option<PathBuf>,
    /// Between SIGTERM and SIGKILL.
    pub grace: Duration,
}

#[derive(Debug, PartialEq, Eq)]
pub enum Outcome {
    Succeeded,
    /// A rank failed; the others were stopped.
    Failed(Failure),
    /// Stopped from outside by this signal.
    Stopped(i32),
}

/// The first rank that failed.
#[derive(Debug, PartialEq, Eq)]
pub struct Failure {
    pub rank: usize,
    pub host: String,
    pub exit: Exit,
    pub stderr_tail: Vec<String>,
}

#[derive(Debug, Error)]
pub enum GangError {
    #[error("a gang needs at least one rank")]
    NoRanks,
    #[error(transparent)]
    Rendezvous(#[from] RendezvousError),
    #[error("cannot start rank {rank}")]
    Spawn {
        rank: usize,
        #[source]
        source: SpawnError,
    },
    #[error("cannot find a free port on the loopback interface")]
    Port(#[source] io::Error),
    #[error("cannot draw the job's secret: {0}")]
    Secret(getrandom::Error),
    #[error("cannot keep the ranks' output in {}", path.display())]
    OutputFile {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("cannot start the thread that shows the ranks' output")]
    Console(#[source] io::Error),
    #[error("cannot wait for rank {rank}")]
    Wait {
        rank: usize,
        #[source]
        source: io::Error,
    },
}

const TAIL_LINES: usize = 20;
const TAIL_BYTES: usize = 16 * 1024;

impl Outcome {
    /// The exit code a shell would give: the failing rank's, or 128 + the signal.
    pub fn exit_code(&self) -> i32 {
        match self {
            Outcome::Succeeded => 0,
            Outcome::Failed(failure) => failure.exit.shell_code(),
            Outcome::Stopped(signal) => 128 + signal,
        }
    }
}

/// SIGINT, SIGTERM and SIGHUP of this process as a stream of stops for `run`.
pub fn stop_signals() -> io::Result<mpsc::Receiver<i32>> {
    let (sender, stops) = mpsc::channel(8);
    for kind in [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()] {
        let mut arrivals = signal(kind)?;
        let sender = sender.clone();
        // Ends when the receiver is gone, or with the runtime.
        tokio::spawn(async move {
            while arrivals.recv().await.is_some() && sender.send(kind.as_raw_value()).await.is_ok() {}
        });
    }
    Ok(stops)
}

/// Runs the gang to its end. A first message in `stops` asks the ranks to end, a second one kills them.
pub async fn run(
    launcher: &Launcher,
    spec: &GangSpec,
    mut stops: mpsc::Receiver<i32>,
    out: impl io::Write + Send + 'static,
    err: impl io::Write + Send + 'static,
) -> Result<Outcome, GangError> {
    let places = place(&spec.hosts);
    if places.is_empty() {
        return Err(GangError::NoRanks);
    }
    let loopback = (Ipv4Addr::LOCALHOST, 0).into();
    let rendezvous = Rendezvous::start(loopback, known_scopes(&spec.hosts, &places)).await?;
    let context = GangContext {
        rendezvous_addr: rendezvous.addr().ip().to_string(),
        rendezvous_port: rendezvous.addr().port(),
        iface: Some("lo".into()),
        master_addr: "127.0.0.1".into(),
        master_port: free_port().map_err(GangError::Port)?,
        secret: secret().map_err(GangError::Secret)?,
    };
    let mode = if places.len() == 1 && !spec.prefix { Mode::Raw } else { Mode::Lines };
    let (stdout, stdout_done) =
        Console::open(out, mode, channels(spec, places.len(), "stdout")?).map_err(GangError::Console)?;
    let (stderr, stderr_done) =
        Console::open(err, mode, channels(spec, places.len(), "stderr")?).map_err(GangError::Console)?;

    let mut ranks = Ranks { waits: JoinSet::new(), stoppers: Vec::new(), outputs: Vec::new() };
    // Unique per run, so that a sweep after an accident finds the ranks of this run only.
    let tag = format!("run/{}/{}", std::process::id(), &context.secret[..8]);
    for place in &places {
        let mut env = spec.env.clone();
        env.extend(for_rank(&context, place, &spec.hosts[place.host_idx].name));
        let (argv, cwd) = (spec.argv.clone(), spec.cwd.clone());
        let process = ProcessSpec { argv, env, cwd, tag: format!("{tag}/{}", place.rank) };
        let process = launcher.spawn(process).await;
        let process = process.map_err(|source| GangError::Spawn { rank: place.rank, source })?;
        ranks.add(place.rank, process, &stdout, &stderr);
    }
    drop((stdout, stderr));

    let ending = ranks.watch(&mut stops, spec.grace).await?;
    let finished = ranks.finish_output([stdout_done, stderr_done]);
    let tails = match ending {
        // A reader who paused our output may come back, or may never; after a stop nobody waits for that.
        Ending::Stopped(_) => tokio::time::timeout(Duration::from_secs(1), finished).await.ok(),
        _ => tokio::select! {
            tails = finished => Some(tails),
            Some(_) = stops.recv() => None,
        },
    };
    Ok(match ending {
        Ending::Succeeded => Outcome::Succeeded,
        Ending::Stopped(signal) => Outcome::Stopped(signal),
        Ending::Failed(rank, exit) => Outcome::Failed(Failure {
            rank,
            host: spec.hosts[places[rank].host_idx].name.clone(),
            exit,
            stderr_tail: tails.and_then(|mut tails| Some(tails.get_mut(rank)?.take()?.lines())).unwrap_or_default(),
        }),
    })
}

/// How the gang ended, before its output is complete.
enum Ending {
    Succeeded,
    Failed(usize, Exit),
    Stopped(i32),
}

/// The running ranks. Dropping it drops the processes, which kills them.
struct Ranks {
    waits: JoinSet<(usize, io::Result<Exit>)>,
    stoppers: Vec<Stopper>,
    /// Stdout and stderr of each rank.
    outputs: Vec<(JoinHandle<Tail>, JoinHandle<Tail>)>,
}

impl Ranks {
    fn add(&mut self, rank: usize, mut process: Process, stdout: &Console, stderr: &Console) {
        let out = process.stdout.take().expect("a new process has its output");
        let err = process.stderr.take().expect("a new process has its output");
        self.outputs
            .push((tokio::spawn(show(out, stdout.for_rank(rank))), tokio::spawn(show(err, stderr.for_rank(rank)))));
        self.stoppers.push(process.stopper());
        self.waits.spawn(async move { (rank, process.wait().await) });
    }

    /// Returns when every rank has ended.
    async fn watch(&mut self, stops: &mut mpsc::Receiver<i32>, grace: Duration) -> Result<Ending, GangError> {
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

    /// Waits until all output is written; gives the last lines of every rank's stderr.
    async fn finish_output(self, consoles: [oneshot::Receiver<io::Result<()>>; 2]) -> Vec<Option<Tail>> {
        let mut tails = Vec::new();
        for (out, err) in self.outputs {
            // A reader that failed has lost its text only.
            let _ = out.await;
            tails.push(err.await.ok());
        }
        for console in consoles {
            if let Ok(Err(error)) = console.await {
                tracing::debug!(%error, "the ranks' output was not shown to its end");
            }
        }
        tails
    }
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

fn channels(spec: &GangSpec, size: usize, stream: &str) -> Result<Vec<Channel>, GangError> {
    let digits = (size - 1).to_string().len();
    (0..size)
        .map(|rank| {
            let prefix = if spec.prefix { format!("[{rank}]<{stream}>:") } else { String::new() };
            let copy = match &spec.output_dir {
                Some(dir) => {
                    let path = dir.join(format!("rank.{rank:0digits$}")).join(stream);
                    Some(create(&path).map_err(|source| GangError::OutputFile { path, source })?)
                }
                None => None,
            };
            Ok(Channel { prefix, copy })
        })
        .collect()
}

fn create(path: &Path) -> io::Result<File> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    File::create(path)
}

/// Free at this moment; rank 0 of a `torch.distributed` script binds it soon after.
fn free_port() -> io::Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}

fn secret() -> Result<String, getrandom::Error> {
    let mut bytes = [0u8; 32];
    getrandom::fill(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
