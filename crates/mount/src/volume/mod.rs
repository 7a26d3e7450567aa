//! A mounted share: names, attributes, directories, open files. Works with inodes, handles and errno values and knows
//! nothing of FUSE. Open files are in `files`, directories in `directories`, symlinks in `links`.

mod deferred_create;
mod directories;
mod files;
mod links;
mod stale_inodes;

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Instant, SystemTime};

use tokio::runtime::Handle as Runtime;

use crate::attr_cache::{ATTR_TTL, AttrCache};
use crate::inodes::Kind;
use crate::kernel_attrs::KernelAttrCache;
use crate::open_file::OpenFile;
use crate::remote::{Remote, RemoteError, SpaceInfo, Status};
use crate::retry::RetryPolicy;
use crate::shared_state::SharedState;
use deferred_create::DeferredCreates;
use directories::Listing;
use files::Handles;
use stale_inodes::LookupReason;

/// Name prefix of removed files that are still open, as in other FUSE file systems.
const HIDDEN_PREFIX: &str = ".fuse_hidden";

/// A mounted share.
#[derive(Debug)]
pub struct Volume<R> {
    shared: Arc<SharedState<R>>,
    attributes: Mutex<AttrCache>,
    files: Mutex<HashMap<u64, Arc<OpenFile<R>>>>,
    handles: Mutex<Handles<R>>,
    listings: Mutex<HashMap<u64, Arc<tokio::sync::Mutex<Listing>>>>,
    /// Inodes removed while open; to be deleted on close.
    hidden: Mutex<HashSet<u64>>,
    /// Directories that this mount created, and when. Within the attribute lifetime, names that it did not create do
    /// not exist there.
    created_dirs: Mutex<HashMap<u64, Instant>>,
    /// ETags of the content whose pages the kernel may have cached.
    cached_etags: Mutex<HashMap<u64, String>>,
    /// Set in writeback mode.
    kernel_attrs: Option<Mutex<KernelAttrCache>>,
    deferred: Arc<Mutex<DeferredCreates<R>>>,
    next_handle: AtomicU64,
}

/// Options of an `open`.
#[derive(Clone, Copy, Debug, Default)]
pub struct OpenOptions {
    pub appends: bool,
    pub truncates: bool,
    /// Fails if the file exists.
    pub exclusive: bool,
    /// The thread that opens it.
    pub thread: u32,
}

/// Result of an `open`.
#[derive(Debug)]
pub struct OpenReply {
    pub handle: u64,
    /// The kernel's cached pages are still valid.
    pub keeps_cache: bool,
    /// The kernel's attributes are stale.
    pub changed: bool,
}

/// Result of a lookup.
#[derive(Debug)]
pub struct Lookup {
    pub inode: u64,
    pub status: Status,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no one panics while holding a part of a volume")
}

impl<R: Remote> Volume<R> {
    pub fn new(remote: R, retry: RetryPolicy, runtime: Runtime) -> Volume<R> {
        Volume {
            shared: Arc::new(SharedState::new(remote, retry, runtime)),
            attributes: Mutex::default(),
            files: Mutex::default(),
            handles: Mutex::default(),
            listings: Mutex::default(),
            hidden: Mutex::default(),
            created_dirs: Mutex::default(),
            cached_etags: Mutex::default(),
            kernel_attrs: None,
            deferred: Arc::default(),
            next_handle: AtomicU64::new(1),
        }
    }

    fn remote(&self) -> &R {
        &self.shared.remote
    }

    pub async fn look_up(&self, parent: u64, name: &str) -> Result<Lookup, i32> {
        let known = self.shared.inodes().find(parent, name);
        if let Some(inode) = known {
            let status = self
                .unsynced_status(inode)
                .or_else(|| lock(&self.attributes).get_fresh(inode, Instant::now()).cloned());
            if let Some(status) = status.filter(|status| !self.retire_if_stale(inode, status, LookupReason::Name)) {
                let inode = self.shared.inodes().look_up(parent, name, status.kind);
                return Ok(Lookup { inode, status });
            }
        }
        let path = self.child_path(parent, name)?;
        if known.is_none() && self.is_fully_known(parent) {
            return Err(libc::ENOENT);
        }
        match self.stat(&path).await {
            Ok(status) => Ok(self.record_lookup(parent, name, status)),
            Err(errno) => {
                if let (libc::ENOENT, Some(inode)) = (errno, known) {
                    self.shared.inodes().remove_name(parent, name);
                    lock(&self.attributes).remove(inode);
                }
                if errno == libc::ENOENT {
                    lock(&self.deferred).on_absent(parent, name);
                }
                Err(errno)
            }
        }
    }

