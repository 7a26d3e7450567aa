//! Starts one process under its guard, stops it, waits for it. The agent's preparation and rank tasks and `gang` enter
//! here. Never leaves a process behind: whoever drops a `Process`, or dies holding one, has killed its whole tree.
//!
//! Read stdout and stderr while waiting, not before: the wait is also what clears away leftovers that hold them open.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, send, shutdown};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::Signal;
use thiserror::Error;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::net::unix::pipe::{Receiver, Sender};
use tokio::sync::Mutex;
use tokio::time::timeout;

use crate::confinement::Confinement;
use crate::exit::Exit;
use crate::guard;
use crate::guard::order::{self, Kind};
use crate::lease::Lease;
use crate::namespaces::Namespaces;
use crate::reader::OutputReader;
use crate::sweep;
use crate::warden::{Warden, pair};

/// Starts processes under guards. Clones share one warden, which ends with the last of them.
#[derive(Clone, Debug)]
pub struct Launcher {
    program: PathBuf,
    arguments: Vec<String>,
    warden: Arc<Mutex<Option<Warden>>>,
    lease: Arc<Lease>,
    /// Files that take the numbers of processes which join a control group.
    entrances: Vec<PathBuf>,
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
    pub confinement: Confinement,
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
    pub stdin: Option<Sender>,
    /// Like `stderr`, not with [`Input::Terminal`].
    pub stdout: Option<OutputReader<Receiver>>,
    pub stderr: Option<OutputReader<Receiver>>,
    pid: u32,
    tag: String,
    end: Option<End>,
    stopper: Stopper,
}

/// What the guard's last word was.
#[derive(Clone, Copy, Debug)]
enum End {
    Told(Exit),
    /// It was killed from outside and could not clean up.
    Untold,
    Swept,
}

/// Stops a process from anywhere. Holding one does not keep the process alive.
#[derive(Clone, Debug)]
pub struct Stopper {
    lifeline: Arc<Lifeline>,
}

/// Our end of the life socket: readable when the guard has ended, with its last word or without.
#[derive(Debug)]
struct Lifeline {
    socket: AsyncFd<OwnedFd>,
}

impl Launcher {
    /// `program` started with `arguments` must hand over to `guard::run`.
    pub fn new(program: impl Into<PathBuf>, arguments: Vec<String>) -> Launcher {
        let (warden, lease) = (Arc::default(), Arc::default());
        Launcher { program: program.into(), arguments, warden, lease, entrances: Vec::new() }
    }

    /// One whose processes are all born in the control groups with these entrances. Has a warden of its own.
    #[must_use]
    pub fn in_groups(&self, entrances: Vec<PathBuf>) -> Launcher {
        Launcher { entrances, ..Launcher::new(&self.program, self.arguments.clone()) }
    }

    /// Ends the warden, and guards that rest. Processes go on under theirs.
    pub async fn rest(&self) {
        drop(self.warden.lock().await.take());
    }

    /// Guards end all processes at this moment, whatever becomes of this launcher, unless another is told before. `None`: they no longer do.
    pub fn lease_ends(&self, at: Option<Instant>) -> io::Result<()> {
        self.lease.ends(at)
    }

    /// Guards made from the running executable, which must hand `guard` to `guard::run`. Named through `/proc` so that
    /// an upgrade that replaces the file on disk does not change or lose the guard of a running agent.
    pub fn this_executable() -> Launcher {
        Launcher::new("/proc/self/exe", vec!["guard".into()])
    }

    /// Starts the warden before it is needed, so that the first process does not wait for it.
    pub async fn warm_up(&self) -> io::Result<()> {
        let mut warden = self.warden.lock().await;
        if warden.is_none() {
            *warden = Some(self.start_warden()?);
        }
        Ok(())
    }

    /// Starts the process. A missing program is not an error here: as in a shell, it ends with 127 and says so on stderr.
    pub async fn spawn(&self, spec: ProcessSpec) -> Result<Process, SpawnError> {
        self.spawn_with(spec, Input::Nothing).await
    }

    /// The same for a process that reads.
    pub async fn spawn_with(&self, spec: ProcessSpec, input: Input) -> Result<Process, SpawnError> {
        let program = spec.argv.first().ok_or(SpawnError::EmptyCommand)?.clone();
        ensure_directory(&spec.cwd)?;
        // A warden that somebody killed is found out by using it.
        let started = match self.order(&spec, &input).await {
            Err(error) if error.kind() != io::ErrorKind::InvalidInput => self.order(&spec, &input).await,
            started => started,
        };
        started.map_err(|source| SpawnError::Guard { guard: self.program.clone(), program, source })
    }

