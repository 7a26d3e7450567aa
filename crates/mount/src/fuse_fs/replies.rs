//! Replies: an entry, attributes, capacity, or nothing but success; each or an error number.

use fuser::{Generation, ReplyAttr, ReplyEmpty, ReplyEntry, ReplyStatfs};

use super::FuseFs;
use super::translate::errno;
use crate::attr_cache::ATTR_TTL;
use crate::remote::{Remote, SpaceInfo, Status};
use crate::volume::Lookup;

/// Capacity reported by `statfs` for a share without a quota: the service's own limit.
const DEFAULT_CAPACITY_BYTES: u64 = 5 << 40;
const BLOCK_BYTES: u32 = 4096;
/// Inode numbers are never reused, so they need no generation.
pub(super) const GENERATION: Generation = Generation(0);

impl<R: Remote> FuseFs<R> {
    pub(super) fn reply_entry(&self, found: Result<Lookup, i32>, reply: ReplyEntry) {
        match found {
            Ok(found) => reply.entry(&ATTR_TTL, &self.attributes(found.inode, &found.status), GENERATION),
            Err(number) => reply.error(errno(number)),
        }
    }

    pub(super) fn reply_attr(&self, inode: u64, status: Result<Status, i32>, reply: ReplyAttr) {
        match status {
            Ok(status) => reply.attr(&ATTR_TTL, &self.attributes(inode, &status)),
            Err(number) => reply.error(errno(number)),
        }
    }
}

pub(super) fn reply_empty(result: Result<(), i32>, reply: ReplyEmpty) {
    match result {
        Ok(()) => reply.ok(),
        Err(number) => reply.error(errno(number)),
    }
}

pub(super) fn reply_space(space: Result<SpaceInfo, i32>, reply: ReplyStatfs) {
    match space {
        Ok(space) => {
            let total = space.quota.unwrap_or(DEFAULT_CAPACITY_BYTES).max(space.used) / u64::from(BLOCK_BYTES);
            let free = total - space.used.div_ceil(u64::from(BLOCK_BYTES)).min(total);
            reply.statfs(total, free, free, 0, 0, BLOCK_BYTES, 255, BLOCK_BYTES);
        }
        Err(number) => reply.error(errno(number)),
    }
}
