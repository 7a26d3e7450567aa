//! Cache of attributes by inode. Pure: the time is an argument.
//!
//! Consistency is close-to-open: an `open` always asks the server, so a program that opens a file sees everything
//! written by those who closed it before. In between, attributes are valid for a second, as in other network file
//! systems.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use crate::remote::Status;

/// Lifetime of attributes and names, here and in the kernel.
pub const ATTR_TTL: Duration = Duration::from_secs(1);
/// Limit of the cache; more than a page of a large listing. Expired entries are removed first.
const MAX_ENTRIES: usize = 20_000;

/// Attributes by inode, with the time at which they were received.
#[derive(Debug, Default)]
pub struct AttrCache {
    entries: HashMap<u64, (Status, Instant)>,
}

impl AttrCache {
    pub fn get_fresh(&self, inode: u64, now: Instant) -> Option<&Status> {
        let (status, at) = self.entries.get(&inode)?;
        (now.saturating_duration_since(*at) < ATTR_TTL).then_some(status)
    }

    /// The attributes even if they have expired.
    pub fn get_any(&self, inode: u64) -> Option<&Status> {
        self.entries.get(&inode).map(|(status, _)| status)
    }

    pub fn insert(&mut self, inode: u64, status: Status, now: Instant) {
        if self.entries.len() >= MAX_ENTRIES {
            self.entries.retain(|_, (_, at)| now.saturating_duration_since(*at) < ATTR_TTL);
            if self.entries.len() >= MAX_ENTRIES {
                self.entries.clear();
            }
        }
        self.entries.insert(inode, (status, now));
    }

    pub fn remove(&mut self, inode: u64) {
        self.entries.remove(&inode);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inodes::Kind;

    #[test]
    fn attributes_expire_after_their_ttl() {
        let (mut attrs, now) = (AttrCache::default(), Instant::now());
        let status = Status { kind: Kind::File, length: 3, modified: std::time::UNIX_EPOCH, etag: "e".into() };
        attrs.insert(5, status.clone(), now);
        assert_eq!(attrs.get_fresh(5, now + ATTR_TTL / 2), Some(&status));
        assert_eq!(attrs.get_fresh(5, now + ATTR_TTL), None);
        assert_eq!(attrs.get_any(5), Some(&status));
        for inode in 0..2 * MAX_ENTRIES as u64 {
            attrs.insert(inode, status.clone(), now);
        }
        assert!(attrs.entries.len() <= MAX_ENTRIES);
        attrs.remove(7);
        assert!(attrs.get_any(7).is_none());
    }
}
