//! One guard at work: starts its process, waits for its end or for an order, and ends whatever is left of the tree. Only
//! `guard` enters here. Never starts a thread.

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

use super::order::{Input, Order};
use super::{KILL, TERMINATE, signals};
use crate::exit::Exit;
use crate::lease::Watched;
use crate::procfs;
use crate::sweep::sweep_exactly;

/// A process in uninterruptible sleep, or one that changed its owner, cannot be killed now; the job must still end.
const GIVE_UP_AFTER: Duration = Duration::from_secs(10);

/// Guards the ordered process to its end; true if really nothing is left of it. Standard input is the life socket;
/// standard error is the process's.
pub fn guard(order: &Order, lease: &Watched) -> (Exit, bool) {
    let guarded = signals::child_ends().and_then(|child_ends| {
        set_child_subreaper(Some(getpid()))?;
        Ok(child_ends)
    });
    let started = guarded.map_err(|error| refusal(126, &format!("cannot guard a process: {error}")));
    let started = started.and_then(|child_ends| Ok((child_ends, start(order)?)));
    let (child_ends, main) = match started {
        Ok(started) => started,
        Err(exit) => return (exit, true),
    };
    let mut tree = Tree { main, child_ends, main_exit: None, tag: &order.tag };
    let wanted = tree.watch(lease);
    let nothing_left = tree.end();
    (tree.main_exit.filter(|_| wanted).unwrap_or(Exit::Signal(libc::SIGKILL)), nothing_left)
}

/// The process tree below this guard.
struct Tree<'a> {
    main: Pid,
    child_ends: OwnedFd,
    main_exit: Option<Exit>,
    tag: &'a CStr,
}

impl Tree<'_> {
    /// Returns when the tree has to end; false if that is because the launcher is gone, or not heard in time.
    fn watch(&mut self, lease: &Watched) -> bool {
        loop {
            let left = lease.left();
            if left == Some(Duration::ZERO) {
                return false;
            }
            let left = left.map(|left| Timespec::try_from(left).expect("a lease fits"));
            let mut fds = [
                PollFd::from_borrowed_fd(rustix::stdio::stdin(), PollFlags::IN),
                PollFd::new(&self.child_ends, PollFlags::IN),
            ];
            match poll(&mut fds, left.as_ref()) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(_) => return false,
            }
            let (order, ended) = (fds[0].revents(), fds[1].revents());
            if !ended.is_empty() {
                self.reap();
                if self.main_exit.is_some() {
                    return true;
                }
            }
            if !order.is_empty() {
                let mut byte = [0];
                match rustix::io::read(rustix::stdio::stdin(), &mut byte) {
                    Ok(1) if byte[0] == TERMINATE => {
                        self.signal(Signal::TERM);
                        // A stopped process acts on SIGTERM only once it runs again.
                        self.signal(Signal::CONT);
                    }
                    Ok(1) if byte[0] == KILL => return true,
                    // Any other signal by its number, as someone at a terminal sends it.
                    Ok(1) if let Some(signal) = Signal::from_named_raw(byte[0].into()) => self.signal(signal),
                    Ok(1) => {}
                    Err(Errno::INTR) => {}
                    Ok(_) | Err(_) => return false,
                }
            }
        }
    }

    /// Kills and reaps until this guard has no children. Looks for children first: mostly there are none, and to find out
    /// whom to kill the whole process table has to be read. False when some could not be killed.
    fn end(&mut self) -> bool {
        let deadline = Instant::now() + GIVE_UP_AFTER;
        let mut pause = Duration::from_millis(1);
        while self.reap() {
            self.signal(Signal::KILL);
            if Instant::now() > deadline {
                sweep_exactly(&self.tag.to_string_lossy());
                let left = procfs::descendants(getpid().as_raw_nonzero().get());
                eprintln!("corro: these processes could not be killed: {left:?}");
                return false;
            }
            let mut fds = [PollFd::new(&self.child_ends, PollFlags::IN)];
            let timeout = Timespec::try_from(pause).expect("a pause of milliseconds fits");
            // Whatever poll says, the next round looks for itself.
            let _ = poll(&mut fds, Some(&timeout));
            pause = (pause * 2).min(Duration::from_millis(50));
        }
        true
    }

    fn signal(&self, signal: Signal) {
        for pid in procfs::descendants(getpid().as_raw_nonzero().get()) {
            if let Some(pid) = Pid::from_raw(pid) {
                // Gone already, or not ours to signal: `end` finds out by the children that stay.
                let _ = kill_process(pid, signal);
            }
        }
    }

    /// Collects every child that has ended; false when there is no child left at all.
    fn reap(&mut self) -> bool {
        signals::forget_child_ends(self.child_ends.as_fd());
        loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) => {
                    if pid == self.main {
                        self.main_exit = exit_of(status);
                    }
                }
                Ok(None) => return true,
                Err(Errno::INTR) => {}
                Err(_) => return false,
            }
        }
    }
}

fn exit_of(status: WaitStatus) -> Option<Exit> {
    let code = status.exit_status().map(Exit::Code);
    code.or_else(|| status.terminating_signal().map(Exit::Signal))
}

/// An error is how the command ended without having begun, which it has said on its standard error.
fn start(order: &Order) -> Result<Pid, Exit> {
    let Some(program) = order.argv.first() else {
        return Err(refusal(126, "cannot start a process: the command is empty"));
    };
    let null;
    let (input, has_terminal) = match &order.input {
        Input::Nothing => {
            let opened = open("/dev/null", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
            null = opened.map_err(|error| refusal(126, &format!("cannot give a process its input: {error}")))?;
            (null.as_fd(), false)
        }
        Input::Pipe(pipe) => (pipe.as_fd(), false),
        Input::Terminal => (order.stdout.as_fd(), true),
    };
    let program = Path::new(OsStr::from_bytes(program.as_bytes()));
    super::start::start(order, input, has_terminal).map_err(|error| not_started(program, &error))
}

fn not_started(program: &Path, error: &io::Error) -> Exit {
    let shown = program.display();
    match error.kind() {
        ErrorKind::NotFound if program.components().count() > 1 && program.exists() => {
            refusal(127, &format!("cannot start {shown}: the interpreter named in its first line is missing"))
        }
        ErrorKind::NotFound => refusal(127, &format!("cannot start {shown}: no such program")),
        _ => refusal(126, &format!("cannot start {shown}: {error}")),
    }
}

fn refusal(code: i32, why: &str) -> Exit {
    eprintln!("corro: {why}");
    Exit::Code(code)
}
