//! Runs one process of a job inside its container and represents it outside: the hidden subcommand `corro
//! container-exec`, which a guard starts in place of the process. It starts the command by `docker exec`, forwards
//! input, output and signals, and exits with its exit code. If the relay is killed, the process ends with the
//! container.
//!
//! The job's variables are passed under prefixed names: they are meant for the process inside, and some (`LD_PRELOAD`)
//! would affect the relay.

mod terminal;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{self, Write as _};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
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

use corro_launch::kill_tagged::TAG_VARIABLE;
use corro_launch::process_spec::ProcessSpec;

use super::engine::{connect, parse_version};
use super::error::engine_message;

/// Hidden first argument of the program.
pub const SUBCOMMAND: &str = "container-exec";
/// Prefix of variables meant for the process inside.
pub const INSIDE_ENV_PREFIX: &str = "CORRO_INSIDE_";
/// Exit code if the relay itself fails, as of `docker exec`.
const RELAY_FAILED: u8 = 125;

/// Prints the process id on the first line, so that signals can be sent, then executes the command. Falls back to
/// `/bin/sh` in images without bash.
const ENTRY_SCRIPT: &str = r#"echo $$
if [ "$1" = bash ] && ! command -v bash >/dev/null 2>&1; then shift; set -- /bin/sh "$@"; fi
exec "$@""#;
/// Signals the process group; engines that do not make the process a group leader need the second form.
const SIGNAL_SCRIPT: &str = r#"kill -s "$1" -- "-$2" 2>/dev/null || kill -s "$1" "$2""#;

/// Interval of checks whether the process has ended although background processes keep its output open.
const POLL_INTERVAL: Duration = Duration::from_secs(2);
const DRAIN_TIMEOUT: Duration = Duration::from_millis(200);
/// First and longest delay between checks for the exit code after the output has ended.
const EXIT_POLL_DELAYS: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(500));

/// Container in which a process is executed.
#[derive(Clone, Debug)]
pub struct ContainerExec {
    pub socket: String,
    pub version: String,
    pub container: String,
}

impl ContainerExec {
    /// The process that runs the relay outside in place of `spec`.
    pub fn wrap(&self, spec: ProcessSpec) -> ProcessSpec {
        let cwd = spec.cwd.to_string_lossy();
        let own = ["/proc/self/exe", SUBCOMMAND, &self.socket, &self.version, &self.container, &cwd];
        let mut command = spec.argv.clone();
        if let [shell, option, ..] = &mut command[..]
            && shell == "/bin/sh"
            && option == "-c"
        {
            // The image may have bash even if this machine has not.
            *shell = "bash".to_owned();
        }
        let renamed = |(name, value): (&String, &String)| (format!("{INSIDE_ENV_PREFIX}{name}"), value.clone());
        ProcessSpec {
            argv: own.map(str::to_owned).into_iter().chain(command).collect(),
            env: spec.env.iter().map(renamed).collect(),
            // The directory may exist in the container only.
            cwd: PathBuf::from("/"),
            ..spec
        }
    }
}

/// Arguments: `SOCKET VERSION CONTAINER DIRECTORY WORD…`.
pub fn run(arguments: &[OsString]) -> ExitCode {
    let words: Option<Vec<String>> = arguments.iter().map(|word| word.clone().into_string().ok()).collect();
    let parts = words.as_deref().and_then(|words| words.split_first_chunk::<4>());
    let Some(([socket, version, container, directory], command)) = parts.filter(|(_, command)| !command.is_empty())
    else {
        return fail("for internal use by nodes");
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => return fail(&error.to_string()),
    };
    let Some(version) = parse_version(version) else { return fail("for internal use by nodes") };
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

/// Variables for the process inside, and the tag by which it can be found from outside.
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
    /// Process id inside the container.
    pid: Option<u32>,
    /// Bytes of the first output line, which contains the process id.
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
        // Pipes are written asynchronously: a slow reader must not block the forwarding of signals.
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

    /// Waits for the exit code: a process may close its output and continue.
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

    /// Removes the first output line, which contains the process id.
    fn without_first_line<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        if self.pid.is_some() {
            return bytes;
        }
        let end = bytes.iter().position(|byte| *byte == b'\n');
        self.first_line.extend_from_slice(&bytes[..end.unwrap_or(bytes.len())]);
        let Some(end) = end else { return &[] };
        let pid = std::str::from_utf8(&self.first_line).ok().and_then(|first_line| first_line.trim().parse().ok());
        // Without a process id no signals can be sent.
        self.pid = Some(pid.unwrap_or(0));
        &bytes[end + 1..]
    }

    /// Sends a signal by a `kill` inside the container; outside only root could.
    async fn send_signal(&self, name: &str) {
        let Some(pid) = self.pid.filter(|pid| *pid > 1) else { return };
        let command = ["/bin/sh", "-c", SIGNAL_SCRIPT, "sh", name, &pid.to_string()].map(str::to_owned);
        let config = ExecConfig { cmd: Some(command.to_vec()), user: Some("0:0".to_owned()), ..ExecConfig::default() };
        let options = StartExecOptions { detach: true, tty: false, output_capacity: None };
        // If the container is gone, so is the process.
        if let Ok(exec) = self.docker.create_exec(&self.container, config).await {
            let _ = self.docker.start_exec(&exec.id, Some(options)).await;
        }
    }
}

/// Whether standard input is a pipe. Ranks have none; commands started by other nodes do.
fn has_input() -> bool {
    fstat(io::stdin()).is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Fifo)
}

/// Standard output and error; with a terminal both are the terminal.
fn outputs() -> io::Result<[Sender; 2]> {
    let own = [io::stdout().as_fd().try_clone_to_owned()?, io::stderr().as_fd().try_clone_to_owned()?];
    let [stdout, stderr] = own.map(|own| match terminal::is_terminal() {
        true => Sender::from_owned_fd_unchecked(own),
        false => Sender::from_owned_fd(own),
    });
    Ok([stdout?, stderr?])
}

/// Forwards standard input until its end. Without input, returns the stream, which keeps the connection open.
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
        // Writing fails if the process has ended; its exit code says so.
        let _ = tokio::io::copy(&mut from, &mut to).await;
        let _ = to.shutdown().await;
        std::future::pending::<()>().await;
    });
    Ok(None)
}

/// Signals to forward, by the names that `kill` accepts.
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
    fn variables_are_passed_with_a_prefix() {
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
