//! FUSE request handlers. Translate inodes, flags and attributes between the kernel and `volume`; make no decisions. A
//! request occupies its thread until it is answered; there are several threads.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use fuser::{
    BsdFileFlags, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, InitFlags,
    KernelConfig, LockOwner, Notifier, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory,
    ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyStatfs, ReplyWrite, Request, TimeOrNow, WriteFlags,
};
use tokio::runtime::Handle as Runtime;

use crate::attr_cache::ATTR_TTL;
use crate::inodes::Kind;
use crate::remote::{Remote, Status};
use crate::thread_runtime;
use crate::volume::{OpenOptions, OpenReply, Volume};

/// Owner and permissions of all entries, which the share does not store.
#[derive(Clone, Copy, Debug)]
pub struct OwnerAndModes {
    pub file_mode: u16,
    pub directory_mode: u16,
    pub uid: u32,
    pub gid: u32,
}

/// The FUSE file system of a mounted share.
pub struct FuseFs<R: Remote> {
    volume: Arc<Volume<R>>,
    runtime: Runtime,
    owner_and_modes: OwnerAndModes,
    notifier: Arc<OnceLock<Notifier>>,
}

/// Capacity reported by `statfs` for a share without a quota: the service's own limit.
const DEFAULT_CAPACITY_BYTES: u64 = 5 << 40;
const BLOCK_BYTES: u32 = 4096;
/// Limit of entries in one `readdir` answer.
const MAX_READDIR_ENTRIES: usize = 200;
/// Inode numbers are never reused, so they need no generation.
const GENERATION: Generation = Generation(0);

impl<R: Remote> FuseFs<R> {
    pub fn new(
        volume: Arc<Volume<R>>,
        runtime: Runtime,
        owner_and_modes: OwnerAndModes,
        notifier: Arc<OnceLock<Notifier>>,
    ) -> FuseFs<R> {
        FuseFs { volume, runtime, owner_and_modes, notifier }
    }

    fn block_on<T>(&self, work: impl Future<Output = T>) -> T {
        thread_runtime::block_on(&self.runtime, work)
    }

    fn attributes(&self, inode: u64, status: &Status) -> FileAttr {
        let (kind, perm, nlink) = match status.kind {
            Kind::File => (FileType::RegularFile, self.owner_and_modes.file_mode, 1),
            Kind::Directory => (FileType::Directory, self.owner_and_modes.directory_mode, 2),
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
            uid: self.owner_and_modes.uid,
            gid: self.owner_and_modes.gid,
            rdev: 0,
            blksize: 1 << 20,
            flags: 0,
        }
    }

