//! Starts one process under its guard, stops it, waits for it. The agent's preparation and rank tasks and `gang` enter
//! here. Never leaves a process behind: whoever drops a `Process`, or dies holding one, has killed its whole tree.
//!
//! Read stdout and stderr while waiting, not before: the wait is also what clears away leftovers that hold them open.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::io::{FdFlags, fcntl_setfd};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open};
use thiserror::Error;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::net::unix::pipe;
use tokio::process::{Child, ChildStderr, ChildStdout, Command};
use tokio::time::timeout;

use crate::exit::Exit;
use crate::guard;
use crate::reader::OutputReader;
use crate::sweep::{self, TAG_VARIABLE};

/// How to start guards: an executable whose `main` hands over to `guard::run`, and the words that make it do so.
#[derive(Clone, Debug)]
pub struct Launcher {
    pub guard: PathBuf,
    pub guard_args: Vec<String>,
}

/// One process to start.
#[derive(Clone, Debug)]
pub struct ProcessSpec {
    pub argv: Vec<String>,
    /// The complete environment; nothing is inherited.
    pub env: BTreeMap<String, String>,
    pub cwd: PathBuf,
    /// Names the process in its environment, so that leftovers can be found again. Unique per process.
    pub tag: String,
}

/// What a process reads. Ranks read nothing; someone who logs in does.
#[derive(Debug)]
pub enum Input {
    Nothing,
    /// What is written to [`Process::stdin`].
    Pipe,
    /// A terminal of its own, by the side that programs use. Its output goes there too.
    Terminal(OwnedFd),
}

#[derive(Debug, Error)]
pub enum SpawnError {
    #[error("cannot start a process: the command is empty")]
    EmptyCommand,
    #[error("cannot use {} as working directory", path.display())]
    WorkingDirectory {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("cannot start the guard {} for `{program}`", guard.display())]
    Guard {
        guard: PathBuf,
        program: String,
        #[source]
        source: io::Error,
    },
}

/// A started process, together with its guard and everything it has started itself.
#[derive(Debug)]
pub struct Process {
    /// Only with [`Input::Pipe`]; dropping it is the end of the input.
    pub stdin: Option<pipe::Sender>,
    /// Like `stderr`, not with [`Input::Terminal`].
    pub stdout: Option<OutputReader<ChildStdout>>,
    pub stderr: Option<OutputReader<ChildStderr>>,
    pid: u32,
    tag: String,
    child: Child,
    stopper: Stopper,
}

/// Stops a process from anywhere. Holding one does not keep the process alive.
#[derive(Clone, Debug)]
pub struct Stopper {
    lifeline: Arc<Lifeline>,
}

#[derive(Debug)]
struct Lifeline {
    /// The write end of the life pipe; `None` once the process has been dropped.
    pipe: Mutex<Option<OwnedFd>>,
    /// The guard. Readable when it has ended, whether or not anyone has waited for it.
    guard: AsyncFd<OwnedFd>,
}

impl Launcher {
    /// Guards made from the running executable, which must hand `guard` to `guard::run`. Named through `/proc` so that
    /// an upgrade that replaces the file on disk does not change or lose the guard of a running agent.
    pub fn this_executable() -> Launcher {
        Launcher { guard: "/proc/self/exe".into(), guard_args: vec!["guard".into(), "--".into()] }
    }

    /// Starts the process. A missing program is not an error here: as in a shell, it ends with 127 and says so on stderr.
    pub async fn spawn(&self, spec: ProcessSpec) -> Result<Process, SpawnError> {
        self.spawn_with(spec, Input::Nothing).await
    }

    /// The same for a process that reads.
    pub async fn spawn_with(&self, spec: ProcessSpec, input: Input) -> Result<Process, SpawnError> {
        let program = spec.argv.first().ok_or(SpawnError::EmptyCommand)?.clone();
        ensure_directory(&spec.cwd).await?;
        let guard_error = |source| SpawnError::Guard { guard: self.guard.clone(), program: program.clone(), source };
        let mut command = Command::new(&self.guard);
        command.arg0("corro").args(&self.guard_args);
        let stdin = give_input(&mut command, input).map_err(guard_error)?;
        let mut child = command
            .args(&spec.argv)
            .env_clear()
            .envs(&spec.env)
            .env(TAG_VARIABLE, &spec.tag)
            .current_dir(&spec.cwd)
            .stdin(Stdio::piped())
            // From its first instant, Ctrl-C on our terminal is not the guard's business.
            .process_group(0)
            .spawn()
            .map_err(guard_error)?;
        // Should anything below fail, the life pipe closes and the guard ends by itself.
        let pipe = child.stdin.take().expect("stdin was asked for").into_owned_fd().map_err(guard_error)?;
        let pid = child.id().expect("nobody has waited yet");
        let stopper = Stopper { lifeline: Arc::new(Lifeline::new(pid, pipe).map_err(guard_error)?) };
        Ok(Process {
            stdin,
            stdout: child.stdout.take().map(|stdout| OutputReader::new(stdout, stopper.clone())),
            stderr: child.stderr.take().map(|stderr| OutputReader::new(stderr, stopper.clone())),
            pid,
            tag: spec.tag,
            child,
            stopper,
        })
    }
}

