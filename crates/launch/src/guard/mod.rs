//! The small parent that every process we start gets: the same executable, started again with a hidden word. It sees to
//! it that nothing of the process tree is left when the main process ends, when the launcher says so, or when the
//! launcher dies, even by `kill -9`. Entered by `main` before anything else (`run`) and by the `process` room through the
//! bytes below. Never starts a thread or a runtime, never writes to stdout, never allocates between fork and exec.
//!
//! How it works. Standard input is the *life pipe*; the launcher holds the only write end, so end-of-file means that the
//! launcher is gone. The guard is a child subreaper: a descendant whose parent dies becomes a child of the guard, however
//! it daemonised. So "I have no children left" means "nothing is left".

mod signals;

use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio, exit};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitOptions, WaitStatus, getpid, getppid, ioctl_tiocsctty, kill_process, set_child_subreaper,
    set_parent_process_death_signal, setsid, wait,
};

use crate::exit::Exit;
use crate::procfs;
use crate::sweep::{TAG_VARIABLE, sweep_exactly};

/// On the life pipe: SIGTERM to the whole tree.
pub const TERMINATE: u8 = b'T';
/// On the life pipe: SIGKILL to the whole tree until nothing is left.
pub const KILL: u8 = b'K';

/// Before the command, with a number behind it: it reads from that descriptor of the guard instead of nothing.
pub const WITH_INPUT: &str = "--with-input=";
/// Before the command: the guard's standard output is a terminal, which becomes the command's own.
pub const WITH_TERMINAL: &str = "--with-terminal";

/// A process in uninterruptible sleep, or one that changed its owner, cannot be killed now; the job must still end.
const GIVE_UP_AFTER: Duration = Duration::from_secs(10);

/// Runs the command in `args` (a leading `--` is skipped) and ends exactly as it ended.
///
/// Call it first thing in `main`, while there is one thread:
/// `if args.next() == Some("guard".into()) { guard::run(args) }`.
pub fn run(args: impl Iterator<Item = OsString>) -> ! {
    signals::block_all();
    let argv: Vec<OsString> = args.collect();
    let argv = match argv.first() {
        Some(first) if first == "--" => &argv[1..],
        _ => &argv[..],
    };
    let guarded = signals::child_ends().and_then(|child_ends| {
        set_child_subreaper(Some(getpid()))?;
        Ok(child_ends)
    });
    let child_ends = match guarded {
        Ok(child_ends) => child_ends,
        Err(error) => refuse(126, &format!("cannot guard a process: {error}")),
    };
    let (input, argv) = input_of(argv);
    let mut tree = Tree { main: start(argv, input), child_ends, main_exit: None };
    let launcher_alive = tree.watch();
    tree.end();
    match tree.main_exit {
        Some(exit) if launcher_alive => signals::end_like(exit),
        _ => exit(128 + libc::SIGKILL),
    }
}

/// The process tree below this guard.
struct Tree {
    main: Pid,
    child_ends: OwnedFd,
    main_exit: Option<Exit>,
}

impl Tree {
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

    /// Kills and reaps until this guard has no children.
    fn end(&mut self) {
        let deadline = Instant::now() + GIVE_UP_AFTER;
        let mut pause = Duration::from_millis(1);
        loop {
            self.signal(Signal::KILL);
            if !self.reap() {
                return;
            }
            if Instant::now() > deadline {
                if let Ok(tag) = std::env::var(TAG_VARIABLE) {
                    sweep_exactly(&tag);
                }
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

/// What the command reads, and the rest of the words.
fn input_of(argv: &[OsString]) -> (Input, &[OsString]) {
    let word = argv.first().and_then(|word| word.to_str()).unwrap_or_default();
    if word == WITH_TERMINAL {
        return (Input::Terminal, &argv[1..]);
    }
    match word.strip_prefix(WITH_INPUT).and_then(|number| number.parse().ok()) {
        Some(number) => (Input::Pipe(number), &argv[1..]),
        None => (Input::Nothing, argv),
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Input {
    Nothing,
    Pipe(i32),
    Terminal,
}

impl Input {
    fn open(self) -> std::io::Result<Stdio> {
        Ok(match self {
            Input::Nothing => Stdio::null(),
            // SAFETY: the launcher left it open for us alone; nobody else in this process knows the number.
            Input::Pipe(number) => unsafe {
                let pipe = OwnedFd::from_raw_fd(number);
                rustix::io::fcntl_setfd(&pipe, rustix::io::FdFlags::CLOEXEC)?;
                pipe.into()
            },
            Input::Terminal => rustix::stdio::stdout().try_clone_to_owned()?.into(),
        })
    }
}

fn start(argv: &[OsString], input: Input) -> Pid {
    let Some((program, arguments)) = argv.split_first() else {
        refuse(126, "cannot start a process: the command is empty");
    };
    let guard = getpid();
    let mut command = Command::new(program);
    let stdin = input.open().unwrap_or_else(|error| refuse(126, &format!("cannot give a process its input: {error}")));
    command.args(arguments).stdin(stdin);
    // SAFETY: runs between fork and exec of a single-threaded process and makes system calls only.
    unsafe {
        command.pre_exec(move || {
            // Its own session: no terminal may stop it, signal it or be read by it.
            setsid()?;
            if input == Input::Terminal {
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
        Ok(child) => i32::try_from(child.id())
            .ok()
            .and_then(Pid::from_raw)
            .expect("the kernel gives positive ids that fit in i32"),
        Err(error) => {
            let shown = Path::new(program).display();
            match error.kind() {
                ErrorKind::NotFound if Path::new(program).components().count() > 1 && Path::new(program).exists() => {
                    refuse(127, &format!("cannot start {shown}: the interpreter named in its first line is missing"))
                }
                ErrorKind::NotFound => refuse(127, &format!("cannot start {shown}: no such program")),
                _ => refuse(126, &format!("cannot start {shown}: {error}")),
            }
        }
    }
}

fn refuse(code: i32, why: &str) -> ! {
    eprintln!("corro: {why}");
    exit(code)
}
