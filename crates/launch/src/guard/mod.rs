//! The small parents that every process we start gets. A *guard* sees to it that nothing of its process's tree is left when
//! the main process ends, when the launcher says so, or when the launcher dies, even by `kill -9`. Guards are forked by a
//! *warden*: the same executable, started once by a launcher with a hidden word, which stays small, so that a guard costs
//! a fork and not the start of a large program. Entered by `main` before anything else (`run`) and by the `process` room
//! through the bytes below. Never starts a thread or a runtime, never writes to stdout.
//!
//! How it works. The warden's standard input is the socket on which orders come; its end means that the launcher is gone.
//! A guard's standard input is its *life socket*; the launcher holds the only other end, so end-of-file means again that
//! the launcher is gone. On it the guard tells its id and, last of all, how its process ended; a guard that is gone without
//! that word was killed. The guard is a child subreaper: a descendant whose parent dies becomes a child of the guard,
//! however it daemonised. So "I have no children left" means "nothing is left". Guards outlive their warden.

pub(crate) mod mark;
pub(crate) mod order;
mod signals;
mod tree;

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::process::exit;

use rustix::net::{SendFlags, send};
use rustix::process::{getpid, setpgid};
use rustix::stdio::{dup2_stderr, dup2_stdin, dup2_stdout, stdin};

use crate::exit::Exit;
use order::Order;

/// On the life socket, to the guard: SIGTERM to the whole tree.
pub const TERMINATE: u8 = b'T';
/// On the life socket, to the guard: SIGKILL to the whole tree until nothing is left.
pub const KILL: u8 = b'K';

// Any other byte, to the guard: the signal of that number to the whole tree.

/// From the guard: first its id, as four bytes, then its process's end, as a kind and a number.
pub(crate) const ID_LENGTH: usize = 4;
pub(crate) const END_LENGTH: usize = 5;

/// Forks guards as ordered until the launcher is gone.
///
/// Call it first thing in `main`, while there is one thread: `if word == "guard" { guard::run() }`.
pub fn run() -> ! {
    signals::block_all();
    // Nobody waits for guards: the kernel takes them away.
    signals::ignore_child_ends();
    while let Ok(Some(order)) = order::receive(stdin()) {
        // SAFETY: there is one thread, so the child may do whatever this process may.
        match unsafe { libc::fork() } {
            0 => live(order),
            -1 => {
                let why = format!("corro: cannot guard a process: {}\n", io::Error::last_os_error());
                let _ = rustix::io::write(&order.stderr, why.as_bytes());
                tell(order.life.as_fd(), &[0; ID_LENGTH]);
                tell(order.life.as_fd(), &end_bytes(Exit::Code(126)));
            }
            _ => {}
        }
    }
    exit(0)
}

/// The life of a guard, from just after the fork.
fn live(order: Order) -> ! {
    signals::await_child_ends();
    // A group of its own; failing costs nothing but tidiness.
    let _ = setpgid(None, None);
    mark::show(&order.tag);
    // The order's own descriptors close at exec of the process, and with this guard.
    let taken =
        dup2_stdin(&order.life).and_then(|()| dup2_stdout(&order.stdout)).and_then(|()| dup2_stderr(&order.stderr));
    if taken.is_err() {
        exit(126);
    }
    tell(stdin(), &getpid().as_raw_nonzero().get().to_le_bytes());
    let end = tree::guard(order);
    tell(stdin(), &end_bytes(end));
    exit(0)
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