    /// Result of a lookup for the kernel, from the server's current attributes.
    pub fn record_lookup(&self, parent: u64, name: &str, status: Status) -> Lookup {
        if self.has_write_cache() {
            let known = self.shared.inodes().find(parent, name);
            known.into_iter().for_each(|inode| _ = self.retire_if_stale(inode, &status, LookupReason::Name));
        }
        let inode = self.shared.inodes().look_up(parent, name, status.kind);
        let status = self.update_attrs(inode, status);
        if let (Some(kernel_attrs), Kind::File) = (&self.kernel_attrs, status.kind) {
            lock(kernel_attrs).record(inode, &(parent, name.to_owned()), &status, Instant::now());
        }
        Lookup { inode, status }
    }

    pub fn forget(&self, inode: u64, lookups: u64) {
        let parent = self.parent(inode);
        if self.shared.inodes().forget(inode, lookups) {
            lock(&self.created_dirs).remove(&parent);
            lock(&self.created_dirs).remove(&inode);
            lock(&self.attributes).remove(inode);
            lock(&self.cached_etags).remove(&inode);
            self.kernel_attrs.iter().for_each(|kernel_attrs| lock(kernel_attrs).forget(inode));
        }
    }

    pub async fn attributes(&self, inode: u64) -> Result<Status, i32> {
        if let Some(status) = self.unsynced_status(inode) {
            return Ok(status);
        }
        if let Some(status) = lock(&self.attributes).get_fresh(inode, Instant::now()) {
            return Ok(status.clone());
        }
        let Some(path) = self.shared.inodes().path(inode) else {
            // Open, but removed from the share.
            return lock(&self.attributes).get_any(inode).cloned().ok_or(libc::ESTALE);
        };
        let status = self.stat(&path).await?;
        Ok(self.update_attrs(inode, status))
    }

    pub async fn resize(&self, inode: u64, length: u64) -> Result<(), i32> {
        lock(&self.cached_etags).remove(&inode);
        self.on_change(inode);
        let open = lock(&self.files).get(&inode).cloned();
        let resized = match open {
            Some(file) => file.resize(length).await,
            None => {
                let path = self.shared.path(inode)?;
                let what = format!("set the length of {path}");
                self.shared.retry.run(what, |_| self.remote().resize(&path, length)).await
            }
        };
        lock(&self.attributes).remove(inode);
        resized
    }

    pub async fn set_modified(&self, inode: u64, modified: SystemTime) -> Result<(), i32> {
        self.on_change(inode);
        let open = lock(&self.files).get(&inode).cloned();
        if let Some(file) = open {
            // Earlier writes must not change the time afterwards.
            file.upload_all().await;
        }
        let path = self.shared.path(inode)?;
        let what = format!("set the time of {path}");
        let set = self.shared.retry.run(what, |_| self.remote().set_modified(&path, modified)).await;
        lock(&self.attributes).remove(inode);
        set
    }

    pub async fn create_directory(&self, parent: u64, name: &str) -> Result<Lookup, i32> {
        let path = self.child_path(parent, name)?;
        let created_dirs = self.shared.retry.run(format!("create the directory {path}"), |is_retry| {
            let path = path.clone();
            async move {
                match self.remote().create_directory(&path).await {
                    // Most likely created by the first attempt, whose answer was lost.
                    Err(RemoteError::Permanent { errno: libc::EEXIST, .. }) if is_retry => Ok(()),
                    created_dirs => created_dirs,
                }
            }
        });
        created_dirs.await.inspect_err(|errno| self.on_foreign_entry(parent, *errno))?;
        let status = Status { kind: Kind::Directory, length: 0, modified: SystemTime::now(), etag: String::new() };
        let found = self.record_lookup(parent, name, status);
        lock(&self.deferred).on_created(found.inode);
        let mut made_here = lock(&self.created_dirs);
        made_here.retain(|_, at| at.elapsed() < ATTR_TTL);
        made_here.insert(found.inode, Instant::now());
        Ok(found)
    }

    /// Whether all names of a directory are known here.
    fn is_fully_known(&self, inode: u64) -> bool {
        lock(&self.created_dirs).get(&inode).is_some_and(|at| at.elapsed() < ATTR_TTL)
    }

    /// An entry that another machine created: not all names of the directory are known after all.
    fn on_foreign_entry(&self, parent: u64, errno: i32) {
        if errno == libc::EEXIST {
            lock(&self.created_dirs).remove(&parent);
        }
    }

    pub async fn remove(&self, parent: u64, name: &str, kind: Kind) -> Result<(), i32> {
        let inode = self.shared.inodes().find(parent, name);
        if let Some(inode) = inode.filter(|inode| kind == Kind::File && lock(&self.files).contains_key(inode)) {
            return self.hide(parent, name, inode).await;
        }
        if let Some(inode) = inode.filter(|_| kind == Kind::Directory) {
            self.create_deferred_below(inode).await;
        }
        let path = self.child_path(parent, name)?;
        self.remove_path(&path, kind).await?;
        self.shared.inodes().remove_name(parent, name);
        inode.into_iter().for_each(|inode| lock(&self.attributes).remove(inode));
        Ok(())
    }

