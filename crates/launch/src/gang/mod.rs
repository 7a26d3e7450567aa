//! Runs all ranks of a gang on this machine, for `corro run`. Starts the rendezvous server, the ranks and their output; the first
//! rank that fails, or a stop signal, ends them all. Prints nothing itself.

pub(crate) mod ranks;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::time::Duration;

use thiserror::Error;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use self::ranks::{Consoles, GangEnd, Output, RankEnd, Ranks};
use crate::confinement::Confinement;
use crate::console::{Channel, Console, OutputCopy};
use crate::environment::{GangContext, for_rank};
use crate::exit::Exit;
use crate::lines::Mode;
use crate::process::{Launcher, SpawnError};
use crate::process_spec::ProcessSpec;
use crate::rank_assignment::{Host, assign_ranks};
use crate::rendezvous::{Rendezvous, RendezvousError, known_scopes};

/// The command of a gang, run once per slot.
#[derive(Clone, Debug)]
pub struct GangSpec {
    pub argv: Vec<String>,
    /// Environment of every rank, to which its rank variables are added.
    pub env: BTreeMap<String, String>,
    pub cwd: PathBuf,
    pub hosts: Vec<Host>,
    /// Whether every line is prefixed with `[<rank>]<stdout>:`.
    pub prefix: bool,
    /// Directory for copies of the output, `rank.<rank>/stdout` and `stderr`.
    pub output_dir: Option<PathBuf>,
    /// Time between SIGTERM and SIGKILL.
    pub grace: Duration,
    /// Finds the rank that the last lines of a failed rank's stderr name as the cause. That rank gets time to end by itself before it is stopped,
    /// so that its own exit is known.
    pub find_cause: fn(&[String]) -> Option<usize>,
}

#[derive(Debug, PartialEq, Eq)]
pub enum Outcome {
    Succeeded,
    /// Ranks failed and the others were stopped. All failures, in the order of their exits.
    Failed(Vec<Failure>),
    /// Stopped from outside by this signal.
    Stopped(i32),
}

/// The failure of one rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    pub rank: usize,
    pub host: String,
    pub exit: Exit,
    /// Whether it was stopped before it ended.
    pub stopped: bool,
    pub stderr_tail: Vec<String>,
}

