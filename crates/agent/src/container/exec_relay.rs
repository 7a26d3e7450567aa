//! One process of a job inside its container, seen from outside as a process like any other: a hidden word of the program
//! (`corro container-exec`) that a guard starts in its place. It has the engine run the command, passes on what it writes and the
//! signals it gets, and ends with its exit code. What it cannot see to, because it was killed, ends with the container.
//!
//! The job's variables come in variables of other names: they are meant for the process inside, and some of them (those of the
//! loader) would decide what runs outside.

mod terminal;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{self, Write as _};
use std::os::fd::AsFd;
use std::path::Path;
use std::pin::Pin;
use std::process::ExitCode;
use std::time::Duration;

use bollard::Docker;
use bollard::container::LogOutput;
use bollard::exec::{StartExecOptions, StartExecResults};
use bollard::models::ExecConfig;
use futures_util::StreamExt;
use rustix::fs::{FileType, fstat};
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::net::unix::pipe::{Receiver, Sender};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep, timeout};

use corro_launch::process::ProcessSpec;
use corro_launch::sweep::TAG_VARIABLE;

use super::engine::{connect, parse_version};
use super::error::engine_message;

/// The hidden first argument.
pub const SUBCOMMAND: &str = "container-exec";
pub const INSIDE_ENV_PREFIX: &str = "CORRO_INSIDE_";
/// As `docker exec` ends when it could not do its own part.
const RELAY_FAILED: u8 = 125;

/// Says its process id first of all, so that it can be sent signals; then becomes the command. Users write for bash, and not
/// every image has it.
const ENTRY_SCRIPT: &str = r#"echo $$
if [ "$1" = bash ] && ! command -v bash >/dev/null 2>&1; then shift; set -- /bin/sh "$@"; fi
exec "$@""#;
/// It leads a group, unless the engine is of another opinion.
const SIGNAL_SCRIPT: &str = r#"kill -s "$1" -- "-$2" 2>/dev/null || kill -s "$1" "$2""#;

/// For what a process left in the background and that holds its output open.
const POLL_INTERVAL: Duration = Duration::from_secs(2);
const DRAIN_TIMEOUT: Duration = Duration::from_millis(200);
/// Between two looks whether a process whose output has ended has ended too.
const EXIT_POLL_DELAYS: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(500));

/// Where a process is to run.
#[derive(Clone, Debug)]
pub struct ContainerExec {
    pub socket: String,
    pub version: String,
    pub container: String,
}

impl ContainerExec {
    /// The process as it is started outside.
    pub fn wrap(&self, spec: ProcessSpec) -> ProcessSpec {
        let cwd = spec.cwd.to_string_lossy();
        let own = ["/proc/self/exe", SUBCOMMAND, &self.socket, &self.version, &self.container, &cwd];
        let mut command = spec.argv.clone();
        if let [shell, option, ..] = &mut command[..]
            && shell == "/bin/sh"
            && option == "-c"
        {
            // This machine may have no bash, and the image have one.
            *shell = "bash".to_owned();
        }
        let renamed = |(name, value): (&String, &String)| (format!("{INSIDE_ENV_PREFIX}{name}"), value.clone());
        ProcessSpec {
            argv: own.map(str::to_owned).into_iter().chain(command).collect(),
            env: spec.env.iter().map(renamed).collect(),
            ..spec
        }
    }
}

/// `container-exec SOCKET VERSION CONTAINER DIRECTORY WORD…`.
pub fn run(arguments: &[OsString]) -> ExitCode {
    let words: Option<Vec<String>> = arguments.iter().map(|word| word.clone().into_string().ok()).collect();
    let parts = words.as_deref().and_then(|words| words.split_first_chunk::<4>());
    let Some(([socket, version, container, directory], command)) = parts.filter(|(_, command)| !command.is_empty())
    else {
        return fail("it is started by nodes only");
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => return fail(&error.to_string()),
    };
    let Some(version) = parse_version(version) else { return fail("it is started by nodes only") };
    let variables = inside_variables(std::env::vars_os());
    let config = ExecConfig {
        tty: Some(terminal::is_terminal()),
        attach_stdin: Some(terminal::is_terminal() || has_input()),
        attach_stdout: Some(true),
        attach_stderr: Some(true),
        env: Some(variables.into_iter().map(|(name, value)| format!("{name}={value}")).collect()),
        cmd: Some(
            ["/bin/sh", "-c", ENTRY_SCRIPT, "sh"].into_iter().map(str::to_owned).chain(command.to_vec()).collect(),
        ),
        user: Some("0:0".to_owned()),
        working_dir: Some(directory.clone()),
        ..ExecConfig::default()
    };
    let ended = runtime.block_on(async {
        let docker = connect(Path::new(socket), &version)?;
        Relay { docker, container: container.clone(), pid: None, first_line: Vec::new() }.run(config).await
    });
    match ended {
        Ok(code) => ExitCode::from(code),
        Err(error) => fail(&engine_message(&error)),
    }
}

