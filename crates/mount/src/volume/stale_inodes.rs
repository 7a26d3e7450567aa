//! Retirement of stale inodes in writeback mode (`--write-cache`): the kernel has sizes of its own, so a closed file
//! that others have changed gets another number. `kernel_attrs` decides; this module retires the numbers and makes an
//! `open` look the name up again.

use std::sync::Mutex;
use std::time::Instant;

use super::files::Handles;
use super::{Volume, lock};
use crate::kernel_attrs::Name;
use crate::remote::{Remote, Status};

/// Why the kernel's attributes of a file must be current.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LookupReason {
    /// Its name is looked up.
    Name,
    /// It is opened by this thread, which the kernel can make look the name up again.
    Open(u32),
}

impl<R: Remote> Volume<R> {
    /// Enables writeback mode.
    pub fn with_write_cache(self) -> Volume<R> {
        Volume { kernel_attrs: Some(Mutex::default()), ..self }
    }

    pub fn has_write_cache(&self) -> bool {
        self.kernel_attrs.is_some()
    }

    /// Notes a modification by a program of this machine.
    pub(super) fn on_change(&self, inode: u64) {
        if let Some(kernel_attrs) = &self.kernel_attrs {
            lock(kernel_attrs).mark_modified(inode);
        }
    }

    /// Retires the number of a closed file whose cached attributes are stale; a new lookup gives another number. True
    /// if stale.
    pub(super) fn retire_if_stale(&self, inode: u64, status: &Status, reason: LookupReason) -> bool {
        self.kernel_attrs.is_some() && self.retire_if_stale_locked(&lock(&self.handles), inode, status, reason)
    }

    /// Like [`Self::retire_if_stale`], with all handles locked so that the file cannot be opened meanwhile.
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
        let is_stale = !handles.values().any(|handle| handle.inode == inode)
            && match reason {
                LookupReason::Name => kernel_attrs.is_stale(inode, status, now),
                LookupReason::Open(thread) => kernel_attrs.is_stale_for(thread, inode, status, now),
            };
        // Other threads that are expected to open it may not have done so yet.
        if is_stale
            && !kernel_attrs.is_awaited(inode, now)
            && let Some(name) = self.shared.inodes().detach_name(inode)
        {
            // The name exists and has no number.
            lock(&self.created_dirs).remove(&name.0);
            kernel_attrs.retire(inode, name);
        }
        is_stale
    }

    /// The name of a retired number.
    pub(super) fn retired_name(&self, inode: u64) -> Option<Name> {
        self.kernel_attrs.as_ref().and_then(|kernel_attrs| lock(kernel_attrs).retired_name(inode).cloned())
    }

    /// Expects the thread to look the name up again; returns ESTALE for its `open`.
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
