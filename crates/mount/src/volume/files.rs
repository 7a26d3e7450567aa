//! Open files of a mounted share: create, open, read, write, close. `open_file` sends the writes.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::SystemTime;

use bytes::Bytes;

use super::{Lookup, LookupReason, OpenOptions, OpenReply, Volume, lock};
use crate::inodes::{Kind, ROOT};
use crate::open_file::{OpenFile, SeenErrors};
use crate::remote::{Remote, RemoteError, Status};

/// An open handle of a file.
#[derive(Debug)]
pub(super) struct Handle<R> {
    file: Arc<OpenFile<R>>,
    pub(super) inode: u64,
    appends: bool,
    seen_errors: SeenErrors,
}

/// Open handles by number.
pub(super) type Handles<R> = HashMap<u64, Arc<Handle<R>>>;

impl<R: Remote> Volume<R> {
    /// Creates and opens a file. Opens an existing one, unless `exclusive`.
    pub async fn create(&self, parent: u64, name: &str, options: OpenOptions) -> Result<(Lookup, OpenReply), i32> {
        let path = self.child_path(parent, name)?;
        if self.may_defer_create(parent, name, options) {
            return self.open_new_file(parent, name, options, false);
        }
        let created_dirs = self.shared.retry.run(format!("create {path}"), |is_retry| {
            let path = path.clone();
            async move {
                match self.remote().create(&path).await {
                    Err(RemoteError::Permanent { errno: libc::EEXIST, why }) if is_retry => {
                        // An empty file was most likely created by the first attempt.
                        match self.remote().stat(&path).await {
                            Ok(status) if status.length == 0 && status.kind == Kind::File => Ok(()),
                            Err(RemoteError::Transient { why }) => Err(RemoteError::Transient { why }),
                            _ => Err(RemoteError::Permanent { errno: libc::EEXIST, why }),
                        }
                    }
                    created_dirs => created_dirs,
                }
            }
        });
        match created_dirs.await {
            Ok(()) => {
                lock(&self.deferred).on_created(parent);
                self.open_new_file(parent, name, options, true)
            }
            Err(errno) if errno != libc::EEXIST || options.exclusive => {
                self.on_foreign_entry(parent, errno);
                Err(errno)
            }
            Err(_) => {
                self.on_foreign_entry(parent, libc::EEXIST);
                let found = self.look_up(parent, name).await?;
                let opened = self.open(found.inode, options).await?;
                let status = self.attributes(found.inode).await?;
                Ok((Lookup { status, ..found }, opened))
            }
        }
    }

    /// Registers and opens a new file.
    fn open_new_file(
        &self,
        parent: u64,
        name: &str,
        options: OpenOptions,
        is_created: bool,
    ) -> Result<(Lookup, OpenReply), i32> {
        let status = Status { kind: Kind::File, length: 0, modified: SystemTime::now(), etag: String::new() };
        let found = self.record_lookup(parent, name, status);
        self.on_change(found.inode);
        let options = OpenOptions { truncates: true, ..options };
        let opened = self.open_handle(found.inode, found.status.clone(), options, is_created)?;
        Ok((found, opened))
    }

    /// Opens a file. Asks the server, for close-to-open consistency.
    pub async fn open(&self, inode: u64, options: OpenOptions) -> Result<OpenReply, i32> {
        if options.truncates {
            self.resize(inode, 0).await?;
        }
        let status = match self.unsynced_status(inode) {
            Some(status) => status,
            None => self.stat(&self.shared.path(inode)?).await?,
        };
        match status.kind {
            Kind::File => {}
            Kind::Directory => return Err(libc::EISDIR),
            // A symlink has replaced the file: the kernel looks the name up again and follows it.
            Kind::Link => return Err(libc::ESTALE),
        }
        self.open_handle(inode, status, options, true)
    }