fn fail(why: &str) -> ExitCode {
    let _ = writeln!(io::stderr(), "corro: cannot run this in the job's container: {why}");
    ExitCode::from(RELAY_FAILED)
}

/// The variables that are meant for the process, and the tag, by which it can be found from outside where it is ours.
fn inside_variables(own: impl Iterator<Item = (OsString, OsString)>) -> BTreeMap<String, String> {
    let text = own.filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    text.filter_map(|(name, value)| match name.strip_prefix(INSIDE_ENV_PREFIX) {
        Some(meant) => Some((meant.to_owned(), value)),
        None => (name == TAG_VARIABLE).then_some((name, value)),
    })
    .collect()
}

struct Relay {
    docker: Docker,
    container: String,
    /// Inside the container.
    pid: Option<u32>,
    /// What was read of the line that says it.
    first_line: Vec<u8>,
}

impl Relay {
    async fn run(mut self, config: ExecConfig) -> Result<u8, bollard::errors::Error> {
        let mut signals = signals()?;
        let exec = self.docker.create_exec(&self.container, config).await?.id;
        let options = StartExecOptions { detach: false, tty: terminal::is_terminal(), output_capacity: None };
        let mut resized = signal(SignalKind::window_change())?;
        let StartExecResults::Attached { mut output, input } = self.docker.start_exec(&exec, Some(options)).await?
        else {
            return Ok(RELAY_FAILED);
        };
        let _fed = forward_input(input)?;
        // A guard's processes write to pipes, and somebody who reads slowly must not keep signals from being heard.
        let [mut stdout, mut stderr] = outputs()?;
        if terminal::is_terminal() {
            terminal::resize(&self.docker, &exec).await;
        }
        let mut polls = interval_at(Instant::now() + POLL_INTERVAL, POLL_INTERVAL);
        polls.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut pending_signals = Vec::new();
        loop {
            tokio::select! {
                frame = output.next() => match frame {
                    Some(frame) => {
                        self.forward_output(frame?, &mut stdout, &mut stderr).await?;
                        if self.pid.is_some() {
                            for name in pending_signals.drain(..) {
                                self.send_signal(name).await;
                            }
                        }
                    }
                    None => break,
                },
                Some(()) = resized.recv(), if terminal::is_terminal() => terminal::resize(&self.docker, &exec).await,
                Some(name) = signals.recv() => match self.pid {
                    Some(_) => self.send_signal(name).await,
                    None => pending_signals.push(name),
                },
                _ = polls.tick() => {
                    if self.docker.inspect_exec(&exec).await?.running == Some(false) {
                        while let Ok(Some(frame)) = timeout(DRAIN_TIMEOUT, output.next()).await {
                            self.forward_output(frame?, &mut stdout, &mut stderr).await?;
                        }
                        break;
                    }
                }
            }
        }
        self.wait_exit_code(&exec, &mut signals).await
    }

    /// A process may close its output and go on.
    async fn wait_exit_code(
        &self,
        exec: &str,
        signals: &mut mpsc::Receiver<&'static str>,
    ) -> Result<u8, bollard::errors::Error> {
        let mut delay = EXIT_POLL_DELAYS.0;
        loop {
            let state = self.docker.inspect_exec(exec).await?;
            if state.running != Some(true)
                && let Some(code) = state.exit_code
            {
                return Ok(u8::try_from(code).unwrap_or(RELAY_FAILED));
            }
            tokio::select! {
                () = sleep(delay) => delay = (delay * 2).min(EXIT_POLL_DELAYS.1),
                Some(name) = signals.recv() => self.send_signal(name).await,
            }
        }
    }

    async fn forward_output(&mut self, frame: LogOutput, stdout: &mut Sender, stderr: &mut Sender) -> io::Result<()> {
        match frame {
            LogOutput::StdErr { message } => stderr.write_all(&message).await,
            LogOutput::StdOut { message } | LogOutput::Console { message } => {
                stdout.write_all(self.without_first_line(&message)).await
            }
            LogOutput::StdIn { .. } => Ok(()),
        }
    }

