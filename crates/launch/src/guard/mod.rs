//! Guards and the fork server. A *guard* is the parent of one started process. It kills the whole process tree when
//! the main process ends, when the launcher says so, when the launcher dies, even by `kill -9`, or at the deadline that a launcher
//! sets for the case that it freezes (`supervisor_deadline`). Guards are forked by a *fork server*: the same executable, started once by a launcher with
//! a hidden argument, which stays small, so that a guard costs a fork and not the start of a large program. A guard whose process tree has ended
//! becomes idle and is reused. Never starts a thread or a runtime, never writes to stdout.
//!
//! Protocol. The fork server's standard input is the socket for requests; its end of file means that the launcher has ended.
//! A guard's standard input is its *life socket*. The launcher holds the only other end, so end of file means again that
//! the launcher has ended. The guard sends its pid on it and, at the end, the exit status of its process; a guard that ends without
//! an exit status was killed. The guard is a child subreaper: a descendant whose parent dies becomes a child of the guard,
//! however it daemonised. So when the guard has no children, nothing of the tree is left. Busy guards outlive their fork server, idle ones do not.

mod guard_pool;
pub(crate) mod proc_tag;
mod signals;
pub(crate) mod spawn_request;
mod supervise;
mod vfork_exec;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{Mode, OFlags, open};
use rustix::net::{SendFlags, send};
use rustix::process::{getpid, setpgid};
use rustix::stdio::{dup2_stderr, dup2_stdin, dup2_stdout, stdin};

use crate::exit::Exit;
use crate::supervisor_deadline::DeadlineReader;
use guard_pool::{ForkSide, GuardPool, IDLE};
use proc_tag::ProcTag;
use spawn_request::{RawRequest, SpawnRequest};

/// Command to the guard: send SIGTERM to the whole tree.
pub const TERMINATE: u8 = b'T';
/// Command to the guard: send SIGKILL to the whole tree until nothing is left.
pub const KILL: u8 = b'K';

// Any other byte is a command to send the signal with that number to the whole tree.

/// Messages of the guard: its pid in four bytes, later the exit of its process as a kind and a number.
pub(crate) const ID_LENGTH: usize = 4;
pub(crate) const END_LENGTH: usize = 5;

/// Runs the fork server until the launcher has ended.
///
/// Call it first in `main`, while there is one thread: `if argument == "guard" { guard::run() }`.
pub fn run() -> ! {
    signals::block_all();
    // Guards are not waited for; the kernel reaps them.
    signals::ignore_sigchld();
    let (tag, deadline) = (ProcTag::find(), DeadlineReader::take_from_stdout());
    let mut guard_pool = GuardPool::default();
    while let Ok(Some(raw)) = spawn_request::receive(stdin()) {
        if guard_pool.assign(&raw) {
            continue;
        }
        match guard_pool.fork() {
            Ok(ForkSide::Parent) => {}
            Ok(ForkSide::Guard(socket)) => {
                drop(guard_pool);
                run_guard(raw, &socket, tag.as_ref(), &deadline);
            }
            Err(error) => reject(raw, &error),
        }
    }
    exit_now()
}

/// Main loop of a guard, from just after the fork: serves requests until its fork server has ended.
fn run_guard(first: RawRequest, fork_server: &OwnedFd, tag: Option<&ProcTag>, deadline: &DeadlineReader) -> ! {
    signals::reset_actions();
    // A process group of its own. A failure has no consequences.
    let _ = setpgid(None, None);
    let mut next = Some(first);
    while let Some(raw) = next {
        let Ok(request) = raw.decode() else { break };
        if !serve(request, tag, deadline) {
            break;
        }
        send_message(fork_server.as_fd(), &[IDLE]);
        next = spawn_request::receive(fork_server.as_fd()).ok().flatten();
    }
    exit_now()
}

/// Serves one request, and closes all its descriptors; true if the guard can be reused.
fn serve(request: SpawnRequest, tag: Option<&ProcTag>, deadline: &DeadlineReader) -> bool {
    if let Some(tag) = tag {
        tag.write(request.tag.as_bytes());
    }
    // The other descriptors of the request are closed at exec in the process, and below in the guard.
    let redirected = dup2_stdin(&request.life)
        .and_then(|()| dup2_stdout(&request.stdout))
        .and_then(|()| dup2_stderr(&request.stderr));
    if redirected.is_err() {
        return false;
    }
    send_message(stdin(), &getpid().as_raw_nonzero().get().to_le_bytes());
    let (exit, is_clean) = supervise::run(&request, deadline);
    // Before the exit is reported: whoever learns of it finds nothing with the tag any more.
    if let Some(tag) = tag.filter(|_| is_clean) {
        tag.write(proc_tag::BLANK_TAG.as_bytes());
    }
    send_message(stdin(), &encode_exit(exit));
    drop(request);
    is_clean && release_stdio().is_ok()
}

/// Replaces the life socket and the process's output by `/dev/null`.
fn release_stdio() -> rustix::io::Result<()> {
    let null = open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    dup2_stdin(&null).and_then(|()| dup2_stdout(&null)).and_then(|()| dup2_stderr(&null))
}

fn reject(raw: RawRequest, error: &io::Error) {
    let Ok(request) = raw.decode() else { return };
    let message = format!("corro: cannot guard a process: {error}\n");
    let _ = rustix::io::write(&request.stderr, message.as_bytes());
    send_message(request.life.as_fd(), &[0; ID_LENGTH]);
    send_message(request.life.as_fd(), &encode_exit(Exit::Code(126)));
}

/// Exits without destructors or flushing, for which there is nothing.
fn exit_now() -> ! {
    // SAFETY: `_exit` ends this process and does not return.
    unsafe { libc::_exit(0) }
}

/// Sends a message. Errors are ignored: the launcher has ended then.
fn send_message(socket: BorrowedFd<'_>, bytes: &[u8]) {
    let _ = send(socket, bytes, SendFlags::NOSIGNAL);
}

fn encode_exit(exit: Exit) -> [u8; END_LENGTH] {
    let (kind, number) = match exit {
        Exit::Code(code) => (b'C', code),
        Exit::Signal(signal) => (b'S', signal),
    };
    let [a, b, c, d] = number.to_le_bytes();
    [kind, a, b, c, d]
}

/// Decodes [`encode_exit`]; `None` for anything else.
pub(crate) fn decode_exit(bytes: &[u8]) -> Option<Exit> {
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
    fn exits_round_trip() {
        for exit in [Exit::Code(0), Exit::Code(255), Exit::Signal(9)] {
            assert_eq!(decode_exit(&encode_exit(exit)), Some(exit));
        }
        assert_eq!(decode_exit(b"X\0\0\0\0"), None);
        assert_eq!(decode_exit(b""), None);
    }
}
