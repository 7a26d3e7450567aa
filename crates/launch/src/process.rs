//! Starts a process under a guard, stops it, waits for it. Never leaves a process behind: dropping a `Process`, or the death of the launcher that
//! holds it, kills its whole tree.
//!
//! Read stdout and stderr while waiting, not before: waiting also kills leftovers that hold them open.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use rustix::pipe::{PipeFlags, pipe_with};
use thiserror::Error;
use tokio::net::unix::pipe::{Receiver, Sender};
use tokio::sync::Mutex;

use crate::exit::Exit;
use crate::fork_server::ForkServer;
use crate::guard;
use crate::guard::spawn_request::{self, InputKind};
use crate::kill_tagged;
use crate::namespaces::Namespaces;
use crate::output_reader::OutputReader;
use crate::process_spec::{Input, ProcessSpec};
use crate::socket_pair::socket_pair;
use crate::stopper::Stopper;
use crate::supervisor_deadline::DeadlineWriter;

/// Starts processes under guards. Clones share one fork server, which ends with the last of them.
#[derive(Clone, Debug)]
pub struct Launcher {
    program: PathBuf,
    arguments: Vec<String>,
    fork_server: Arc<Mutex<Option<ForkServer>>>,
    deadline: Arc<DeadlineWriter>,
    /// `cgroup.procs` files of the cgroups that the fork server, and so all processes, join.
    cgroup_procs: Vec<PathBuf>,
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

/// A started process with its guard and all its descendants.
#[derive(Debug)]
pub struct Process {
    /// Only with [`Input::Pipe`]; dropping it closes the input.
    pub stdin: Option<Sender>,
    /// As `stderr`, `None` with [`Input::Terminal`].
    pub stdout: Option<OutputReader<Receiver>>,
    pub stderr: Option<OutputReader<Receiver>>,
    pid: u32,
    tag: String,
    end: Option<GuardEnd>,
    stopper: Stopper,
}

/// How the guard ended.
#[derive(Clone, Copy, Debug)]
enum GuardEnd {
    /// It sent the exit status of its process.
    Reported(Exit),
    /// It was killed from outside; leftovers of its process are not killed yet.
    Killed,
    /// It was killed from outside, and leftovers are killed.
    CleanedUp,
}

impl Launcher {
    /// `program`, started with `arguments`, must call `guard::run`.
    pub fn new(program: impl Into<PathBuf>, arguments: Vec<String>) -> Launcher {
        let (fork_server, deadline) = (Arc::default(), Arc::default());
        Launcher { program: program.into(), arguments, fork_server, deadline, cgroup_procs: Vec::new() }
    }

    /// A launcher whose processes all start in the cgroups with these `cgroup.procs` files. It has a fork server of its own.
    #[must_use]
    pub fn in_cgroups(&self, cgroup_procs: Vec<PathBuf>) -> Launcher {
        Launcher { cgroup_procs, ..Launcher::new(&self.program, self.arguments.clone()) }
    }

    /// Ends the fork server and idle guards. Running processes keep their guards.
    pub async fn release_idle_guards(&self) {
        drop(self.fork_server.lock().await.take());
    }

    /// Sets the time at which guards kill all processes unless a later one is set before, which covers a frozen launcher. `None`: no deadline.
    pub fn set_deadline(&self, at: Option<Instant>) -> io::Result<()> {
        self.deadline.set(at)
    }

    /// A launcher with the running executable as guard program, which must call `guard::run` for the argument `guard`. Named through `/proc`, so that
    /// replacing the file on disk does not affect a running agent.
    pub fn this_executable() -> Launcher {
        Launcher::new("/proc/self/exe", vec!["guard".into()])
    }

    /// Starts the fork server early, so that the first process does not wait for it.
    pub async fn start_fork_server(&self) -> io::Result<()> {
        let mut fork_server = self.fork_server.lock().await;
        if fork_server.is_none() {
            *fork_server = Some(self.new_fork_server()?);
        }
        Ok(())
    }

    /// Starts a process without input. A missing program is no error: as in a shell, the process exits with 127 and a message on stderr.
    pub async fn spawn(&self, spec: ProcessSpec) -> Result<Process, SpawnError> {
        self.spawn_with(spec, Input::Nothing).await
    }

    /// Starts a process with the given input.
    pub async fn spawn_with(&self, spec: ProcessSpec, input: Input) -> Result<Process, SpawnError> {
        let program = spec.argv.first().ok_or(SpawnError::EmptyCommand)?.clone();
        ensure_directory(&spec.cwd)?;
        // A fork server that was killed is noticed by using it, and restarted.
        let started = match self.try_spawn(&spec, &input).await {
            Err(error) if error.kind() != io::ErrorKind::InvalidInput => self.try_spawn(&spec, &input).await,
            started => started,
        };
        started.map_err(|source| SpawnError::Guard { guard: self.program.clone(), program, source })
    }

