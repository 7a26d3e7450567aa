//! Attributes the kernel has cached per inode in FUSE writeback mode (`--write-cache`). In this mode the kernel ignores
//! later size and mtime updates, so a file changed remotely needs a new inode number; this module decides which. Pure:
//! the time is an argument.
//!
//! An `open` of a stale inode is answered with ESTALE. The kernel then looks the name up again and opens the result,
//! exactly once. The looked-up number must therefore stay valid for that `open` even if the file has changed again in
//! between: otherwise a file that is written all the time could never be opened.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use crate::remote::Status;

/// Time within which the kernel repeats an `open` after ESTALE.
const REOPEN_WINDOW: Duration = Duration::from_secs(5);
/// Limit of names with an expected lookup; cleared when full, since programs may end before they repeat it.
const MAX_AWAITED_NAMES: usize = 1_000;

/// Parent and name.
pub type Name = (u64, String);

/// Attributes that the kernel has cached, and the lookups expected from it.
#[derive(Debug, Default)]
pub struct KernelAttrCache {
    /// Cached attributes by inode.
    by_inode: HashMap<u64, CachedAttrs>,
    /// Numbers that are no longer used although the kernel still has them, and their names.
    retired: HashMap<u64, Name>,
    /// Threads that are expected to look up these names, which have no number yet.
    awaited: HashMap<Name, Vec<u32>>,
}

#[derive(Debug)]
enum CachedAttrs {
    /// First attributes the kernel got, and the threads expected to open the inode until the given time.
    Remote { name: Name, status: Status, awaited: Vec<u32>, until: Instant },
    /// Modified by programs of this machine; the server's time of that is not known here.
    LocallyModified,
}

impl KernelAttrCache {
    /// Records attributes sent to the kernel. Attributes it already has stay.
    pub fn record(&mut self, inode: u64, name: &Name, status: &Status, now: Instant) {
        let awaited = self.awaited.remove(name).unwrap_or_default();
        let first =
            || CachedAttrs::Remote { name: name.clone(), status: status.clone(), awaited, until: now + REOPEN_WINDOW };
        self.by_inode.entry(inode).or_insert_with(first);
    }

    /// Marks the inode as modified by a program of this machine.
    pub fn mark_modified(&mut self, inode: u64) {
        self.by_inode.insert(inode, CachedAttrs::LocallyModified);
    }

    /// The kernel has forgotten the number. It does so when it learns that another number is stale, and then looks up
    /// once more, so expected threads stay expected.
    pub fn forget(&mut self, inode: u64) {
        self.retired.remove(&inode);
        if let Some(CachedAttrs::Remote { name, awaited, .. }) = self.by_inode.remove(&inode)
            && !awaited.is_empty()
        {
            self.await_name(name, awaited);
        }
    }

    fn await_name(&mut self, name: Name, threads: Vec<u32>) {
        if self.awaited.len() >= MAX_AWAITED_NAMES {
            self.awaited.clear();
        }
        self.awaited.entry(name).or_default().extend(threads);
    }

    /// Retires the number; its name will get another one.
    pub fn retire(&mut self, inode: u64, name: Name) {
        self.by_inode.remove(&inode);
        self.retired.insert(inode, name);
    }

    /// The name of a retired number.
    pub fn retired_name(&self, inode: u64) -> Option<&Name> {
        self.retired.get(&inode)
    }

    /// Expects a thread that got ESTALE to look the name up and open it. `inode` is the current number of the name.
    pub fn expect_reopen(&mut self, thread: u32, name: &Name, inode: Option<u64>, now: Instant) {
        match inode.and_then(|inode| self.by_inode.get_mut(&inode)) {
            Some(CachedAttrs::Remote { awaited, until, .. }) => {
                awaited.push(thread);
                *until = now + REOPEN_WINDOW;
            }
            // A lookup will not return this number.
            Some(CachedAttrs::LocallyModified) => {}
            None => self.await_name(name.clone(), vec![thread]),
        }
    }