    /// Flags of the answer to an `open`. Invalidates the kernel's attributes if they are stale.
    fn open_flags(&self, inode: u64, opened: &OpenReply, options: OpenOptions) -> FopenFlags {
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

fn errno(number: i32) -> Errno {
    Errno::from_i32(number)
}

/// The service supports UTF-8 names only.
fn text(name: &OsStr) -> Result<&str, i32> {
    name.to_str().ok_or(libc::EILSEQ)
}

fn open_options(flags: i32, request: &Request) -> OpenOptions {
    OpenOptions {
        thread: request.pid(),
        appends: flags & libc::O_APPEND != 0,
        truncates: flags & libc::O_TRUNC != 0,
        exclusive: flags & libc::O_EXCL != 0,
    }
}

impl<R: Remote> Filesystem for FuseFs<R> {
    fn init(&mut self, _request: &Request, config: &mut KernelConfig) -> io::Result<()> {
        for capability in [
            InitFlags::FUSE_ATOMIC_O_TRUNC,
            InitFlags::FUSE_AUTO_INVAL_DATA,
            InitFlags::FUSE_DO_READDIRPLUS,
            InitFlags::FUSE_READDIRPLUS_AUTO,
            InitFlags::FUSE_PARALLEL_DIROPS,
            InitFlags::FUSE_ASYNC_DIO,
        ] {
            // Older kernels lack some of these.
            let _ = config.add_capabilities(capability);
        }
        if self.volume.has_write_cache() && config.add_capabilities(InitFlags::FUSE_WRITEBACK_CACHE).is_err() {
            tracing::warn!("this kernel does not support FUSE writeback caching: --write-cache has no effect");
        }
        let _ = config.set_max_write(1 << 20);
        let _ = config.set_max_readahead(u32::MAX).or_else(|most| config.set_max_readahead(most));
        let _ = config.set_max_background(64);
        let _ = config.set_time_granularity(Duration::from_nanos(1));
        Ok(())
    }

    fn destroy(&mut self) {
        self.block_on(self.volume.upload_all());
    }

    fn lookup(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let found = text(name).and_then(|name| self.block_on(self.volume.look_up(parent.0, name)));
        match found {
            Ok(found) => reply.entry(&ATTR_TTL, &self.attributes(found.inode, &found.status), GENERATION),
            Err(number) => reply.error(errno(number)),
        }
    }

    fn forget(&self, _request: &Request, inode: INodeNo, lookups: u64) {
        self.volume.forget(inode.0, lookups);
    }

    fn getattr(&self, _request: &Request, inode: INodeNo, _handle: Option<FileHandle>, reply: ReplyAttr) {
        match self.block_on(self.volume.attributes(inode.0)) {
            Ok(status) => reply.attr(&ATTR_TTL, &self.attributes(inode.0, &status)),
            Err(number) => reply.error(errno(number)),
        }
    }

    fn setattr(
        &self,
        _request: &Request,
        inode: INodeNo,
        _mode: Option<u32>,
        _uid: Option<u32>,
        _gid: Option<u32>,
        size: Option<u64>,
        _atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        _handle: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        // Modes and owners are those of the mount. Requests for others succeed without effect, so that `cp -p` and
        // `tar` work.
        let set = async {
            if let Some(size) = size {
                self.volume.resize(inode.0, size).await?;
            }
            let modified = mtime.map(|time| match time {
                TimeOrNow::SpecificTime(time) => time,
                TimeOrNow::Now => SystemTime::now(),
            });
            if let Some(modified) = modified {
                self.volume.set_modified(inode.0, modified).await?;
            }
            self.volume.attributes(inode.0).await
        };
        match self.block_on(set) {
            Ok(status) => reply.attr(&ATTR_TTL, &self.attributes(inode.0, &status)),
            Err(number) => reply.error(errno(number)),
        }
    }

    fn mknod(
        &self,
        _r: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        _rdev: u32,
        reply: ReplyEntry,
    ) {
        if mode & libc::S_IFMT != libc::S_IFREG && mode & libc::S_IFMT != 0 {
            return reply.error(Errno::EPERM);
        }
        let options = OpenOptions { exclusive: true, ..OpenOptions::default() };
        let made = text(name).and_then(|name| {
            self.block_on(async {
                let (found, opened) = self.volume.create(parent.0, name, options).await?;
                self.volume.release(opened.handle).await;
                Ok(found)
            })
        });
        match made {
            Ok(found) => reply.entry(&ATTR_TTL, &self.attributes(found.inode, &found.status), GENERATION),
            Err(number) => reply.error(errno(number)),
        }
    }

    fn mkdir(&self, _request: &Request, parent: INodeNo, name: &OsStr, _mode: u32, _umask: u32, reply: ReplyEntry) {
        match text(name).and_then(|name| self.block_on(self.volume.create_directory(parent.0, name))) {
            Ok(found) => reply.entry(&ATTR_TTL, &self.attributes(found.inode, &found.status), GENERATION),
            Err(number) => reply.error(errno(number)),
        }
    }

    fn unlink(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        reply_empty(text(name).and_then(|name| self.block_on(self.volume.remove(parent.0, name, Kind::File))), reply);
    }

    fn rmdir(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        reply_empty(
            text(name).and_then(|name| self.block_on(self.volume.remove(parent.0, name, Kind::Directory))),
            reply,
        );
    }

    fn symlink(&self, _request: &Request, parent: INodeNo, name: &OsStr, target: &Path, reply: ReplyEntry) {
        let target = target.as_os_str().as_bytes();
        match text(name).and_then(|name| self.block_on(self.volume.create_link(parent.0, name, target))) {
            Ok(found) => reply.entry(&ATTR_TTL, &self.attributes(found.inode, &found.status), GENERATION),
            Err(number) => reply.error(errno(number)),
        }
    }

    fn readlink(&self, _request: &Request, inode: INodeNo, reply: ReplyData) {
        match self.block_on(self.volume.read_link(inode.0)) {
            Ok(text) => reply.data(&text),
            Err(number) => reply.error(errno(number)),
        }
    }

    fn link(&self, _request: &Request, _inode: INodeNo, _parent: INodeNo, _name: &OsStr, reply: ReplyEntry) {
        reply.error(Errno::EPERM);
    }

    fn rename(
        &self,
        _request: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let replace = match flags {
            flags if flags.is_empty() => true,
            RenameFlags::RENAME_NOREPLACE => false,
            _ => return reply.error(Errno::EINVAL),
        };
        let names = text(name).and_then(|name| Ok((name, text(new_name)?)));
        let renamed = names.and_then(|(name, new_name)| {
            self.block_on(self.volume.rename((parent.0, name), (new_parent.0, new_name), replace))
        });
        reply_empty(renamed, reply);
    }

    fn open(&self, request: &Request, inode: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let options = open_options(flags.0, request);
        match self.block_on(self.volume.open(inode.0, options)) {
            Ok(opened) => reply.opened(FileHandle(opened.handle), self.open_flags(inode.0, &opened, options)),
            Err(number) => reply.error(errno(number)),
        }
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        _mode: u32,
        _umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let options = open_options(flags, request);
        match text(name).and_then(|name| self.block_on(self.volume.create(parent.0, name, options))) {
            Ok((found, opened)) => {
                let attributes = self.attributes(found.inode, &found.status);
                let flags = match options.appends {
                    true => FopenFlags::FOPEN_DIRECT_IO,
                    false => FopenFlags::empty(),
                };
                reply.created(&ATTR_TTL, &attributes, GENERATION, FileHandle(opened.handle), flags);
            }
            Err(number) => reply.error(errno(number)),
        }
    }

    fn read(
        &self,
        _request: &Request,
        _inode: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        match self.block_on(self.volume.read(handle.0, offset, u64::from(size))) {
            Ok(content) => reply.data(&content),
            Err(number) => reply.error(errno(number)),
        }
    }

    fn write(
        &self,
        _request: &Request,
        _inode: INodeNo,
        handle: FileHandle,
        offset: u64,
        content: &[u8],
        write_flags: WriteFlags,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let written = match write_flags.contains(WriteFlags::FUSE_WRITE_CACHE) {
            true => self.block_on(self.volume.write_back(handle.0, offset, content)),
            false => self.block_on(self.volume.write(handle.0, offset, content)),
        };
        match written {
            Ok(()) => reply.written(content.len() as u32),
            Err(number) => reply.error(errno(number)),
        }
    }

    fn flush(&self, _request: &Request, _inode: INodeNo, handle: FileHandle, _owner: LockOwner, reply: ReplyEmpty) {
        reply_empty(self.block_on(self.volume.flush(handle.0)), reply);
    }

    fn fsync(&self, _request: &Request, _inode: INodeNo, handle: FileHandle, _data_only: bool, reply: ReplyEmpty) {
        reply_empty(self.block_on(self.volume.sync(handle.0)), reply);
    }

    fn release(
        &self,
        _request: &Request,
        _inode: INodeNo,
        handle: FileHandle,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        self.block_on(self.volume.release(handle.0));
        reply.ok();
    }

    fn opendir(&self, _request: &Request, _inode: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        reply.opened(FileHandle(self.volume.open_directory()), FopenFlags::empty());
    }

    fn readdir(&self, _r: &Request, inode: INodeNo, handle: FileHandle, offset: u64, mut reply: ReplyDirectory) {
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

    fn readdirplus(
        &self,
        _r: &Request,
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

    fn releasedir(&self, _r: &Request, _inode: INodeNo, handle: FileHandle, _flags: OpenFlags, reply: ReplyEmpty) {
        self.volume.release_directory(handle.0);
        reply.ok();
    }

    fn fsyncdir(&self, _r: &Request, inode: INodeNo, _handle: FileHandle, _data_only: bool, reply: ReplyEmpty) {
        reply_empty(self.block_on(self.volume.sync_directory(inode.0)), reply);
    }

    fn statfs(&self, _request: &Request, _inode: INodeNo, reply: ReplyStatfs) {
        match self.block_on(self.volume.space_info()) {
            Ok(space) => {
                let total = space.quota.unwrap_or(DEFAULT_CAPACITY_BYTES).max(space.used) / u64::from(BLOCK_BYTES);
                let free = total - space.used.div_ceil(u64::from(BLOCK_BYTES)).min(total);
                reply.statfs(total, free, free, 0, 0, BLOCK_BYTES, 255, BLOCK_BYTES);
            }
            Err(number) => reply.error(errno(number)),
        }
    }

    fn fallocate(
        &self,
        _request: &Request,
        inode: INodeNo,
        _handle: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        if mode != 0 {
            return reply.error(Errno::EOPNOTSUPP);
        }
        let grown = async {
            let status = self.volume.attributes(inode.0).await?;
            match offset.checked_add(length).ok_or(libc::EFBIG)? {
                end if end > status.length => self.volume.resize(inode.0, end).await,
                _ => Ok(()),
            }
        };
        reply_empty(self.block_on(grown), reply);
    }
}

fn reply_empty(result: Result<(), i32>, reply: ReplyEmpty) {
    match result {
        Ok(()) => reply.ok(),
        Err(number) => reply.error(errno(number)),
    }
}
