//! Open files of a mounted share: made, opened, read, written, closed. What a program writes is sent by `open_file`.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::SystemTime;

use bytes::Bytes;

use super::{Asked, Found, How, Opened, Volume, lock};
use crate::inodes::{Kind, ROOT};
use crate::open_file::{OpenFile, Seen};
use crate::remote::{Problem, Remote, Status};

#[derive(Debug)]
pub(super) struct Handle<R> {
    file: Arc<OpenFile<R>>,
    pub(super) inode: u64,
    appends: bool,
    seen: Seen,
}

pub(super) type Handles<R> = HashMap<u64, Arc<Handle<R>>>;

impl<R: Remote> Volume<R> {
    /// Makes a file and opens it. One that is there is opened, unless it must not be.
    pub async fn create(&self, parent: u64, name: &str, how: How) -> Result<(Found, Opened), i32> {
        let path = self.path_of(parent, name)?;
        if self.may_wait(parent, name, how) {
            return self.begin(parent, name, how, false);
        }
        let made = self.shared.patience.insist(format!("make {path}"), |again| {
            let path = path.clone();
            async move {
                match self.remote().create(&path).await {
                    Err(Problem::Refused { errno: libc::EEXIST, why }) if again => {
                        // An empty one is what the first try made, most likely.
                        match self.remote().about(&path).await {
                            Ok(status) if status.length == 0 && status.kind == Kind::File => Ok(()),
                            Err(Problem::Passing { why }) => Err(Problem::Passing { why }),
                            _ => Err(Problem::Refused { errno: libc::EEXIST, why }),
                        }
                    }
                    made => made,
                }
            }
        });
        match made.await {
            Ok(()) => {
                lock(&self.later).on_made(parent);
                self.begin(parent, name, how, true)
            }
            Err(errno) if errno != libc::EEXIST || how.exclusive => {
                self.on_others_name(parent, errno);
                Err(errno)
            }
            Err(_) => {
                self.on_others_name(parent, libc::EEXIST);
                let found = self.look_up(parent, name).await?;
                let opened = self.open(found.inode, how).await?;
                let status = self.attributes(found.inode).await?;
                Ok((Found { status, ..found }, opened))
            }
        }
    }

    /// A new file, which is open.
    fn begin(&self, parent: u64, name: &str, how: How, is_made: bool) -> Result<(Found, Opened), i32> {
        let status = Status { kind: Kind::File, length: 0, modified: SystemTime::now(), etag: String::new() };
        let found = self.told_of(parent, name, status);
        self.on_change(found.inode);
        let how = How { truncates: true, ..how };
        let opened = self.hand_out(found.inode, found.status.clone(), how, is_made)?;
        Ok((found, opened))
    }

    /// Asks the server, so that what others had written when they closed it is seen.
    pub async fn open(&self, inode: u64, how: How) -> Result<Opened, i32> {
        if how.truncates {
            self.resize(inode, 0).await?;
        }
        let status = match self.unsettled(inode) {
            Some(status) => status,
            None => self.about(&self.shared.path(inode)?).await?,
        };
        match status.kind {
            Kind::File => {}
            Kind::Directory => return Err(libc::EISDIR),
            // A link has taken its place: the kernel looks the name up again and follows it.
            Kind::Link => return Err(libc::ESTALE),
        }
        self.hand_out(inode, status, how, true)
    }

