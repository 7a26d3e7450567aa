//! Keeps the engine's descriptors out of forked children. A child that inherited a rank's sockets (for example a worker of PyTorch's `DataLoader`)
//! would hold them open after the rank's death, and the other ranks would never read end of file.
//!
//! Descriptors are registered in a table that a `pthread_atfork` handler walks in the child. The handler only uses atomics and `dup3`,
//! which are async-signal-safe; it never calls `shutdown`, which would end the parent's connection. Descriptors are replaced by a socket without a
//! peer instead of being closed, so that their numbers are not reused for a file which a stale owner in the child would later close.

use std::ops::Deref;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, IntoRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::Once;
use std::sync::atomic::{AtomicI32, AtomicPtr, Ordering};

/// A descriptor of this process only: in a child made by `fork` it is a socket without a peer.
#[derive(Debug)]
pub struct CloseOnFork<T> {
    // Dropped before the descriptor is closed, so that the table never names a reused descriptor.
    _entry: Entry,
    descriptor: T,
}

impl<T: AsFd> CloseOnFork<T> {
    pub fn new(descriptor: T) -> CloseOnFork<T> {
        CloseOnFork { _entry: Entry::register(descriptor.as_fd().as_raw_fd()), descriptor }
    }
}

impl<T> Deref for CloseOnFork<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.descriptor
    }
}

impl<T: AsFd> AsFd for CloseOnFork<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

/// The table slot that holds `fd`.
#[derive(Debug)]
struct Entry {
    slot: &'static AtomicI32,
    fd: RawFd,
}

impl Entry {
    fn register(fd: RawFd) -> Entry {
        install();
        let mut chunk: &'static Chunk = &TABLE;
        loop {
            let free = |slot: &&AtomicI32| {
                slot.load(Ordering::Relaxed) == FREE
                    && slot.compare_exchange(FREE, fd, Ordering::AcqRel, Ordering::Relaxed).is_ok()
            };
            if let Some(slot) = chunk.slots.iter().find(free) {
                return Entry { slot, fd };
            }
            chunk = chunk.next_or_append();
        }
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        // In a forked child the slot may already hold a descriptor of the child.
        let _ = self.slot.compare_exchange(self.fd, FREE, Ordering::AcqRel, Ordering::Relaxed);
    }
}

const FREE: i32 = -1;
const CHUNK_SLOTS: usize = 256;

/// Part of the table, a linked list. Chunks are added and never removed, so the handler walks them without a lock.
struct Chunk {
    slots: [AtomicI32; CHUNK_SLOTS],
    next: AtomicPtr<Chunk>,
}

static TABLE: Chunk = Chunk::new();
/// A socket whose peer is closed: reads end, writes fail.
static INERT: AtomicI32 = AtomicI32::new(FREE);

impl Chunk {
    const fn new() -> Chunk {
        Chunk { slots: [const { AtomicI32::new(FREE) }; CHUNK_SLOTS], next: AtomicPtr::new(std::ptr::null_mut()) }
    }

    fn next(&self) -> Option<&'static Chunk> {
        // SAFETY: the pointer is null, or a chunk that `next_or_append` leaked and that is never freed.
        unsafe { self.next.load(Ordering::Acquire).as_ref() }
    }

    fn next_or_append(&self) -> &'static Chunk {
        if let Some(next) = self.next() {
            return next;
        }
        let added = Box::into_raw(Box::new(Chunk::new()));
        let appended =
            self.next.compare_exchange(std::ptr::null_mut(), added, Ordering::AcqRel, Ordering::Acquire).is_ok();
        if !appended {
            // SAFETY: allocated above; the failed exchange published it to no other thread.
            drop(unsafe { Box::from_raw(added) });
        }
        self.next().expect("this thread or another has appended one")
    }
}

/// Registers the fork handler, once for this process and its children.
fn install() {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        if let Ok((inert, _closed)) = UnixStream::pair() {
            INERT.store(inert.into_raw_fd(), Ordering::Release);
        }
        // SAFETY: the handler is a static function and async-signal-safe. An error means that memory is exhausted; then
        // children inherit the descriptors, and a death is only noticed later.
        unsafe { libc::pthread_atfork(None, None, Some(on_fork_in_child)) };
    });
}

extern "C" fn on_fork_in_child() {
    let inert = INERT.load(Ordering::Acquire);
    let mut chunk = Some(&TABLE);
    while let Some(part) = chunk {
        for slot in &part.slots {
            let fd = slot.swap(FREE, Ordering::AcqRel);
            if fd == FREE {
                continue;
            }
            // SAFETY: `fd` is the child's copy of a descriptor that the engine had open at the fork; both calls are async-signal-safe.
            unsafe {
                if inert == FREE || libc::dup3(inert, fd, libc::O_CLOEXEC) < 0 {
                    libc::close(fd);
                }
            }
        }
        chunk = part.next();
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use super::*;

    #[test]
    fn the_table_grows_and_drops_closed_descriptors() {
        let pairs: Vec<_> = (0..CHUNK_SLOTS).map(|_| UnixStream::pair().expect("sockets")).collect();
        let held: Vec<CloseOnFork<UnixStream>> =
            pairs.into_iter().flat_map(|(one, other)| [CloseOnFork::new(one), CloseOnFork::new(other)]).collect();
        let entries = |held: &[CloseOnFork<UnixStream>]| {
            held.iter().all(|socket| socket._entry.slot.load(Ordering::Relaxed) == socket.as_raw_fd())
        };
        assert!(entries(&held));
        let slots: Vec<_> = held.iter().map(|socket| (socket._entry.slot, socket.as_raw_fd())).collect();
        drop(held);
        // Another test may have used a slot meanwhile, and even the same descriptor number.
        assert!(slots.iter().filter(|(slot, fd)| slot.load(Ordering::Relaxed) == *fd).count() < slots.len());
    }

    /// The child reports by its exit code whether the descriptor is at end of file.
    #[test]
    fn a_child_has_a_socket_without_a_peer_and_the_parent_keeps_its_own() {
        let (ours, mut theirs) = UnixStream::pair().expect("sockets");
        let ours = CloseOnFork::new(ours);
        // SAFETY: the child calls only async-signal-safe functions before `_exit`.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let mut byte = 0u8;
            // SAFETY: `recv` writes at most one byte to `byte`; both calls are async-signal-safe.
            unsafe {
                let read = libc::recv(ours.as_raw_fd(), (&raw mut byte).cast(), 1, libc::MSG_DONTWAIT);
                libc::_exit(if read == 0 { 7 } else { 1 });
            }
        }
        let mut status = 0;
        // SAFETY: waits for the child of this test.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 7, "{status}");
        (&*ours).write_all(b"x").expect("the parent's socket is open");
        let mut byte = [0];
        theirs.read_exact(&mut byte).expect("and connected");
    }
}