    /// Allocates a handle.
    ///
    /// # Errors
    /// ESTALE if the kernel must look the name up again.
    fn open_handle(
        &self,
        inode: u64,
        status: Status,
        options: OpenOptions,
        is_created: bool,
    ) -> Result<OpenReply, i32> {
        let changed = lock(&self.attributes).get_any(inode).is_none_or(|get_any| !get_any.is_same(&status));
        let keeps_cache = {
            let mut cached_etags = lock(&self.cached_etags);
            let same = !status.etag.is_empty() && cached_etags.get(&inode) == Some(&status.etag);
            if status.etag.is_empty() {
                cached_etags.remove(&inode);
            } else {
                cached_etags.insert(inode, status.etag.clone());
            }
            same
        };
        let status = self.update_attrs(inode, status);
        let handle = self.next_handle.fetch_add(1, Ordering::Relaxed);
        let file = {
            // Both locks together, so that a concurrent close neither takes this handle for the last nor retires the
            // inode.
            let mut files = lock(&self.files);
            let mut handles = lock(&self.handles);
            // A file that was just truncated has the kernel's own attributes.
            let is_own = options.truncates && self.retired_name(inode).is_none();
            if !is_own && self.retire_if_stale_locked(&handles, inode, &status, LookupReason::Open(options.thread)) {
                return Err(self.reply_stale(inode, options.thread));
            }
            self.shared.inodes().add_handle(inode);
            let new = || OpenFile::new(inode, self.shared.clone(), status, is_created);
            let file = files.entry(inode).or_insert_with(new).clone();
            let seen_errors = file.seen_errors();
            handles
                .insert(handle, Arc::new(Handle { file: file.clone(), inode, appends: options.appends, seen_errors }));
            file
        };
        if !is_created {
            self.create_soon(&file);
        }
        Ok(OpenReply { handle, keeps_cache, changed })
    }

    fn handle(&self, handle: u64) -> Result<Arc<Handle<R>>, i32> {
        lock(&self.handles).get(&handle).cloned().ok_or(libc::EBADF)
    }

    pub async fn read(&self, handle: u64, offset: u64, length: u64) -> Result<Bytes, i32> {
        self.handle(handle)?.file.read(offset, length).await
    }

    /// `offset` is ignored for a handle opened with O_APPEND, which writes at the end.
    pub async fn write(&self, handle: u64, offset: u64, content: &[u8]) -> Result<(), i32> {
        let handle = self.handle(handle)?;
        self.on_write(handle.inode);
        match handle.appends {
            true => handle.file.append(content, &handle.seen_errors).await,
            false => handle.file.write(offset, content, &handle.seen_errors).await,
        }
    }

    /// Writes back cached pages. Their offset counts, whichever handle of the file they arrive by.
    pub async fn write_back(&self, handle: u64, offset: u64, content: &[u8]) -> Result<(), i32> {
        let handle = self.handle(handle)?;
        self.on_write(handle.inode);
        handle.file.write(offset, content, &handle.seen_errors).await
    }

    fn on_write(&self, inode: u64) {
        lock(&self.attributes).remove(inode);
        lock(&self.cached_etags).remove(&inode);
        self.on_change(inode);
    }

    pub async fn flush(&self, handle: u64) -> Result<(), i32> {
        let handle = self.handle(handle)?;
        handle.file.flush(&handle.seen_errors).await
    }

    pub async fn sync(&self, handle: u64) -> Result<(), i32> {
        let handle = self.handle(handle)?;
        handle.file.sync(&handle.seen_errors).await
    }

    pub async fn sync_directory(&self, inode: u64) -> Result<(), i32> {
        self.create_deferred_below(inode).await;
        let path = self.shared.path(inode)?;
        self.shared.retry.run(format!("flush {path}"), |_| self.remote().sync(&path)).await
    }

    pub async fn release(&self, handle: u64) {
        let Some(handle) = lock(&self.handles).remove(&handle) else { return };
        // Mapped pages are written after the last close.
        handle.file.upload_all().await;
        let path = self.shared.inodes().path(handle.inode);
        let get_any = {
            let mut files = lock(&self.files);
            let get_any = self.shared.inodes().release(handle.inode);
            if get_any {
                files.remove(&handle.inode);
            }
            get_any
        };
        if get_any
            && lock(&self.hidden).remove(&handle.inode)
            && let Some(path) = path
        {
            let _ = self.remove_path(&path, Kind::File).await;
            let mut inodes = self.shared.inodes();
            let parent = inodes.parent(handle.inode);
            let name = path.rsplit('/').next().unwrap_or(&path).to_owned();
            inodes.remove_name(parent, &name);
        }
    }

    /// Uploads everything that programs have written, at the end of the mount.
    pub async fn upload_all(&self) {
        for file in self.open_within(ROOT) {
            file.upload_all().await;
        }
    }
}