    /// # Errors
    /// When the kernel has to look for another number.
    fn hand_out(&self, inode: u64, status: Status, how: How, is_made: bool) -> Result<Opened, i32> {
        let changed = lock(&self.attributes).last(inode).is_none_or(|last| !last.is_same(&status));
        let keeps_cache = {
            let mut kept = lock(&self.kept);
            let same = !status.etag.is_empty() && kept.get(&inode) == Some(&status.etag);
            if status.etag.is_empty() {
                kept.remove(&inode);
            } else {
                kept.insert(inode, status.etag.clone());
            }
            same
        };
        let status = self.learn(inode, status);
        let handle = self.next_handle.fetch_add(1, Ordering::Relaxed);
        let file = {
            // Together, so that nobody who closes it meanwhile takes it for the last, or leaves its number.
            let mut files = lock(&self.files);
            let mut handles = lock(&self.handles);
            // One that was just cut is the kernel's own.
            let is_own = how.truncates && self.left(inode).is_none();
            if !is_own && self.leave_outdated_of(&handles, inode, &status, Asked::Open(how.thread)) {
                return Err(self.send_again(inode, how.thread));
            }
            self.shared.inodes().hold(inode);
            let new = || OpenFile::new(inode, self.shared.clone(), status, is_made);
            let file = files.entry(inode).or_insert_with(new).clone();
            let seen = file.seen();
            handles.insert(handle, Arc::new(Handle { file: file.clone(), inode, appends: how.appends, seen }));
            file
        };
        if !is_made {
            self.make_soon(&file);
        }
        Ok(Opened { handle, keeps_cache, changed })
    }

    fn handle(&self, handle: u64) -> Result<Arc<Handle<R>>, i32> {
        lock(&self.handles).get(&handle).cloned().ok_or(libc::EBADF)
    }

    pub async fn read(&self, handle: u64, offset: u64, length: u64) -> Result<Bytes, i32> {
        self.handle(handle)?.file.read(offset, length).await
    }

    /// `offset` is the kernel's idea of where a program writes; a handle that appends writes at the end.
    pub async fn write(&self, handle: u64, offset: u64, content: &[u8]) -> Result<(), i32> {
        let handle = self.handle(handle)?;
        self.on_write(handle.inode);
        match handle.appends {
            true => handle.file.append(content, &handle.seen).await,
            false => handle.file.write(offset, content, &handle.seen).await,
        }
    }

    /// Pages that the kernel had kept: their place is where they lie, whichever handle of the file they come by.
    pub async fn write_back(&self, handle: u64, offset: u64, content: &[u8]) -> Result<(), i32> {
        let handle = self.handle(handle)?;
        self.on_write(handle.inode);
        handle.file.write(offset, content, &handle.seen).await
    }

    fn on_write(&self, inode: u64) {
        lock(&self.attributes).forget(inode);
        lock(&self.kept).remove(&inode);
        self.on_change(inode);
    }

    pub async fn flush(&self, handle: u64) -> Result<(), i32> {
        let handle = self.handle(handle)?;
        handle.file.flush(&handle.seen).await
    }

    pub async fn sync(&self, handle: u64) -> Result<(), i32> {
        let handle = self.handle(handle)?;
        handle.file.sync(&handle.seen).await
    }

    pub async fn sync_directory(&self, inode: u64) -> Result<(), i32> {
        self.make_within(inode).await;
        let path = self.shared.path(inode)?;
        self.shared.patience.insist(format!("flush {path}"), |_| self.remote().sync(&path)).await
    }

    pub async fn release(&self, handle: u64) {
        let Some(handle) = lock(&self.handles).remove(&handle) else { return };
        // Pages that were mapped are written after the last close.
        handle.file.settle().await;
        let path = self.shared.inodes().path(handle.inode);
        let last = {
            let mut files = lock(&self.files);
            let last = self.shared.inodes().release(handle.inode);
            if last {
                files.remove(&handle.inode);
            }
            last
        };
        if last
            && lock(&self.hidden).remove(&handle.inode)
            && let Some(path) = path
        {
            let _ = self.remove_path(&path, Kind::File).await;
            let mut inodes = self.shared.inodes();
            let parent = inodes.parent(handle.inode);
            let name = path.rsplit('/').next().unwrap_or(&path).to_owned();
            inodes.take_name(parent, &name);
        }
    }

    /// All that programs have written is sent; for the end of the mount.
    pub async fn settle(&self) {
        for file in self.open_within(ROOT) {
            file.settle().await;
        }
    }
}