    async fn remove_path(&self, path: &str, kind: Kind) -> Result<(), i32> {
        let removed = self.shared.retry.run(format!("remove {path}"), |is_retry| async move {
            match self.remote().remove(path, kind).await {
                Err(RemoteError::Permanent { errno: libc::ENOENT, .. }) if is_retry => Ok(()),
                removed => removed,
            }
        });
        removed.await
    }

    /// Renames an open file to a hidden name; it is deleted on close.
    async fn hide(&self, parent: u64, name: &str, inode: u64) -> Result<(), i32> {
        let hidden = format!("{HIDDEN_PREFIX}{inode:08x}{}", self.next_handle.fetch_add(1, Ordering::Relaxed));
        self.rename((parent, name), (parent, &hidden), true).await?;
        lock(&self.hidden).insert(inode);
        Ok(())
    }

    pub fn is_hidden(name: &str) -> bool {
        name.starts_with(HIDDEN_PREFIX)
    }

    pub async fn rename(&self, from: (u64, &str), to: (u64, &str), replace: bool) -> Result<(), i32> {
        let (source, target) = (self.child_path(from.0, from.1)?, self.child_path(to.0, to.1)?);
        let (inode, replaced) = {
            let inodes = self.shared.inodes();
            (inodes.find(from.0, from.1), inodes.find(to.0, to.1))
        };
        let kind = match inode.and_then(|inode| self.shared.inodes().kind(inode)) {
            Some(kind) => kind,
            None => self.stat(&source).await?.kind,
        };
        for file in inode.into_iter().flat_map(|inode| self.open_within(inode)) {
            file.upload_all().await;
        }
        if let Some(replaced) = replaced.filter(|replaced| replace && Some(*replaced) != inode) {
            let open = lock(&self.files).contains_key(&replaced);
            if open {
                Box::pin(self.hide(to.0, to.1, replaced)).await?;
            }
            lock(&self.attributes).remove(replaced);
        }
        let renamed = self.shared.retry.run(format!("rename {source} to {target}"), |is_retry| {
            let (source, target) = (source.clone(), target.clone());
            async move {
                match self.remote().rename(&source, &target, kind, replace).await {
                    Err(RemoteError::Permanent { errno: libc::ENOENT | libc::EEXIST, why }) if is_retry => {
                        // The first attempt may have succeeded.
                        let (old, new) = (self.remote().stat(&source).await, self.remote().stat(&target).await);
                        match (old, new) {
                            (Err(RemoteError::Permanent { errno: libc::ENOENT, .. }), Ok(_)) => Ok(()),
                            // Unknown yet: retry.
                            (Err(RemoteError::Transient { why }), _) | (_, Err(RemoteError::Transient { why })) => {
                                Err(RemoteError::Transient { why })
                            }
                            _ => Err(RemoteError::Permanent { errno: libc::ENOENT, why }),
                        }
                    }
                    renamed => renamed,
                }
            }
        });
        lock(&self.created_dirs).remove(&to.0);
        renamed.await?;
        self.shared.inodes().rename(from, to);
        inode.into_iter().for_each(|inode| lock(&self.attributes).remove(inode));
        Ok(())
    }

    fn open_within(&self, above: u64) -> Vec<Arc<OpenFile<R>>> {
        let files = lock(&self.files);
        let inodes = self.shared.inodes();
        files.iter().filter(|(inode, _)| inodes.is_within(**inode, above)).map(|(_, file)| file.clone()).collect()
    }

    pub fn parent(&self, inode: u64) -> u64 {
        self.shared.inodes().parent(inode)
    }

    /// Used space and quota of the share.
    pub async fn space_info(&self) -> Result<SpaceInfo, i32> {
        self.shared.retry.run("get the free space", |_| self.remote().space_info()).await
    }

    async fn stat(&self, path: &str) -> Result<Status, i32> {
        self.shared.retry.run(format!("stat {path}"), |_| self.remote().stat(path)).await
    }

    /// Attributes that programs of this machine see: the server's, unless they have unsent writes.
    fn update_attrs(&self, inode: u64, status: Status) -> Status {
        let open = lock(&self.files).get(&inode).cloned();
        if let Some(file) = open {
            if let Some(unsynced_status) = file.unsynced_status() {
                return unsynced_status;
            }
            file.update_status(&status);
        }
        lock(&self.attributes).insert(inode, status.clone(), Instant::now());
        status
    }

    fn unsynced_status(&self, inode: u64) -> Option<Status> {
        let open = lock(&self.files).get(&inode).cloned();
        open.and_then(|file| file.unsynced_status())
    }

    fn child_path(&self, parent: u64, name: &str) -> Result<String, i32> {
        if name.len() > 255 {
            return Err(libc::ENAMETOOLONG);
        }
        self.shared.inodes().child_path(parent, name).ok_or(libc::ESTALE)
    }
}

#[cfg(test)]
mod tests;