    /// Whether a thread is expected to open this number.
    pub fn is_awaited(&self, inode: u64, now: Instant) -> bool {
        let cached = self.by_inode.get(&inode);
        matches!(cached, Some(CachedAttrs::Remote { awaited, until, .. }) if !awaited.is_empty() && now < *until)
    }

    /// Whether the kernel's attributes differ from the server's, as far as known, and no thread is expected to
    /// open the number.
    pub fn is_stale(&self, inode: u64, status: &Status, now: Instant) -> bool {
        match self.by_inode.get(&inode) {
            None => false,
            Some(CachedAttrs::LocallyModified) => true,
            Some(CachedAttrs::Remote { status: cached, .. }) => !cached.is_same(status) && !self.is_awaited(inode, now),
        }
    }

    /// Like [`Self::is_stale`] for the `open` of a thread. An expected thread is consumed.
    pub fn is_stale_for(&mut self, thread: u32, inode: u64, status: &Status, now: Instant) -> bool {
        match self.by_inode.get_mut(&inode) {
            None => false,
            Some(CachedAttrs::LocallyModified) => true,
            Some(CachedAttrs::Remote { status: cached, awaited, until, .. }) => {
                let position = awaited.iter().position(|other| *other == thread);
                let is_awaited = position.map(|position| awaited.swap_remove(position)).is_some() && now < *until;
                !is_awaited && !cached.is_same(status)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;
    use crate::inodes::Kind;

    fn status(length: u64, etag: &str) -> Status {
        let (kind, modified) = (Kind::File, SystemTime::UNIX_EPOCH);
        Status { kind, length, modified, etag: etag.to_owned() }
    }

    #[test]
    fn the_kernel_keeps_the_first_attributes() {
        let (mut cache, now, name) = (KernelAttrCache::default(), Instant::now(), (1, "f".to_owned()));
        assert!(!cache.is_stale(7, &status(1, "a"), now), "it was not told of it");
        cache.record(7, &name, &status(1, ""), now);
        cache.record(7, &name, &status(2, "b"), now);
        assert!(!cache.is_stale(7, &status(1, "a"), now));
        assert!(cache.is_stale(7, &status(2, "b"), now) && cache.is_stale_for(1, 7, &status(2, "b"), now));
        cache.mark_modified(7);
        cache.record(7, &name, &status(2, "b"), now);
        assert!(cache.is_stale(7, &status(2, "b"), now), "it may have been changed after it was closed here");
        cache.forget(7);
        assert!(!cache.is_stale(7, &status(2, "b"), now));
    }

    #[test]
    fn a_repeated_lookup_is_valid_for_the_expected_threads() {
        let (mut cache, now, name, changed) =
            (KernelAttrCache::default(), Instant::now(), (1, "f".to_owned()), status(2, "b"));
        cache.record(7, &name, &status(1, "a"), now);
        assert!(cache.is_stale_for(1, 7, &changed, now));
        cache.retire(7, name.clone());
        assert_eq!(cache.retired_name(7), Some(&name));
        cache.expect_reopen(1, &name, None, now);
        cache.record(8, &name, &status(1, "a"), now);
        // Another program still had the old number when the new one existed.
        cache.expect_reopen(2, &name, Some(8), now);
        assert!(!cache.is_stale(8, &changed, now), "it stays until they have come");
        assert!(cache.is_stale_for(3, 8, &changed, now), "nobody has sent this one");
        let opened = [1, 2, 1].map(|thread| cache.is_stale_for(thread, 8, &changed, now));
        assert_eq!((opened, cache.is_stale(8, &changed, now)), ([false, false, true], true));
        cache.retire(8, name.clone());
        cache.expect_reopen(1, &name, None, now);
        cache.record(9, &name, &status(1, "a"), now);
        cache.forget(9);
        cache.record(10, &name, &status(1, "a"), now);
        assert!(!cache.is_stale_for(1, 10, &changed, now), "the kernel has asked twice");
        cache.expect_reopen(1, &name, Some(10), now);
        assert!(cache.is_stale_for(1, 10, &changed, now + REOPEN_WINDOW), "that is another time");
    }
}