    /// The first line is ours.
    fn without_first_line<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        if self.pid.is_some() {
            return bytes;
        }
        let end = bytes.iter().position(|byte| *byte == b'\n');
        self.first_line.extend_from_slice(&bytes[..end.unwrap_or(bytes.len())]);
        let Some(end) = end else { return &[] };
        let pid = std::str::from_utf8(&self.first_line).ok().and_then(|first_line| first_line.trim().parse().ok());
        // What does not begin like this has no process that could be told anything.
        self.pid = Some(pid.unwrap_or(0));
        &bytes[end + 1..]
    }

    /// By a process of its own inside: from outside nobody but root could.
    async fn send_signal(&self, name: &str) {
        let Some(pid) = self.pid.filter(|pid| *pid > 1) else { return };
        let command = ["/bin/sh", "-c", SIGNAL_SCRIPT, "sh", name, &pid.to_string()].map(str::to_owned);
        let config = ExecConfig { cmd: Some(command.to_vec()), user: Some("0:0".to_owned()), ..ExecConfig::default() };
        let options = StartExecOptions { detach: true, tty: false, output_capacity: None };
        // A container that is gone has taken the process with it.
        if let Ok(exec) = self.docker.create_exec(&self.container, config).await {
            let _ = self.docker.start_exec(&exec.id, Some(options)).await;
        }
    }
}

/// Ranks read nothing; what another node has started here may.
fn has_input() -> bool {
    fstat(io::stdin()).is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Fifo)
}

/// A terminal is both.
fn outputs() -> io::Result<[Sender; 2]> {
    let own = [io::stdout().as_fd().try_clone_to_owned()?, io::stderr().as_fd().try_clone_to_owned()?];
    let [stdout, stderr] = own.map(|own| match terminal::is_terminal() {
        true => Sender::from_owned_fd_unchecked(own),
        false => Sender::from_owned_fd(own),
    });
    Ok([stdout?, stderr?])
}

/// Passes on what is to be read, if anything is, to its end. Without it the connection is held open all the same.
fn forward_input(mut to: Pin<Box<dyn AsyncWrite + Send>>) -> io::Result<Option<Pin<Box<dyn AsyncWrite + Send>>>> {
    let stdin = io::stdin().as_fd().try_clone_to_owned()?;
    let mut from = match terminal::is_terminal() {
        true => {
            terminal::make_raw(&stdin)?;
            Receiver::from_owned_fd_unchecked(stdin)?
        }
        false if has_input() => Receiver::from_owned_fd(stdin)?,
        false => return Ok(Some(to)),
    };
    tokio::spawn(async move {
        // A process that has ended reads no more, which is told by its exit code.
        let _ = tokio::io::copy(&mut from, &mut to).await;
        let _ = to.shutdown().await;
        std::future::pending::<()>().await;
    });
    Ok(None)
}

/// Those that a guard or a person may send, by the names that `kill` knows.
fn signals() -> io::Result<mpsc::Receiver<&'static str>> {
    let (sender, receiver) = mpsc::channel(16);
    let known = [
        (SignalKind::terminate(), "TERM"),
        (SignalKind::interrupt(), "INT"),
        (SignalKind::hangup(), "HUP"),
        (SignalKind::quit(), "QUIT"),
        (SignalKind::user_defined1(), "USR1"),
        (SignalKind::user_defined2(), "USR2"),
    ];
    for (kind, name) in known {
        let mut arrivals: Signal = signal(kind)?;
        let sender = sender.clone();
        tokio::spawn(async move { while arrivals.recv().await.is_some() && sender.send(name).await.is_ok() {} });
    }
    Ok(receiver)
}

#[cfg(test)]
mod tests {
    use corro_launch::confinement::Confinement;

    use super::*;

    #[test]
    fn variables_travel_under_other_names() {
        let exec = ContainerExec { socket: "/s".into(), version: "1.41".into(), container: "c".into() };
        let spec = ProcessSpec {
            argv: ["/bin/sh", "-c", "a; b"].map(String::from).to_vec(),
            env: BTreeMap::from([("LD_PRELOAD".into(), "/x.so".into()), ("A".into(), "b".into())]),
            cwd: "/job".into(),
            tag: "n/1/rank-0".into(),
            confinement: Confinement::default(),
        };
        let outside = exec.wrap(spec);
        assert_eq!(outside.argv, ["/proc/self/exe", "container-exec", "/s", "1.41", "c", "/job", "bash", "-c", "a; b"]);
        assert!(!outside.env.contains_key("LD_PRELOAD"), "{:?}", outside.env.keys());
        let mut own: Vec<_> = outside.env.into_iter().map(|(name, value)| (name.into(), value.into())).collect();
        own.push(("LD_PRELOAD".into(), "/y.so".into()));
        own.push((TAG_VARIABLE.into(), "n/1/rank-0".into()));
        let seen: Vec<String> =
            inside_variables(own.into_iter()).iter().map(|(name, value)| format!("{name}={value}")).collect();
        assert_eq!(seen, ["A=b", "CORRO_PROCESS_TAG=n/1/rank-0", "LD_PRELOAD=/x.so"]);
    }
}