    async fn order(&self, spec: &ProcessSpec, input: &Input) -> io::Result<Process> {
        let (here, there) = pair()?;
        rustix::io::ioctl_fionbio(&here, true)?;
        // SAFETY: an `OwnedFd` is open, is always the same descriptor, and is closed only when the `AsyncFd` drops it.
        let socket = unsafe { AsyncFd::register_with_interest(here, Interest::READABLE)? };
        // Should anything below fail, the life socket closes and the guard ends by itself.
        let stopper = Stopper { lifeline: Arc::new(Lifeline { socket }) };
        let inside = spec.confinement.namespaces.as_ref().map(Namespaces::descriptors);
        let inside = inside.as_ref().map_or(&[][..], |descriptors| &descriptors[..]);
        let (stdin, stdout, stderr) = match input {
            Input::Terminal(terminal) => {
                let order = order::encode(spec, Kind::Terminal)?;
                self.hand_over(&order, &[there.as_fd(), terminal.as_fd(), terminal.as_fd()], inside).await?;
                (None, None, None)
            }
            Input::Nothing => {
                let order = order::encode(spec, Kind::Nothing)?;
                let (stdout, stderr) = (pipe_with(PipeFlags::CLOEXEC)?, pipe_with(PipeFlags::CLOEXEC)?);
                self.hand_over(&order, &[there.as_fd(), stdout.1.as_fd(), stderr.1.as_fd()], inside).await?;
                (None, Some(stdout.0), Some(stderr.0))
            }
            Input::Pipe => {
                let order = order::encode(spec, Kind::Pipe)?;
                let (stdout, stderr) = (pipe_with(PipeFlags::CLOEXEC)?, pipe_with(PipeFlags::CLOEXEC)?);
                let stdin = pipe_with(PipeFlags::CLOEXEC)?;
                let theirs = [there.as_fd(), stdout.1.as_fd(), stderr.1.as_fd(), stdin.0.as_fd()];
                self.hand_over(&order, &theirs, inside).await?;
                (Some(Sender::from_owned_fd(stdin.1)?), Some(stdout.0), Some(stderr.0))
            }
        };
        drop(there);
        let mut id = [0; guard::ID_LENGTH];
        if stopper.lifeline.receive(&mut id).await? != id.len() {
            self.warden.lock().await.take();
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

    fn start_warden(&self) -> io::Result<Warden> {
        let warden = Warden::start(&self.program, &self.arguments, &self.lease)?;
        for entrance in &self.entrances {
            // A limit that does not hold is no reason to run nothing.
            if let Err(error) = std::fs::write(entrance, warden.id().to_string()) {
                tracing::warn!(%error, entrance = %entrance.display(), "processes stay outside of their control group");
            }
        }
        Ok(warden)
    }

    async fn hand_over(
        &self,
        order: &[u8],
        descriptors: &[BorrowedFd<'_>],
        inside: &[BorrowedFd<'_>],
    ) -> io::Result<()> {
        let descriptors = [descriptors, inside].concat();
        let mut held = self.warden.lock().await;
        // Taken out while it is used: whoever is cancelled in the middle of an order leaves no half order behind.
        let warden = match held.take() {
            Some(warden) => warden,
            None => self.start_warden()?,
        };
        warden.send(order, &descriptors).await?;
        *held = Some(warden);
        Ok(())
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
        if self.end.is_none() {
            let mut word = [0; guard::END_LENGTH];
            let length = self.stopper.lifeline.receive(&mut word).await?;
            self.end = Some(guard::end_of(&word[..length]).map_or(End::Untold, End::Told));
        }
        if let Some(End::Untold) = self.end {
            let tag = self.tag.clone();
            tokio::task::spawn_blocking(move || sweep::sweep_exactly(&tag)).await?;
            self.end = Some(End::Swept);
        }
        Ok(match self.end {
            Some(End::Told(exit)) => exit,
            _ => Exit::Signal(libc::SIGKILL),
        })
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
        let look = |fd: &OwnedFd| Ok(recv(fd, &mut [0; 1], RecvFlags::PEEK | RecvFlags::DONTWAIT)?);
        // An error means that the guard is gone, or that the runtime is shutting down, when nobody can wait any longer.
        let _: io::Result<_> = self.lifeline.socket.async_io(Interest::READABLE, look).await;
    }
}

impl Lifeline {
    /// The guard's next word; nothing when it is gone.
    async fn receive(&self, word: &mut [u8]) -> io::Result<usize> {
        let received = self.socket.async_io(Interest::READABLE, |fd| Ok(recv(fd, &mut *word, RecvFlags::DONTWAIT)?.0));
        match received.await {
            // It ended with an order of ours unread.
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => Ok(0),
            received => received,
        }
    }

    fn order(&self, order: u8) {
        // The socket holds thousands of orders, so this does not fail for want of room; else the guard has ended.
        let _ = send(self.socket.get_ref(), &[order], SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
    }

    /// To the guard it looks as if we had died; what it still says can be heard.
    fn close(&self) {
        let _ = shutdown(self.socket.get_ref(), Shutdown::Write);
    }
}

/// Said apart from starting the guard, because both would be "no such file".
fn ensure_directory(path: &PathBuf) -> Result<(), SpawnError> {
    let check = match std::fs::metadata(path) {
        Ok(metadata) if metadata.is_dir() => Ok(()),
        Ok(_) => Err(io::Error::from(io::ErrorKind::NotADirectory)),
        Err(error) => Err(error),
    };
    check.map_err(|source| SpawnError::WorkingDirectory { path: path.clone(), source })
}
