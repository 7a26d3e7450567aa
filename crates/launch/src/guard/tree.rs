//! One guard at work: starts its process, waits for its end or for an order, and ends whatever is left of the tree. Only
//! `guard` enters here, in a process that was just forked. Never starts a thread, never allocates between fork and exec.

use std::ffi::OsString;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitOptions, WaitStatus, getpid, getppid, ioctl_tiocsctty, kill_process, set_child_subreaper,
    set_parent_process_death_signal, setsid, wait,
};

use super::order::{Input, Order};
use super::{KILL, TERMINATE, signals};
use crate::exit::Exit;
use crate::procfs;
use crate::sweep::{TAG_VARIABLE, sweep_exactly};

/// A process in uninterruptible sleep, or one that changed its owner, cannot be killed now; the job must still end.
const GIVE_UP_AFTER: Duration = Duration::from_secs(10);

/// Guards the ordered process to its end. Standard input is the life socket; standard error is the process's.
pub fn guard(mut order: Order) -> Exit {
    let guarded = signals::child_ends().and_then(|child_ends| {
        set_child_subreaper(Some(getpid()))?;
        Ok(child_ends)
    });
    let started = guarded.map_err(|error| refusal(126, &format!("cannot guard a process: {error}")));
    let started = started.and_then(|child_ends| Ok((child_ends, start(&mut order)?)));
    let (child_ends, main) = match started {
        Ok(started) => started,
        Err(exit) => return exit,
    };
    let mut tree = Tree { main, child_ends, main_exit: None, tag: &order.tag };
    let wanted = tree.watch();
    tree.end();
    tree.main_exit.filter(|_| wanted).unwrap_or(Exit::Signal(libc::SIGKILL))
}

/// The process tree below this guard.
struct Tree<'a> {
    main: Pid,
    child_ends: OwnedFd,
    main_exit: Option<Exit>,
    tag: &'a OsString,
}

impl Tree<'_> {
    /// Returns when the tree has to end; false if that is because the launcher is gone.
    fn watch(&mut self) -> bool {
        loop {
            let mut fds = [
                PollFd::from_borrowed_fd(rustix::stdio::stdin(), PollFlags::IN),
                PollFd::new(&self.child_ends, PollFlags::IN),
            ];
            match poll(&mut fds, None) {
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
    /// whom to kill the whole process table has to be read.
    fn end(&mut self) {
        let deadline = Instant::now() + GIVE_UP_AFTER;
        let mut pause = Duration::from_millis(1);
        while self.reap() {
            self.signal(Signal::KILL);
            if Instant::now() > deadline {
                sweep_exactly(&self.tag.to_string_lossy());
                let left = procfs::descendants(getpid().as_raw_nonzero().get());
                eprintln!("corro: these processes could not be killed: {left:?}");
                return;
            }
            let mut fds = [PollFd::new(&self.child_ends, PollFlags::IN)];
            let timeout = Timespec::try_from(pause).expect("a pause of milliseconds fits");
            // Whatever poll says, the next round looks for itself.
            let _ = poll(&mut fds, Some(&timeout));
            pause = (pause * 2).min(Duration::from_millis(50));
        }
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
fn start(order: &mut Order) -> Result<Pid, Exit> {
    let Some((program, arguments)) = order.argv.split_first() else {
        return Err(refusal(126, "cannot start a process: the command is empty"));
    };
    let (input, guard) = (std::mem::replace(&mut order.input, Input::Nothing), getpid());
    let has_terminal = matches!(input, Input::Terminal);
    let stdin = match input {
        Input::Nothing => Ok(Stdio::null()),
        Input::Pipe(pipe) => Ok(pipe.into()),
        Input::Terminal => order.stdout.try_clone().map(Stdio::from),
    };
    let stdin = stdin.map_err(|error| refusal(126, &format!("cannot give a process its input: {error}")))?;
    let mut command = Command::new(program);
    command.args(arguments).current_dir(&order.cwd).stdin(stdin);
    command.env_clear().envs(order.env.iter().map(|(name, value)| (name, value))).env(TAG_VARIABLE, &order.tag);
    // SAFETY: runs between fork and exec of a single-threaded process and makes system calls only.
    unsafe {
        command.pre_exec(move || {
            // Its own session: no terminal may stop it, signal it or be read by it.
            setsid()?;
            if has_terminal {
                // Unless it was given one.
                ioctl_tiocsctty(rustix::stdio::stdin())?;
            }
            set_parent_process_death_signal(Some(Signal::KILL))?;
            // The guard may have been killed before the line above took effect.
            if getppid() != Some(guard) {
                return Err(Errno::SRCH.into());
            }
            signals::defaults()
        });
    }
    match command.spawn() {
        Ok(child) => Ok(i32::try_from(child.id())
            .ok()
            .and_then(Pid::from_raw)
            .expect("the kernel gives positive ids that fit in i32")),
        Err(error) => Err(not_started(Path::new(program), &error)),
    }
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
