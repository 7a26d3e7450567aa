//! Translation between the kernel's types and those of `volume`: attributes, names, open flags, error numbers.

use std::ffi::OsStr;

use fuser::{Errno, FileAttr, FileType, FopenFlags, INodeNo, Request};

use super::{FuseFs, OwnerAndModes};
use crate::inodes::Kind;
use crate::remote::{Remote, Status};
use crate::volume::{OpenOptions, OpenReply};

impl OwnerAndModes {
    pub(super) fn file_attr(&self, inode: u64, status: &Status) -> FileAttr {
        let (kind, perm, nlink) = match status.kind {
            Kind::File => (FileType::RegularFile, self.file_mode, 1),
            Kind::Directory => (FileType::Directory, self.directory_mode, 2),
            // As in every Linux file system; the kernel ignores the mode of symlinks.
            Kind::Link => (FileType::Symlink, 0o777, 1),
        };
        let (modified, size) = (status.modified, status.length);
        FileAttr {
            ino: INodeNo(inode),
            size,
            blocks: size.div_ceil(512),
            atime: modified,
            mtime: modified,
            ctime: modified,
            crtime: modified,
            kind,
            perm,
            nlink,
            uid: self.uid,
            gid: self.gid,
            rdev: 0,
            blksize: 1 << 20,
            flags: 0,
        }
    }
}

impl<R: Remote> FuseFs<R> {
    /// Flags of the answer to an `open`. Invalidates the kernel's attributes if they are stale.
    pub(super) fn open_flags(&self, inode: u64, opened: &OpenReply, options: OpenOptions) -> FopenFlags {
        if opened.changed
            && let Some(notifier) = self.notifier.get()
        {
            // Attributes only: the pages are dropped because FOPEN_KEEP_CACHE is not set.
            let _ = notifier.inval_inode(INodeNo(inode), -1, 0);
        }
        match (options.appends, opened.keeps_cache) {
            // The kernel does not know the offset of an appended block, so it must not cache it.
            (true, _) => FopenFlags::FOPEN_DIRECT_IO,
            (false, true) => FopenFlags::FOPEN_KEEP_CACHE,
            (false, false) => FopenFlags::empty(),
        }
    }
}

/// Flags of the answer to a `create`.
pub(super) fn create_flags(options: OpenOptions) -> FopenFlags {
    match options.appends {
        true => FopenFlags::FOPEN_DIRECT_IO,
        false => FopenFlags::empty(),
    }
}

pub(super) fn open_options(flags: i32, request: &Request) -> OpenOptions {
    OpenOptions {
        thread: request.pid(),
        appends: flags & libc::O_APPEND != 0,
        truncates: flags & libc::O_TRUNC != 0,
        exclusive: flags & libc::O_EXCL != 0,
    }
}

/// The service supports UTF-8 names only.
pub(super) fn text(name: &OsStr) -> Result<&str, i32> {
    name.to_str().ok_or(libc::EILSEQ)
}

pub(super) fn errno(number: i32) -> Errno {
    Errno::from_i32(number)
}