impl Process {
    /// The id of the guard, which is the one parent of the whole tree.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    pub fn stopper(&self) -> Stopper {
        self.stopper.clone()
    }

    /// Waits until the process and everything it started are gone. May be called again, and may be cancelled.
    pub async fn wait(&mut self) -> io::Result<Exit> {
        let exit = Exit::from(self.child.wait().await?);
        // A guard killed from outside looks like a process killed by that signal, and could not clean up.
        if let Exit::Signal(_) = exit {
            let tag = self.tag.clone();
            tokio::task::spawn_blocking(move || sweep::sweep_exactly(&tag)).await?;
        }
        Ok(exit)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.stopper.lifeline.close();
    }
}

impl Stopper {
    /// Asks the whole tree to end, and kills what is left after `grace`. Returns when the process has ended or has been
    /// told to die; a caller that stops waiting sends no kill.
    pub async fn terminate(&self, grace: Duration) {
        self.lifeline.order(guard::TERMINATE);
        if timeout(grace, self.ended()).await.is_err() {
            self.kill();
        }
    }

    /// Sends a signal to the whole tree, as a terminal would. Says nothing about when or whether it ends.
    pub fn signal(&self, signal: Signal) {
        if let Ok(number) = u8::try_from(signal.as_raw()) {
            self.lifeline.order(number);
        }
    }

    /// Kills the whole tree.
    pub fn kill(&self) {
        self.lifeline.order(guard::KILL);
    }

    /// Resolves when the guard has ended.
    pub async fn ended(&self) {
        // An error means that the runtime is shutting down, when nobody can wait any longer.
        let _ = self.lifeline.guard.readable().await;
    }
}

impl Lifeline {
    fn new(pid: u32, pipe: OwnedFd) -> io::Result<Lifeline> {
        let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).expect("a started process has a positive id");
        let guard = pidfd_open(pid, PidfdFlags::NONBLOCK)?;
        // SAFETY: an `OwnedFd` is open, is always the same descriptor, and is closed only when the `AsyncFd` drops it.
        let guard = unsafe { AsyncFd::register_with_interest(guard, Interest::READABLE)? };
        Ok(Lifeline { pipe: Mutex::new(Some(pipe)), guard })
    }

    fn order(&self, order: u8) {
        let pipe = self.pipe.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(pipe) = pipe.as_ref() {
            // The pipe holds thousands of orders, so this does not block; a failure means that the guard has ended.
            let _ = rustix::io::write(pipe, &[order]);
        }
    }

    fn close(&self) {
        self.pipe.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
}

/// Sets up the guard's output, and its input beside the life pipe. Gives the end that is ours.
fn give_input(command: &mut Command, input: Input) -> io::Result<Option<pipe::Sender>> {
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    match input {
        Input::Nothing => Ok(None),
        Input::Terminal(terminal) => {
            command.arg(guard::WITH_TERMINAL).stdout(terminal.try_clone()?).stderr(terminal);
            Ok(None)
        }
        Input::Pipe => {
            let (reader, writer) = pipe_with(PipeFlags::CLOEXEC)?;
            command.arg(format!("{}{}", guard::WITH_INPUT, reader.as_raw_fd()));
            // SAFETY: runs between fork and exec and makes one system call, on a descriptor that the closure owns.
            unsafe {
                command.pre_exec(move || Ok(fcntl_setfd(&reader, FdFlags::empty())?));
            }
            Ok(Some(pipe::Sender::from_owned_fd(writer)?))
        }
    }
}

/// Said apart from starting the guard, because both would be "no such file".
async fn ensure_directory(path: &PathBuf) -> Result<(), SpawnError> {
    let check = match tokio::fs::metadata(path).await {
        Ok(metadata) if metadata.is_dir() => Ok(()),
        Ok(_) => Err(io::Error::from(io::ErrorKind::NotADirectory)),
        Err(error) => Err(error),
    };
    check.map_err(|source| SpawnError::WorkingDirectory { path: path.clone(), source })
}
