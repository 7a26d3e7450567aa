//! Numbers of files where the kernel keeps what programs write (`--write-cache`): it then holds sizes of its own, so a closed file that others have
//! changed gets another number. `told` knows what the kernel holds; here numbers are left, and an `open` is sent to look again.

use std::sync::Mutex;
use std::time::Instant;

use super::files::Handles;
use super::{Volume, lock};
use crate::remote::{Remote, Status};
use crate::told::Name;

/// Why it matters whether the kernel holds a file as it is now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    /// Its name is looked for.
    Name,
    /// It is opened, by that thread: the kernel is sent to look for its name once more.
    Open(u32),
}

impl<R: Remote> Volume<R> {
    /// The kernel keeps what programs write.
    pub fn with_write_cache(self) -> Volume<R> {
        Volume { told: Some(Mutex::default()), ..self }
    }

    pub fn has_write_cache(&self) -> bool {
        self.told.is_some()
    }

    /// A program of this machine changes it.
    pub(super) fn on_change(&self, inode: u64) {
        if let Some(told) = &self.told {
            lock(told).change(inode);
        }
    }

    /// The number of a closed file that is not what the kernel holds under it is left; who looks again finds another.
    pub(super) fn leave_outdated(&self, inode: u64, status: &Status, asked: Asked) -> bool {
        self.told.is_some() && self.leave_outdated_of(&lock(&self.handles), inode, status, asked)
    }

    /// The same. With all handles, so that nobody opens it meanwhile.
    pub(super) fn leave_outdated_of(&self, handles: &Handles<R>, inode: u64, status: &Status, asked: Asked) -> bool {
        let Some(told) = &self.told else { return false };
        let (mut told, now) = (lock(told), Instant::now());
        if told.left(inode).is_some() {
            return true;
        }
        let is_outdated = !handles.values().any(|handle| handle.inode == inode)
            && match asked {
                Asked::Name => told.is_outdated(inode, status, now),
                Asked::Open(thread) => told.is_outdated_for(thread, inode, status, now),
            };
        // Others who were sent to look for it may not have opened it yet.
        if is_outdated
            && !told.is_awaited(inode, now)
            && let Some(name) = self.shared.inodes().leave_place(inode)
        {
            // It is there, and has no number.
            lock(&self.made).remove(&name.0);
            told.leave(inode, name);
        }
        is_outdated
    }

    /// What this was the number of, if it was left.
    pub(super) fn left(&self, inode: u64) -> Option<Name> {
        self.told.as_ref().and_then(|told| lock(told).left(inode).cloned())
    }

    /// The `open` of a thread is told to look again.
    pub(super) fn send_again(&self, inode: u64, thread: u32) -> i32 {
        if let Some(told) = &self.told {
            let mut told = lock(told);
            let inodes = self.shared.inodes();
            if let Some(name) = told.left(inode).cloned().or_else(|| inodes.place(inode)) {
                told.send(thread, &name, inodes.find(name.0, &name.1), Instant::now());
            }
        }
        libc::ESTALE
    }
}