#[derive(Debug, Error)]
pub enum GangError {
    #[error("a gang needs at least one rank")]
    NoRanks,
    #[error(transparent)]
    Rendezvous(#[from] RendezvousError),
    #[error("the host discovery script {script} failed at its first call: {reason}")]
    Discovery { script: String, reason: String },
    #[error("cannot start rank {rank}")]
    Spawn {
        rank: usize,
        #[source]
        source: SpawnError,
    },
    #[error("cannot find a free port on the loopback interface")]
    Port(#[source] io::Error),
    #[error("cannot generate the job's secret: {0}")]
    Secret(getrandom::Error),
    #[error("cannot keep the ranks' output in {}", path.display())]
    OutputFile {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("cannot start the thread that shows the ranks' output")]
    Console(#[source] io::Error),
    /// Reported before failures of ranks, which fail when their output cannot be written.
    #[error("cannot write the ranks' output to {stream}")]
    Show {
        stream: &'static str,
        #[source]
        source: io::Error,
    },
    #[error("cannot wait for process {process}")]
    WaitProcess {
        process: u64,
        #[source]
        source: io::Error,
    },
    #[error("cannot wait for rank {rank}")]
    Wait {
        rank: usize,
        #[source]
        source: io::Error,
    },
}

impl Outcome {
    /// The exit code a shell would give: that of the first rank that failed, or 128 + the signal.
    pub fn exit_code(&self) -> i32 {
        match self {
            Outcome::Succeeded => 0,
            Outcome::Failed(failures) => failures.first().map_or(1, |failure| failure.exit.shell_code()),
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
    let assignments = assign_ranks(&spec.hosts);
    if assignments.is_empty() {
        return Err(GangError::NoRanks);
    }
    let loopback = (Ipv4Addr::LOCALHOST, 0).into();
    let rendezvous = Rendezvous::start(loopback, known_scopes(&spec.hosts, &assignments)).await?;
    let context = GangContext {
        rendezvous_addr: rendezvous.addr().ip().to_string(),
        rendezvous_port: rendezvous.addr().port(),
        iface: Some("lo".into()),
        master_addr: "127.0.0.1".into(),
        master_port: free_port().map_err(GangError::Port)?,
        secret: secret().map_err(GangError::Secret)?,
    };
    let mode = if assignments.len() == 1 && !spec.prefix { Mode::Raw } else { Mode::Lines };
    let (stdout, stdout_done) =
        Console::open(out, mode, channels(spec, assignments.len(), "stdout")?).map_err(GangError::Console)?;
    let (stderr, stderr_done) =
        Console::open(err, mode, channels(spec, assignments.len(), "stderr")?).map_err(GangError::Console)?;

    let mut ranks = Ranks::new();
    // Unique per run, so that cleanup after a crash finds only the ranks of this run.
    let tag = format!("run/{}/{}", std::process::id(), &context.secret[..8]);
    for assignment in &assignments {
        let mut env = spec.env.clone();
        env.extend(for_rank(&context, assignment, &spec.hosts[assignment.host_idx].name));
        let (argv, cwd) = (spec.argv.clone(), spec.cwd.clone());
        let (tag, confinement) = (format!("{tag}/{}", assignment.rank), Confinement::default());
        let process = ProcessSpec { argv, env, cwd, tag, confinement };
        let process = launcher.spawn(process).await;
        let process = process.map_err(|source| GangError::Spawn { rank: assignment.rank, source })?;
        ranks.add(assignment.rank, process, &stdout, &stderr);
    }
    drop((stdout, stderr));

    let host_of = |rank: usize| spec.hosts[assignments[rank].host_idx].name.clone();
    let on_end = |rank: usize, exit: Exit| rendezvous.report_end(rank, &host_of(rank), exit);
    let ending = ranks.watch(&mut stops, spec, on_end).await?;
    let finished = ranks.finish_output(Consoles { stdout: stdout_done, stderr: stderr_done });
    let output = match ending {
        // A paused reader of the output may never resume, so after a stop the output is not waited for.
        GangEnd::Stopped(_) => tokio::time::timeout(Duration::from_secs(1), finished).await.ok(),
        _ => tokio::select! {
            output = finished => Some(output),
            Some(_) = stops.recv() => None,
        },
    };
    conclude(ending, output, host_of)
}

/// Decides the outcome: a stop comes first; output that cannot be written makes ranks fail, so it comes before their failures;
/// a failed copy comes last, because it makes no rank fail.
fn conclude(ending: GangEnd, output: Option<Output>, host_of: impl Fn(usize) -> String) -> Result<Outcome, GangError> {
    let Output { mut tails, failed_stream, failed_copy } =
        output.unwrap_or(Output { tails: Vec::new(), failed_stream: None, failed_copy: None });
    match (ending, failed_stream, failed_copy) {
        (GangEnd::Stopped(signal), _, _) => Ok(Outcome::Stopped(signal)),
        (_, Some((stream, source)), _) => Err(GangError::Show { stream, source }),
        (GangEnd::Failed(ends), None, _) => {
            let failures = ends.into_iter().map(|RankEnd { rank, exit, stopped }| {
                let tail = tails.get_mut(rank).and_then(Option::take);
                let stderr_tail = tail.map(|tail| tail.lines()).unwrap_or_default();
                Failure { rank, host: host_of(rank), exit, stopped, stderr_tail }
            });
            Ok(Outcome::Failed(failures.collect()))
        }
        (GangEnd::Succeeded, None, Some((path, source))) => Err(GangError::OutputFile { path, source }),
        (GangEnd::Succeeded, None, None) => Ok(Outcome::Succeeded),
    }
}

fn channels(spec: &GangSpec, size: usize, stream: &str) -> Result<Vec<Channel>, GangError> {
    let digits = (size - 1).to_string().len();
    (0..size)
        .map(|rank| {
            let prefix = if spec.prefix { format!("[{rank}]<{stream}>:") } else { String::new() };
            let copy = match &spec.output_dir {
                Some(dir) => {
                    let path = dir.join(format!("rank.{rank:0digits$}")).join(stream);
                    match create(&path) {
                        Ok(file) => Some(OutputCopy { path, file }),
                        Err(source) => return Err(GangError::OutputFile { path, source }),
                    }
                }
                None => None,
            };
            Ok(Channel { prefix, copy })
        })
        .collect()
}

pub(crate) fn create(path: &Path) -> io::Result<File> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    File::create(path)
}

/// A port that is free at this moment, for rank 0 of a `torch.distributed` script.
pub(crate) fn free_port() -> io::Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}

pub(crate) fn secret() -> Result<String, getrandom::Error> {
    let mut bytes = [0u8; 32];
    getrandom::fill(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(ending: GangEnd, failed_stream: bool, failed_copy: bool, expected: &str) {
        let full = || io::Error::from(io::ErrorKind::StorageFull);
        let output = Output {
            tails: Vec::new(),
            failed_stream: failed_stream.then(|| ("standard output", full())),
            failed_copy: failed_copy.then(|| ("copy".into(), full())),
        };
        let said = match conclude(ending, Some(output), |_| "h".into()) {
            Ok(outcome) => format!("exit {}", outcome.exit_code()),
            Err(error) => error.to_string(),
        };
        assert_eq!(said, expected);
    }

    #[test]
    fn the_first_cause_is_the_one_reported() {
        let failed = || GangEnd::Failed(vec![RankEnd { rank: 0, exit: Exit::Code(3), stopped: false }]);
        let show = "cannot write the ranks' output to standard output";
        let copy = "cannot keep the ranks' output in copy";
        check(GangEnd::Succeeded, false, false, "exit 0");
        check(GangEnd::Succeeded, true, true, show);
        check(GangEnd::Succeeded, false, true, copy);
        check(failed(), false, true, "exit 3");
        check(failed(), true, false, show);
        check(GangEnd::Stopped(2), true, true, "exit 130");
    }
}
