//! The small parents that every process we start gets. A *guard* sees to it that nothing of its process's tree is left when
//! the main process ends, when the launcher says so, when the launcher dies, even by `kill -9`, or when the time is up that a launcher
//! has set for the case that it freezes (`lease`). Guards are forked by a
//! *warden*: the same executable, started once by a launcher with a hidden word, which stays small, so that a guard costs
//! a fork and not the start of a large program. A guard of whose process nothing is left rests and takes the next order:
//! then it costs nothing. Entered by `main` before anything else (`run`) and by the `process` room
//! through the bytes below. Never starts a thread or a runtime, never writes to stdout.
//!
//! How it works. The warden's standard input is the socket on which orders come; its end means that the launcher is gone.
//! A guard's standard input is its *life socket*; the launcher holds the only other end, so end-of-file means again that
//! the launcher is gone. On it the guard tells its id and, last of all, how its process ended; a guard that is gone without
//! that word was killed. The guard is a child subreaper: a descendant whose parent dies becomes a child of the guard,
//! however it daemonised. So "I have no children left" means "nothing is left". Guards outlive their warden, unless they rest.

mod crew;
pub(crate) mod mark;
pub(crate) mod order;
mod signals;
mod start;
mod tree;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{Mode, OFlags, open};
use rustix::net::{SendFlags, send};
use rustix::process::{getpid, setpgid};
use rustix::stdio::{dup2_stderr, dup2_stdin, dup2_stdout, stdin};

use crate::exit::Exit;
use crate::lease::Watched;
use crew::{Crew, Forked, RESTING};
use mark::Mark;
use order::{Order, Packet};

/// On the life socket, to the guard: SIGTERM to the whole tree.
pub const TERMINATE: u8 = b'T';
/// On the life socket, to the guard: SIGKILL to the whole tree until nothing is left.
pub const KILL: u8 = b'K';

// Any other byte, to the guard: the signal of that number to the whole tree.

/// From the guard: first its id, as four bytes, then its process's end, as a kind and a number.
pub(crate) const ID_LENGTH: usize = 4;
pub(crate) const END_LENGTH: usize = 5;

/// Has guards do what is ordered until the launcher is gone.
///
/// Call it first thing in `main`, while there is one thread: `if word == "guard" { guard::run() }`.
pub fn run() -> ! {
    signals::block_all();
    // Nobody waits for guards: the kernel takes them away.
    signals::ignore_child_ends();
    let (mark, lease) = (Mark::find(), Watched::take());
    let mut crew = Crew::default();
    while let Ok(Some(packet)) = order::receive(stdin()) {
        if crew.has_done(&packet) {
            continue;
        }
        match crew.fork() {
            Ok(Forked::Warden) => {}
            Ok(Forked::Guard(line)) => {
                drop(crew);
                live(packet, &line, mark.as_ref(), &lease);
            }
            Err(error) => refuse(packet, &error),
        }
    }
    leave()
}

/// The life of a guard, from just after the fork: one order after another, until nobody is left to give any.
fn live(first: Packet, line: &OwnedFd, mark: Option<&Mark>, lease: &Watched) -> ! {
    signals::defaults();
    // A group of its own; failing costs nothing but tidiness.
    let _ = setpgid(None, None);
    let mut next = Some(first);
    while let Some(packet) = next {
        let Ok(order) = packet.open() else { break };
        if !serve(order, mark, lease) {
            break;
        }
        if let Some(mark) = mark {
            mark.show(mark::BLANK.as_bytes());
        }
        tell(line.as_fd(), &[RESTING]);
        next = order::receive(line.as_fd()).ok().flatten();
    }
    leave()
}

/// One order; true if the guard is then as good as new. Nobody hears of its end before everything of it is closed here.
fn serve(order: Order, mark: Option<&Mark>, lease: &Watched) -> bool {
    if let Some(mark) = mark {
        mark.show(order.tag.as_bytes());
    }
    // The order's own descriptors close when the process becomes another program, and below.
    let taken =
        dup2_stdin(&order.life).and_then(|()| dup2_stdout(&order.stdout)).and_then(|()| dup2_stderr(&order.stderr));
    if taken.is_err() {
        return false;
    }
    tell(stdin(), &getpid().as_raw_nonzero().get().to_le_bytes());
    let (end, nothing_left) = tree::guard(&order, lease);
    tell(stdin(), &end_bytes(end));
    drop(order);
    nothing_left && hold_nothing().is_ok()
}

/// Lets go of the life socket and the process's output.
fn hold_nothing() -> rustix::io::Result<()> {
    let null = open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    dup2_stdin(&null).and_then(|()| dup2_stdout(&null)).and_then(|()| dup2_stderr(&null))
}

fn refuse(packet: Packet, why: &io::Error) {
    let Ok(order) = packet.open() else { return };
    let why = format!("corro: cannot guard a process: {why}\n");
    let _ = rustix::io::write(&order.stderr, why.as_bytes());
    tell(order.life.as_fd(), &[0; ID_LENGTH]);
    tell(order.life.as_fd(), &end_bytes(Exit::Code(126)));
}

/// Without what a program does at its end: there is nothing to flush and nothing to free.
fn leave() -> ! {
    // SAFETY: ends this process; nothing of it is used after.
    unsafe { libc::_exit(0) }
}

/// A launcher that is gone does not need to know.
fn tell(life: BorrowedFd<'_>, bytes: &[u8]) {
    let _ = send(life, bytes, SendFlags::NOSIGNAL);
}

fn end_bytes(end: Exit) -> [u8; END_LENGTH] {
    let (kind, number) = match end {
        Exit::Code(code) => (b'C', code),
        Exit::Signal(signal) => (b'S', signal),
    };
    let [a, b, c, d] = number.to_le_bytes();
    [kind, a, b, c, d]
}

/// Reads what `end_bytes` made; `None` for anything else.
pub(crate) fn end_of(bytes: &[u8]) -> Option<Exit> {
    let [kind, a, b, c, d] = *bytes else { return None };
    let number = i32::from_le_bytes([a, b, c, d]);
    match kind {
        b'C' => Some(Exit::Code(number)),
        b'S' => Some(Exit::Signal(number)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_survive_the_socket() {
        for end in [Exit::Code(0), Exit::Code(255), Exit::Signal(9)] {
            assert_eq!(end_of(&end_bytes(end)), Some(end));
        }
        assert_eq!(end_of(b"X\0\0\0\0"), None);
        assert_eq!(end_of(b""), None);
    }
}
