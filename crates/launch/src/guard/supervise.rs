//! Supervision of one process tree by a guard: starts the process, waits for its exit or a command, and kills what is left of the tree. Never starts
//! a thread.

use std::ffi::{CStr, OsStr};
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags, open};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, getpid, kill_process, set_child_subreaper, wait};

use super::spawn_request::{Input, SpawnRequest};
use super::{KILL, TERMINATE, signals};
use crate::exit::Exit;
use crate::kill_tagged::kill_by_tag;
use crate::supervisor_deadline::DeadlineReader;
use corro_base::procfs;

/// How long unkillable processes are waited for: one in uninterruptible sleep, or of another user, must not keep the job from ending.
const KILL_TIMEOUT: Duration = Duration::from_secs(10);

/// Starts and supervises a process until its tree has ended. Returns its exit, and whether nothing is left of the tree. Standard input is the life
/// socket; standard error is that of the process.
pub fn run(request: &SpawnRequest, deadline: &DeadlineReader) -> (Exit, bool) {
    let guarded = signals::sigchld_fd().and_then(|sigchld| {
        set_child_subreaper(Some(getpid()))?;
        Ok(sigchld)
    });
    let started = guarded.map_err(|error| start_failure(126, &format!("cannot guard a process: {error}")));
    let started = started.and_then(|sigchld| Ok((sigchld, start(request)?)));
    let (sigchld, main) = match started {
        Ok(started) => started,
        Err(exit) => return (exit, true),
    };
    let mut tree = Tree { main, sigchld, main_exit: None, tag: &request.tag };
    let was_expected = tree.watch(deadline);
    let is_clean = tree.kill_remaining();
    (tree.main_exit.filter(|_| was_expected).unwrap_or(Exit::Signal(libc::SIGKILL)), is_clean)
}

/// The process tree of this guard.
struct Tree<'a> {
    main: Pid,
    sigchld: OwnedFd,
    main_exit: Option<Exit>,
    tag: &'a CStr,
}

impl Tree<'_> {
    /// Returns when the tree must end; false if the reason is the launcher's end or the deadline.
    fn watch(&mut self, deadline: &DeadlineReader) -> bool {
        loop {
            let remaining = deadline.remaining();
            if remaining == Some(Duration::ZERO) {
                return false;
            }
            let remaining = remaining.map(|remaining| Timespec::try_from(remaining).expect("a deadline fits"));
            let mut fds = [
                PollFd::from_borrowed_fd(rustix::stdio::stdin(), PollFlags::IN),
                PollFd::new(&self.sigchld, PollFlags::IN),
            ];
            match poll(&mut fds, remaining.as_ref()) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(_) => return false,
            }
            let (command, child_ended) = (fds[0].revents(), fds[1].revents());
            if !child_ended.is_empty() {
                self.reap();
                if self.main_exit.is_some() {
                    return true;
                }
            }
            if !command.is_empty() {
                let mut byte = [0];
                match rustix::io::read(rustix::stdio::stdin(), &mut byte) {
                    Ok(1) if byte[0] == TERMINATE => {
                        self.signal(Signal::TERM);
                        // A stopped process handles SIGTERM only after SIGCONT.
                        self.signal(Signal::CONT);
                    }
                    Ok(1) if byte[0] == KILL => return true,
                    // Any other signal, by number.
                    Ok(1) if let Some(signal) = Signal::from_named_raw(byte[0].into()) => self.signal(signal),
                    Ok(1) => {}
                    Err(Errno::INTR) => {}
                    Ok(_) | Err(_) => return false,
                }
            }
        }
    }

    /// Kills and reaps until this guard has no children. Reaps first: usually there are no children, and finding the
    /// descendants needs the whole process table. False when some could not be killed.
    fn kill_remaining(&mut self) -> bool {
        let deadline = Instant::now() + KILL_TIMEOUT;
        let mut pause = Duration::from_millis(1);
        while self.reap() {
            self.signal(Signal::KILL);
            if Instant::now() > deadline {
                kill_by_tag(&self.tag.to_string_lossy());
                let remaining = procfs::descendants(getpid().as_raw_nonzero().get());
                eprintln!("corro: these processes could not be killed: {remaining:?}");
                return false;
            }
            let mut fds = [PollFd::new(&self.sigchld, PollFlags::IN)];
            let timeout = Timespec::try_from(pause).expect("a pause of milliseconds fits");
            // The result does not matter: the next round checks again.
            let _ = poll(&mut fds, Some(&timeout));
            pause = (pause * 2).min(Duration::from_millis(50));
        }
        true
    }

    fn signal(&self, signal: Signal) {
        for pid in procfs::descendants(getpid().as_raw_nonzero().get()) {
            if let Some(pid) = Pid::from_raw(pid) {
                // It has ended, or may not be signalled; `kill_remaining` notices children that stay.
                let _ = kill_process(pid, signal);
            }
        }
    }

    /// Reaps all children that have ended; false when there are no children.
    fn reap(&mut self) -> bool {
        signals::drain_sigchld(self.sigchld.as_fd());
        loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) => {
                    if pid == self.main {
                        self.main_exit = decode_status(status);
                    }
                }
                Ok(None) => return true,
                Err(Errno::INTR) => {}
                Err(_) => return false,
            }
        }
    }
}

fn decode_status(status: WaitStatus) -> Option<Exit> {
    let code = status.exit_status().map(Exit::Code);
    code.or_else(|| status.terminating_signal().map(Exit::Signal))
}

/// Starts the program. An error is the exit code of a command that could not be started; its reason is written to standard error.
fn start(request: &SpawnRequest) -> Result<Pid, Exit> {
    let Some(program) = request.argv.first() else {
        return Err(start_failure(126, "cannot start a process: the command is empty"));
    };
    let null;
    let (input, has_terminal) = match &request.input {
        Input::Nothing => {
            let opened = open("/dev/null", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
            null = opened.map_err(|error| start_failure(126, &format!("cannot give a process its input: {error}")))?;
            (null.as_fd(), false)
        }
        Input::Pipe(pipe) => (pipe.as_fd(), false),
        Input::Terminal => (request.stdout.as_fd(), true),
    };
    let program = Path::new(OsStr::from_bytes(program.as_bytes()));
    super::vfork_exec::start(request, input, has_terminal).map_err(|error| exec_failure(program, &error))
}

fn exec_failure(program: &Path, error: &io::Error) -> Exit {
    let program_name = program.display();
    match error.kind() {
        ErrorKind::NotFound if program.components().count() > 1 && program.exists() => start_failure(
            127,
            &format!("cannot start {program_name}: the interpreter named in its first line is missing"),
        ),
        ErrorKind::NotFound => start_failure(127, &format!("cannot start {program_name}: no such program")),
        _ => start_failure(126, &format!("cannot start {program_name}: {error}")),
    }
}

fn start_failure(code: i32, reason: &str) -> Exit {
    eprintln!("corro: {reason}");
    Exit::Code(code)
}
