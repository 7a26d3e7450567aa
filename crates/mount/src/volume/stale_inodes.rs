//! Numbers of files where the kernel keeps what programs write (`--write-cache`): it then holds sizes of its own, so a closed file that others have
//! changed gets another number. `told` knows what the kernel holds; here numbers are left, and an `open` is sent to look again.

use std::sync::Mutex;
use std::time::Instant;

use super::files::Handles;
use super::{Volume, lock};
use crate::kernel_attrs::Name;
use crate::remote::{Remote, Status};

/// Why it matters whether the kernel holds a file as it is now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LookupReason {
    /// Its name is looked for.
    Name,
    /// It is opened, by that thread: the kernel is sent to look for its name once more.
    Open(u32),
}

impl<R: Remote> Volume<R> {
    /// The kernel keeps what programs write.
    pub fn with_write_cache(self) -> Volume<R> {
        Volume { kernel_attrs: Some(Mutex::default()), ..self }
    }

    pub fn has_write_cache(&self) -> bool {
        self.kernel_attrs.is_some()
    }

    /// A program of this machine changes it.
    pub(super) fn on_change(&self, inode: u64) {
        if let Some(kernel_attrs) = &self.kernel_attrs {
            lock(kernel_attrs).mark_modified(inode);
        }
    }

    /// The number of a closed file that is not what the kernel holds under it is left; who looks again finds another.
    pub(super) fn retire_if_stale(&self, inode: u64, status: &Status, reason: LookupReason) -> bool {
        self.kernel_attrs.is_some() && self.retire_if_stale_locked(&lock(&self.handles), inode, status, reason)
    }

    /// The same. With all handles, so that nobody opens it meanwhile.
    pub(super) fn retire_if_stale_locked(
        &self,
        handles: &Handles<R>,
        inode: u64,
        status: &Status,
        reason: LookupReason,
    ) -> bool {
        let Some(kernel_attrs) = &self.kernel_attrs else { return false };
        let (mut kernel_attrs, now) = (lock(kernel_attrs), Instant::now());
        if kernel_attrs.retired_name(inode).is_some() {
            return true;
        }
        let is_outdated = !handles.values().any(|handle| handle.inode == inode)
            && match reason {
                LookupReason::Name => kernel_attrs.is_stale(inode, status, now),
                LookupReason::Open(thread) => kernel_attrs.is_stale_for(thread, inode, status, now),
            };
        // Others who were sent to look for it may not have opened it yet.
        if is_outdated
            && !kernel_attrs.is_awaited(inode, now)
            && let Some(name) = self.shared.inodes().detach_name(inode)
        {
            // It is there, and has no number.
            lock(&self.created_dirs).remove(&name.0);
            kernel_attrs.retire(inode, name);
        }
        is_outdated
    }

    /// What this was the number of, if it was left.
    pub(super) fn retired_name(&self, inode: u64) -> Option<Name> {
        self.kernel_attrs.as_ref().and_then(|kernel_attrs| lock(kernel_attrs).retired_name(inode).cloned())
    }

    /// The `open` of a thread is told to look again.
    pub(super) fn reply_stale(&self, inode: u64, thread: u32) -> i32 {
        if let Some(kernel_attrs) = &self.kernel_attrs {
            let mut kernel_attrs = lock(kernel_attrs);
            let inodes = self.shared.inodes();
            if let Some(name) = kernel_attrs.retired_name(inode).cloned().or_else(|| inodes.name_of(inode)) {
                kernel_attrs.expect_reopen(thread, &name, inodes.find(name.0, &name.1), Instant::now());
            }
        }
        libc::ESTALE
    }
}
