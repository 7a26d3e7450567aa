//! FUSE request handlers. Translate inodes, flags and attributes between the kernel and `volume`; make no decisions. A
//! request occupies its thread until it is answered; there are several threads.
//!
//! This file has the handlers; `init` negotiates with the kernel, `translate` converts types, `changes` has the requests
//! of several steps, `directory_listing` reads directories, `replies` answers.

mod changes;
mod directory_listing;
mod init;
mod replies;
mod translate;

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

use fuser::{
    BsdFileFlags, Errno, FileAttr, FileHandle, Filesystem, FopenFlags, INodeNo, KernelConfig, LockOwner, Notifier,
    OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty,
    ReplyEntry, ReplyOpen, ReplyStatfs, ReplyWrite, Request, TimeOrNow, WriteFlags,
};
use tokio::runtime::Handle as Runtime;

use self::replies::{GENERATION, reply_empty, reply_space};
use self::translate::{create_flags, errno, open_options, text};
use crate::attr_cache::ATTR_TTL;
use crate::inodes::Kind;
use crate::remote::{Remote, Status};
use crate::thread_runtime;
use crate::volume::Volume;

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
        self.owner_and_modes.file_attr(inode, status)
    }
}

impl<R: Remote> Filesystem for FuseFs<R> {
    fn init(&mut self, _request: &Request, config: &mut KernelConfig) -> io::Result<()> {
        init::negotiate(config, self.volume.has_write_cache());
        Ok(())
    }

    fn destroy(&mut self) {
        self.block_on(self.volume.upload_all());
    }

    fn lookup(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let found = text(name).and_then(|name| self.block_on(self.volume.look_up(parent.0, name)));
        self.reply_entry(found, reply);
    }

    fn forget(&self, _request: &Request, inode: INodeNo, lookups: u64) {
        self.volume.forget(inode.0, lookups);
    }

    fn getattr(&self, _request: &Request, inode: INodeNo, _handle: Option<FileHandle>, reply: ReplyAttr) {
        self.reply_attr(inode.0, self.block_on(self.volume.attributes(inode.0)), reply);
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
        self.reply_attr(inode.0, self.block_on(self.set_attributes(inode.0, size, mtime)), reply);
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
        let made = text(name).and_then(|name| self.block_on(self.make_file(parent.0, name)));
        self.reply_entry(made, reply);
    }

    fn mkdir(&self, _request: &Request, parent: INodeNo, name: &OsStr, _mode: u32, _umask: u32, reply: ReplyEntry) {
        self.reply_entry(
            text(name).and_then(|name| self.block_on(self.volume.create_directory(parent.0, name))),
            reply,
        );
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
        self.reply_entry(
            text(name).and_then(|name| self.block_on(self.volume.create_link(parent.0, name, target))),
            reply,
        );
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
                let handle = FileHandle(opened.handle);
                reply.created(&ATTR_TTL, &attributes, GENERATION, handle, create_flags(options));
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

    fn readdir(&self, _r: &Request, inode: INodeNo, handle: FileHandle, offset: u64, reply: ReplyDirectory) {
        self.list(inode, handle, offset, reply);
    }

    fn readdirplus(&self, _r: &Request, inode: INodeNo, handle: FileHandle, offset: u64, reply: ReplyDirectoryPlus) {
        self.list_with_attributes(inode, handle, offset, reply);
    }

    fn releasedir(&self, _r: &Request, _inode: INodeNo, handle: FileHandle, _flags: OpenFlags, reply: ReplyEmpty) {
        self.volume.release_directory(handle.0);
        reply.ok();
    }

    fn fsyncdir(&self, _r: &Request, inode: INodeNo, _handle: FileHandle, _data_only: bool, reply: ReplyEmpty) {
        reply_empty(self.block_on(self.volume.sync_directory(inode.0)), reply);
    }

    fn statfs(&self, _request: &Request, _inode: INodeNo, reply: ReplyStatfs) {
        reply_space(self.block_on(self.volume.space_info()), reply);
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
        reply_empty(self.block_on(self.allocate(inode.0, offset, length)), reply);
    }
}
