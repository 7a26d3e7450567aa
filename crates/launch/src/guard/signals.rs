//! Signal masks, dispositions and the descriptor that tells of ended children. Only the guard enters here. Written on
//! `libc` because rustix offers none of this to a program that has a C library. Never installs a handler.

use std::io;
use std::mem::{MaybeUninit, zeroed};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::{null, null_mut};

/// Nothing the terminal or a passer-by sends may end the warden or a guard before its tree: only SIGKILL does.
pub fn block_all() {
    set_mask(&full());
}

/// For the warden: its children leave no zombies.
pub fn ignore_child_ends() {
    set_action(libc::SIGCHLD, libc::SIG_IGN);
}

/// For a guard, and so for the process it starts: every signal at its default. They stay blocked in the guard.
pub fn defaults() {
    for signal in 1..=libc::SIGRTMAX() {
        set_action(signal, libc::SIG_DFL);
    }
}

/// For the process that a guard starts, just before it becomes another program.
pub fn unblock_all() {
    set_mask(&empty());
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

fn set_action(signal: i32, action: libc::sighandler_t) {
    // SAFETY: an all-zero sigaction has no flags and no mask; the actions used here are the two that call nothing. Fails
    // for SIGKILL, SIGSTOP and the C library's own signals, which cannot be anything but default.
    unsafe {
        let mut new: libc::sigaction = zeroed();
        new.sa_sigaction = action;
        libc::sigaction(signal, &new, null_mut());
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
