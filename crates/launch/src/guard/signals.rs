//! Signal masks, dispositions and the descriptor that tells of ended children. Only the guard enters here. Written on
//! `libc` because rustix offers none of this to a program that has a C library. Never installs a handler.

use std::io;
use std::mem::{MaybeUninit, zeroed};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::process::exit;
use std::ptr::{null, null_mut};

use rustix::process::{DumpableBehavior, Resource, Rlimit, set_dumpable_behavior, setrlimit};

use crate::exit::Exit;

/// Nothing the terminal or a passer-by sends may end the guard before its tree: only SIGKILL does.
pub fn block_all() {
    set_mask(&full());
    // Someone up the tree may have set SIGCHLD to "ignore", which would make every child's status vanish.
    set_default(libc::SIGCHLD);
}

/// For the child, between fork and exec: every signal at its default and none blocked.
pub fn defaults() -> io::Result<()> {
    for signal in 1..=libc::SIGRTMAX() {
        set_default(signal);
    }
    set_mask(&empty());
    Ok(())
}

/// A descriptor that becomes readable when a child has ended.
pub fn child_ends() -> io::Result<OwnedFd> {
    let mut set = empty();
    // SAFETY: `set` is an initialised signal set; signalfd only reads it and gives a new descriptor that we then own.
    unsafe {
        libc::sigaddset(&mut set, libc::SIGCHLD);
        match libc::signalfd(-1, &set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) {
            -1 => Err(io::Error::last_os_error()),
            fd => Ok(OwnedFd::from_raw_fd(fd)),
        }
    }
}

/// Makes the descriptor unreadable again. To be called before reaping, so that an end in between is told anew.
pub fn forget_child_ends(fd: BorrowedFd<'_>) {
    let mut buffer = [0u8; 1024];
    // SAFETY: the buffer is ours and as long as said; the descriptor does not block.
    while unsafe { libc::read(fd.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len()) } > 0 {}
}

/// Ends this process the way another one ended, without a second core file.
pub fn end_like(end: Exit) -> ! {
    if let Exit::Signal(signal) = end {
        // Both, because a core pattern that is a pipe does not look at the limit. Failing here costs a core file only.
        let _ = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) });
        let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
        set_default(signal);
        let mut set = full();
        // SAFETY: `set` is an initialised signal set; raise has no preconditions. Only this one signal is unblocked, as
        // others may be waiting to be delivered.
        unsafe {
            libc::sigdelset(&mut set, signal);
            set_mask(&set);
            libc::raise(signal);
        }
    }
    exit(end.shell_code())
}

fn set_default(signal: i32) {
    // SAFETY: an all-zero sigaction is SIG_DFL without flags. Fails for SIGKILL, SIGSTOP and the C library's own signals,
    // which cannot be anything but default.
    unsafe {
        let action: libc::sigaction = zeroed();
        libc::sigaction(signal, &action, null_mut());
    }
}

fn set_mask(set: &libc::sigset_t) {
    // SAFETY: `set` is an initialised signal set; there is one thread.
    unsafe {
        libc::sigprocmask(libc::SIG_SETMASK, set, null::<libc::sigset_t>().cast_mut());
    }
}

fn empty() -> libc::sigset_t {
    let mut set = MaybeUninit::uninit();
    // SAFETY: sigemptyset initialises the set.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        set.assume_init()
    }
}

fn full() -> libc::sigset_t {
    let mut set = MaybeUninit::uninit();
    // SAFETY: sigfillset initialises the set.
    unsafe {
        libc::sigfillset(set.as_mut_ptr());
        set.assume_init()
    }
}
