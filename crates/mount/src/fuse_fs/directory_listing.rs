//! `readdir` and `readdirplus`. Offsets 1 and 2 are `.` and `..`; the share's entries follow.

use std::time::{Duration, SystemTime};

use fuser::{FileHandle, FileType, INodeNo, ReplyDirectory, ReplyDirectoryPlus};

use super::FuseFs;
use super::replies::GENERATION;
use super::translate::errno;
use crate::attr_cache::ATTR_TTL;
use crate::inodes::Kind;
use crate::remote::{Remote, Status};
use crate::volume::Volume;

/// Limit of entries in one `readdir` answer.
const MAX_READDIR_ENTRIES: usize = 200;

impl<R: Remote> FuseFs<R> {
    /// Names and kinds.
    pub(super) fn list(&self, inode: INodeNo, handle: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        for (at, name) in (offset..2).zip([".", ".."].into_iter().skip(offset as usize)) {
            let known = if at == 0 { inode.0 } else { self.volume.parent(inode.0) };
            let _ = reply.add(INodeNo(known), at + 1, FileType::Directory, name);
        }
        let start = offset.saturating_sub(2);
        match self.block_on(self.volume.entries(inode.0, handle.0, start as usize, MAX_READDIR_ENTRIES)) {
            Ok(entries) => {
                for (at, entry) in (start + 3..).zip(entries) {
                    let kind = self.attributes(0, &entry.status).kind;
                    // The inode is only a hint here, and must not be 0.
                    if !Volume::<R>::is_hidden(&entry.name) && reply.add(INodeNo(u64::MAX), at, kind, &entry.name) {
                        break;
                    }
                }
                reply.ok();
            }
            Err(number) => reply.error(errno(number)),
        }
    }

    /// Names with inodes and attributes, each of which counts as a lookup.
    pub(super) fn list_with_attributes(
        &self,
        inode: INodeNo,
        handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        for (at, name) in (offset..2).zip([".", ".."].into_iter().skip(offset as usize)) {
            let known = if at == 0 { inode.0 } else { self.volume.parent(inode.0) };
            let status =
                Status { kind: Kind::Directory, length: 0, modified: SystemTime::UNIX_EPOCH, etag: String::new() };
            // For these two the kernel uses only the inode.
            let attributes = self.attributes(known, &status);
            reply.add(INodeNo(known), at + 1, name, &Duration::ZERO, &attributes, GENERATION);
        }
        let start = offset.saturating_sub(2);
        match self.block_on(self.volume.entries(inode.0, handle.0, start as usize, MAX_READDIR_ENTRIES)) {
            Ok(entries) => {
                for (at, entry) in (start + 3..).zip(entries) {
                    if Volume::<R>::is_hidden(&entry.name) {
                        continue;
                    }
                    let found = self.volume.record_lookup(inode.0, &entry.name, entry.status);
                    let attributes = self.attributes(found.inode, &found.status);
                    if reply.add(INodeNo(found.inode), at, &entry.name, &ATTR_TTL, &attributes, GENERATION) {
                        self.volume.forget(found.inode, 1);
                        break;
                    }
                }
                reply.ok();
            }
            Err(number) => reply.error(errno(number)),
        }
    }
}
