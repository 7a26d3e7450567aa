//! What the kernel holds of files where it keeps what programs write (`--write-cache`). Sizes and times of a file it knows are its own then,
//! whatever it is told later. So a file that is not what the kernel holds any more gets another number, under which the kernel is told anew: this
//! here knows which do. Pure; time is told to it.
//!
//! A program that opens such a file is told that its number is stale. The kernel then looks the name up again and opens what it finds, and
//! does that once only. So what it finds is good for that `open`, though the file may have changed again between the two: of a file that
//! somebody writes all the time, nobody could open anything otherwise.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use crate::remote::Status;

/// Within this an `open` follows the look for which it has sent the kernel.
const REOPEN_WINDOW: Duration = Duration::from_secs(5);
/// Names that nobody looked up again, because the program ended before, are forgotten now and then.
const MAX_AWAITED_NAMES: usize = 1_000;

/// A name in a directory.
pub type Name = (u64, String);

#[derive(Debug, Default)]
pub struct KernelAttrCache {
    /// By inode.
    by_inode: HashMap<u64, CachedAttrs>,
    /// Numbers that are not used any more, though the kernel still has them, and what they were the numbers of.
    retired: HashMap<u64, Name>,
    /// Who looks these names up again, which have no numbers yet.
    awaited: HashMap<Name, Vec<u32>>,
}

#[derive(Debug)]
enum CachedAttrs {
    /// What it was told first, and the threads for which it was looked up again: they open it before then.
    Remote { name: Name, status: Status, awaited: Vec<u32>, until: Instant },
    /// Programs of this machine have changed it since: the server's time of that is not known here.
    LocallyModified,
}

impl KernelAttrCache {
    /// The kernel is told of it under this number; what it holds already it keeps.
    pub fn record(&mut self, inode: u64, name: &Name, status: &Status, now: Instant) {
        let awaited = self.awaited.remove(name).unwrap_or_default();
        let first =
            || CachedAttrs::Remote { name: name.clone(), status: status.clone(), awaited, until: now + REOPEN_WINDOW };
        self.by_inode.entry(inode).or_insert_with(first);
    }

    /// A program of this machine changes it.
    pub fn mark_modified(&mut self, inode: u64) {
        self.by_inode.insert(inode, CachedAttrs::LocallyModified);
    }

    /// The kernel has forgotten the number. It does so with the answer that shows it that another one is stale, and then asks once more: those who
    /// were sent are still to come.
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

    /// The number is not used any more; the name will have another.
    pub fn retire(&mut self, inode: u64, name: Name) {
        self.by_inode.remove(&inode);
        self.retired.insert(inode, name);
    }

    /// What this was the number of, if it was left.
    pub fn retired_name(&self, inode: u64) -> Option<&Name> {
        self.retired.get(&inode)
    }

    /// The `open` of a thread is told that the number it has is stale. `inode` is that of the name, if it has one.
    pub fn expect_reopen(&mut self, thread: u32, name: &Name, inode: Option<u64>, now: Instant) {
        match inode.and_then(|inode| self.by_inode.get_mut(&inode)) {
            Some(CachedAttrs::Remote { awaited, until, .. }) => {
                awaited.push(thread);
                *until = now + REOPEN_WINDOW;
            }
            // Whoever looks will not find this number.
            Some(CachedAttrs::LocallyModified) => {}
            None => self.await_name(name.clone(), vec![thread]),
        }
    }

    /// Whether somebody is about to open it who was sent to look for it.
    pub fn is_awaited(&self, inode: u64, now: Instant) -> bool {
        let cached = self.by_inode.get(&inode);
        matches!(cached, Some(CachedAttrs::Remote { awaited, until, .. }) if !awaited.is_empty() && now < *until)
    }

    /// Whether the kernel holds something else, as far as can be told, than what the server has, and nobody is about to open that.
    pub fn is_stale(&self, inode: u64, status: &Status, now: Instant) -> bool {
        match self.by_inode.get(&inode) {
            None => false,
            Some(CachedAttrs::LocallyModified) => true,
            Some(CachedAttrs::Remote { status: cached, .. }) => !cached.is_same(status) && !self.is_awaited(inode, now),
        }
    }

    /// The same, for the `open` of a thread. One that is awaited comes once.
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
    fn the_kernel_holds_what_it_was_told_first() {
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
    fn what_was_looked_up_again_is_good_for_those_who_were_sent() {
        let (mut cache, now, name, changed) =
            (KernelAttrCache::default(), Instant::now(), (1, "f".to_owned()), status(2, "b"));
        cache.record(7, &name, &status(1, "a"), now);
        assert!(cache.is_stale_for(1, 7, &changed, now));
        cache.retire(7, name.clone());
        assert_eq!(cache.retired_name(7), Some(&name));
        cache.expect_reopen(1, &name, None, now);
        cache.record(8, &name, &status(1, "a"), now);
        // Another program had the old number when the new one was there already.
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