    async fn try_spawn(&self, spec: &ProcessSpec, input: &Input) -> io::Result<Process> {
        let (our_end, guard_end) = socket_pair()?;
        rustix::io::ioctl_fionbio(&our_end, true)?;
        // If anything below fails, the life socket closes and the guard ends.
        let stopper = Stopper::new(our_end)?;
        let namespaces = spec.confinement.namespaces.as_ref().map(Namespaces::descriptors);
        let namespaces = namespaces.as_ref().map_or(&[][..], |descriptors| &descriptors[..]);
        let (stdin, stdout, stderr) = match input {
            Input::Terminal(terminal) => {
                let request = spawn_request::encode(spec, InputKind::Terminal)?;
                self.send_request(&request, &[guard_end.as_fd(), terminal.as_fd(), terminal.as_fd()], namespaces)
                    .await?;
                (None, None, None)
            }
            Input::Nothing => {
                let request = spawn_request::encode(spec, InputKind::Nothing)?;
                let (stdout, stderr) = (pipe_with(PipeFlags::CLOEXEC)?, pipe_with(PipeFlags::CLOEXEC)?);
                self.send_request(&request, &[guard_end.as_fd(), stdout.1.as_fd(), stderr.1.as_fd()], namespaces)
                    .await?;
                (None, Some(stdout.0), Some(stderr.0))
            }
            Input::Pipe => {
                let request = spawn_request::encode(spec, InputKind::Pipe)?;
                let (stdout, stderr) = (pipe_with(PipeFlags::CLOEXEC)?, pipe_with(PipeFlags::CLOEXEC)?);
                let stdin = pipe_with(PipeFlags::CLOEXEC)?;
                let descriptors = [guard_end.as_fd(), stdout.1.as_fd(), stderr.1.as_fd(), stdin.0.as_fd()];
                self.send_request(&request, &descriptors, namespaces).await?;
                (Some(Sender::from_owned_fd(stdin.1)?), Some(stdout.0), Some(stderr.0))
            }
        };
        drop(guard_end);
        let mut id = [0; guard::ID_LENGTH];
        if stopper.life_socket.receive(&mut id).await? != id.len() {
            self.fork_server.lock().await.take();
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let reader = |pipe: Option<OwnedFd>| match pipe {
            Some(pipe) => {
                let pipe = Receiver::from_owned_fd(pipe)?;
                Ok::<_, io::Error>(Some(OutputReader::new(pipe, stopper.clone(), &spec.confinement.secrets)))
            }
            None => Ok(None),
        };
        let (stdout, stderr, pid, tag) = (reader(stdout)?, reader(stderr)?, u32::from_le_bytes(id), spec.tag.clone());
        Ok(Process { stdin, stdout, stderr, pid, tag, end: None, stopper })
    }

    fn new_fork_server(&self) -> io::Result<ForkServer> {
        let fork_server = ForkServer::start(&self.program, &self.arguments, &self.deadline)?;
        for procs_file in &self.cgroup_procs {
            // The process runs even without its limit.
            if let Err(error) = std::fs::write(procs_file, fork_server.id().to_string()) {
                tracing::warn!(%error, procs_file = %procs_file.display(), "cannot add processes to their cgroup");
            }
        }
        Ok(fork_server)
    }

    /// Sends a request to the fork server, which is started if necessary.
    async fn send_request(
        &self,
        request: &[u8],
        descriptors: &[BorrowedFd<'_>],
        namespaces: &[BorrowedFd<'_>],
    ) -> io::Result<()> {
        let descriptors = [descriptors, namespaces].concat();
        let mut slot = self.fork_server.lock().await;
        // Taken out of the slot while it is used: if this call is cancelled, a fork server with half a request is dropped.
        let fork_server = match slot.take() {
            Some(fork_server) => fork_server,
            None => self.new_fork_server()?,
        };
        fork_server.send(request, &descriptors).await?;
        *slot = Some(fork_server);
        Ok(())
    }
}

impl Process {
    /// The pid of the guard, which is the root of the process tree.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    pub fn stopper(&self) -> Stopper {
        self.stopper.clone()
    }

    /// Waits until the process and all its descendants have ended. May be called again, and may be cancelled.
    pub async fn wait(&mut self) -> io::Result<Exit> {
        if self.end.is_none() {
            let mut message = [0; guard::END_LENGTH];
            let length = self.stopper.life_socket.receive(&mut message).await?;
            self.end = Some(guard::decode_exit(&message[..length]).map_or(GuardEnd::Killed, GuardEnd::Reported));
        }
        if let Some(GuardEnd::Killed) = self.end {
            let tag = self.tag.clone();
            tokio::task::spawn_blocking(move || kill_tagged::kill_by_tag(&tag)).await?;
            self.end = Some(GuardEnd::CleanedUp);
        }
        Ok(match self.end {
            Some(GuardEnd::Reported(exit)) => exit,
            _ => Exit::Signal(libc::SIGKILL),
        })
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.stopper.life_socket.close();
    }
}

/// Checked separately, because a missing directory and a missing guard program would both be "no such file".
fn ensure_directory(path: &PathBuf) -> Result<(), SpawnError> {
    let check = match std::fs::metadata(path) {
        Ok(metadata) if metadata.is_dir() => Ok(()),
        Ok(_) => Err(io::Error::from(io::ErrorKind::NotADirectory)),
        Err(error) => Err(error),
    };
    check.map_err(|source| SpawnError::WorkingDirectory { path: path.clone(), source })
}
