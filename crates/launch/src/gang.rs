//! Runs all ranks of a gang on this machine: `corro run`. Starts the rendezvous, the ranks and their output; the first
//! rank that fails, or a stop, ends them all. Never prints a word of its own.

mod ranks;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::time::Duration;

use thiserror::Error;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use self::ranks::{Consoles, Ending, Output, RankEnd, Ranks};
use crate::confinement::Confinement;
use crate::console::{Channel, Console, Copy};
use crate::environment::{GangContext, for_rank};
use crate::exit::Exit;
use crate::lines::Mode;
use crate::place::{Host, place};
use crate::process::{Launcher, ProcessSpec, SpawnError};
use crate::rendezvous::{Rendezvous, RendezvousError, known_scopes};

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
    /// The rank that the last lines of a rank's stderr name as the cause of its failure. That rank may end by itself before it is stopped,
    /// so that its own end is known.
    pub find_cause: fn(&[String]) -> Option<usize>,
}

#[derive(Debug, PartialEq, Eq)]
pub enum Outcome {
    Succeeded,
    /// Ranks failed; the others were stopped. All that did not end well, in the order of their ends.
    Failed(Vec<Failure>),
    /// Stopped from outside by this signal.
    Stopped(i32),
}

/// A rank that did not end well.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    pub rank: usize,
    pub host: String,
    pub exit: Exit,
    /// It had been told to stop before it ended.
    pub stopped: bool,
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
    /// Not the ranks' fault, even though they end when nobody takes their output.
    #[error("cannot write the ranks' output to {stream}")]
    Show {
        stream: &'static str,
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

    let mut ranks = Ranks::new();
    // Unique per run, so that a sweep after an accident finds the ranks of this run only.
    let tag = format!("run/{}/{}", std::process::id(), &context.secret[..8]);
    for place in &places {
        let mut env = spec.env.clone();
        env.extend(for_rank(&context, place, &spec.hosts[place.host_idx].name));
        let (argv, cwd) = (spec.argv.clone(), spec.cwd.clone());
        let (tag, confinement) = (format!("{tag}/{}", place.rank), Confinement::default());
        let process = ProcessSpec { argv, env, cwd, tag, confinement };
        let process = launcher.spawn(process).await;
        let process = process.map_err(|source| GangError::Spawn { rank: place.rank, source })?;
        ranks.add(place.rank, process, &stdout, &stderr);
    }
    drop((stdout, stderr));

    let host_of = |rank: usize| spec.hosts[places[rank].host_idx].name.clone();
    let on_end = |rank: usize, exit: Exit| rendezvous.report_end(rank, &host_of(rank), exit);
    let ending = ranks.watch(&mut stops, spec, on_end).await?;
    let finished = ranks.finish_output(Consoles { stdout: stdout_done, stderr: stderr_done });
    let output = match ending {
        // A reader who paused our output may come back, or may never; after a stop nobody waits for that.
        Ending::Stopped(_) => tokio::time::timeout(Duration::from_secs(1), finished).await.ok(),
        _ => tokio::select! {
            output = finished => Some(output),
            Some(_) = stops.recv() => None,
        },
    };
    conclude(ending, output, host_of)
}

/// Who is to blame: a stop was wanted; output that cannot be written makes ranks fail, so it comes before their failure;
/// a copy that was lost made nobody fail.
fn conclude(ending: Ending, output: Option<Output>, host_of: impl Fn(usize) -> String) -> Result<Outcome, GangError> {
    let Output { mut tails, not_shown, lost_copy } =
        output.unwrap_or(Output { tails: Vec::new(), not_shown: None, lost_copy: None });
    match (ending, not_shown, lost_copy) {
        (Ending::Stopped(signal), _, _) => Ok(Outcome::Stopped(signal)),
        (_, Some((stream, source)), _) => Err(GangError::Show { stream, source }),
        (Ending::Failed(ends), None, _) => {
            let failures = ends.into_iter().map(|RankEnd { rank, exit, stopped }| {
                let tail = tails.get_mut(rank).and_then(Option::take);
                let stderr_tail = tail.map(|tail| tail.lines()).unwrap_or_default();
                Failure { rank, host: host_of(rank), exit, stopped, stderr_tail }
            });
            Ok(Outcome::Failed(failures.collect()))
        }
        (Ending::Succeeded, None, Some((path, source))) => Err(GangError::OutputFile { path, source }),
        (Ending::Succeeded, None, None) => Ok(Outcome::Succeeded),
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
                        Ok(file) => Some(Copy { path, file }),
                        Err(source) => return Err(GangError::OutputFile { path, source }),
                    }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn check(ending: Ending, not_shown: bool, lost_copy: bool, expected: &str) {
        let full = || io::Error::from(io::ErrorKind::StorageFull);
        let output = Output {
            tails: Vec::new(),
            not_shown: not_shown.then(|| ("standard output", full())),
            lost_copy: lost_copy.then(|| ("copy".into(), full())),
        };
        let said = match conclude(ending, Some(output), |_| "h".into()) {
            Ok(outcome) => format!("exit {}", outcome.exit_code()),
            Err(error) => error.to_string(),
        };
        assert_eq!(said, expected);
    }

    #[test]
    fn the_first_cause_is_the_one_reported() {
        let failed = || Ending::Failed(vec![RankEnd { rank: 0, exit: Exit::Code(3), stopped: false }]);
        let show = "cannot write the ranks' output to standard output";
        let copy = "cannot keep the ranks' output in copy";
        check(Ending::Succeeded, false, false, "exit 0");
        check(Ending::Succeeded, true, true, show);
        check(Ending::Succeeded, false, true, copy);
        check(failed(), false, true, "exit 3");
        check(failed(), true, false, show);
        check(Ending::Stopped(2), true, true, "exit 130");
    }
}
