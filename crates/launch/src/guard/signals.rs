//! Signal masks, dispositions and a signalfd for SIGCHLD, for guards. Uses `libc`, because rustix does not offer this to programs with a C
//! library. Never installs a handler.

use std::io;
use std::mem::{MaybeUninit, zeroed};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::{null, null_mut};

/// Blocks all signals, so that only SIGKILL can end the fork server or a guard before its process tree.
pub fn block_all() {
    set_mask(&full());
}

/// Ignores SIGCHLD in the fork server, so that the kernel reaps its children.
pub fn ignore_sigchld() {
    set_action(libc::SIGCHLD, libc::SIG_IGN);
}

/// Sets every signal to its default action, for a guard and the process that it starts. They stay blocked in the guard.
pub fn reset_actions() {
    for signal in 1..=libc::SIGRTMAX() {
        set_action(signal, libc::SIG_DFL);
    }
}

/// Unblocks all signals, in a started process just before exec.
pub fn unblock_all() {
    set_mask(&empty());
}

/// A signalfd that becomes readable when a child has ended.
pub fn sigchld_fd() -> io::Result<OwnedFd> {
    let mut set = empty();
    // SAFETY: `set` is an initialised signal set, which signalfd only reads; the new descriptor is owned by nothing else.
    unsafe {
        libc::sigaddset(&mut set, libc::SIGCHLD);
        match libc::signalfd(-1, &set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) {
            -1 => Err(io::Error::last_os_error()),
            fd => Ok(OwnedFd::from_raw_fd(fd)),
        }
    }
}

/// Drains the signalfd. Call it before reaping, so that a child that ends in between is signalled again.
pub fn drain_sigchld(fd: BorrowedFd<'_>) {
    let mut buffer = [0u8; 1024];
    // SAFETY: `read` writes at most `buffer.len()` bytes to `buffer`; the descriptor is nonblocking.
    while unsafe { libc::read(fd.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len()) } > 0 {}
}

fn set_action(signal: i32, action: libc::sighandler_t) {
    // SAFETY: an all-zero sigaction has no flags and an empty mask; callers pass only SIG_DFL and SIG_IGN. Fails
    // for SIGKILL, SIGSTOP and the C library's own signals, whose action cannot be changed.
    unsafe {
        let mut new: libc::sigaction = zeroed();
        new.sa_sigaction = action;
        libc::sigaction(signal, &new, null_mut());
    }
}

fn set_mask(set: &libc::sigset_t) {
    // SAFETY: `set` is an initialised signal set; this process has one thread.
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
