//! A mounted share: names, attributes, directories, open files. Entered by `filesystem` for every request of the kernel; speaks of
//! inodes, handles and error numbers, and knows nothing of FUSE. Open files are in `files`, open directories in `directories`, links in `links`.

mod directories;
mod files;
mod later;
mod links;
mod numbers;

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Instant, SystemTime};

use tokio::runtime::Handle as Runtime;

use crate::cache::{Attributes, BELIEVED};
use crate::inodes::Kind;
use crate::open_file::{OpenFile, Shared};
use crate::patience::Patience;
use crate::remote::{Problem, Remote, Room, Status};
use crate::told::Told;
use directories::Listing;
use files::Handles;
use later::Later;
use numbers::Asked;

/// What an open file that was removed is called until it is closed, as other such file systems have it.
const HIDDEN: &str = ".fuse_hidden";

#[derive(Debug)]
pub struct Volume<R> {
    shared: Arc<Shared<R>>,
    attributes: Mutex<Attributes>,
    files: Mutex<HashMap<u64, Arc<OpenFile<R>>>>,
    handles: Mutex<Handles<R>>,
    listings: Mutex<HashMap<u64, Arc<tokio::sync::Mutex<Listing>>>>,
    /// Removed while they were open: to be removed for good.
    hidden: Mutex<HashSet<u64>>,
    /// Directories that this mount has made, and when: what it has not put there is not there, for as long as anything is believed.
    made: Mutex<HashMap<u64, Instant>>,
    /// Of which content the kernel may have kept pages.
    kept: Mutex<HashMap<u64, String>>,
    /// Where the kernel keeps what is written.
    told: Option<Mutex<Told>>,
    later: Arc<Mutex<Later<R>>>,
    next_handle: AtomicU64,
}

/// How a file is opened.
#[derive(Clone, Copy, Debug, Default)]
pub struct How {
    pub appends: bool,
    pub truncates: bool,
    /// There must be no such file.
    pub exclusive: bool,
    /// The thread that opens it.
    pub thread: u32,
}

#[derive(Debug)]
pub struct Opened {
    pub handle: u64,
    /// What the kernel has of it is still right.
    pub keeps_cache: bool,
    /// The kernel's attributes are not right any more.
    pub changed: bool,
}

/// A name, its number and what it is.
#[derive(Debug)]
pub struct Found {
    pub inode: u64,
    pub status: Status,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no one panics while holding a part of a volume")
}

impl<R: Remote> Volume<R> {
    pub fn new(remote: R, patience: Patience, runtime: Runtime) -> Volume<R> {
        Volume {
            shared: Arc::new(Shared::new(remote, patience, runtime)),
            attributes: Mutex::default(),
            files: Mutex::default(),
            handles: Mutex::default(),
            listings: Mutex::default(),
            hidden: Mutex::default(),
            made: Mutex::default(),
            kept: Mutex::default(),
            told: None,
            later: Arc::default(),
            next_handle: AtomicU64::new(1),
        }
    }

    fn remote(&self) -> &R {
        &self.shared.remote
    }

    pub async fn look_up(&self, parent: u64, name: &str) -> Result<Found, i32> {
        let known = self.shared.inodes().find(parent, name);
        if let Some(inode) = known {
            let status = self.unsettled(inode).or_else(|| lock(&self.attributes).fresh(inode, Instant::now()).cloned());
            if let Some(status) = status.filter(|status| !self.leave_outdated(inode, status, Asked::Name)) {
                let inode = self.shared.inodes().look_up(parent, name, status.kind);
                return Ok(Found { inode, status });
            }
        }
        let path = self.path_of(parent, name)?;
        if known.is_none() && self.is_known_whole(parent) {
            return Err(libc::ENOENT);
        }
        match self.about(&path).await {
            Ok(status) => Ok(self.told_of(parent, name, status)),
            Err(errno) => {
                if let (libc::ENOENT, Some(inode)) = (errno, known) {
                    self.shared.inodes().take_name(parent, name);
                    lock(&self.attributes).forget(inode);
                }
                if errno == libc::ENOENT {
                    lock(&self.later).on_absent(parent, name);
                }
                Err(errno)
            }
        }
    }

    /// A name that the kernel is told of, with what the server has just said about it.
    pub fn told_of(&self, parent: u64, name: &str, status: Status) -> Found {
        if self.has_write_cache() {
            let known = self.shared.inodes().find(parent, name);
            known.into_iter().for_each(|inode| _ = self.leave_outdated(inode, &status, Asked::Name));
        }
        let inode = self.shared.inodes().look_up(parent, name, status.kind);
        let status = self.learn(inode, status);
        if let (Some(told), Kind::File) = (&self.told, status.kind) {
            lock(told).tell(inode, &(parent, name.to_owned()), &status, Instant::now());
        }
        Found { inode, status }
    }

    pub fn forget(&self, inode: u64, lookups: u64) {
        let parent = self.parent(inode);
        if self.shared.inodes().forget(inode, lookups) {
            lock(&self.made).remove(&parent);
            lock(&self.made).remove(&inode);
            lock(&self.attributes).forget(inode);
            lock(&self.kept).remove(&inode);
            self.told.iter().for_each(|told| lock(told).forget(inode));
        }
    }

    pub async fn attributes(&self, inode: u64) -> Result<Status, i32> {
        if let Some(status) = self.unsettled(inode) {
            return Ok(status);
        }
        if let Some(status) = lock(&self.attributes).fresh(inode, Instant::now()) {
            return Ok(status.clone());
        }
        let Some(path) = self.shared.inodes().path(inode) else {
            // Open, and gone from the share.
            return lock(&self.attributes).last(inode).cloned().ok_or(libc::ESTALE);
        };
        let status = self.about(&path).await?;
        Ok(self.learn(inode, status))
    }

    pub async fn resize(&self, inode: u64, length: u64) -> Result<(), i32> {
        lock(&self.kept).remove(&inode);
        self.on_change(inode);
        let open = lock(&self.files).get(&inode).cloned();
        let resized = match open {
            Some(file) => file.resize(length).await,
            None => {
                let path = self.shared.path(inode)?;
                let what = format!("set the length of {path}");
                self.shared.patience.insist(what, |_| self.remote().resize(&path, length)).await
            }
        };
        lock(&self.attributes).forget(inode);
        resized
    }

    pub async fn set_modified(&self, inode: u64, modified: SystemTime) -> Result<(), i32> {
        self.on_change(inode);
        let open = lock(&self.files).get(&inode).cloned();
        if let Some(file) = open {
            // What is written later has a later time.
            file.settle().await;
        }
        let path = self.shared.path(inode)?;
        let what = format!("set the time of {path}");
        let set = self.shared.patience.insist(what, |_| self.remote().set_modified(&path, modified)).await;
        lock(&self.attributes).forget(inode);
        set
    }

    pub async fn make_directory(&self, parent: u64, name: &str) -> Result<Found, i32> {
        let path = self.path_of(parent, name)?;
        let made = self.shared.patience.insist(format!("make the directory {path}"), |again| {
            let path = path.clone();
            async move {
                match self.remote().make_directory(&path).await {
                    // It was ours, most likely: the answer to the first try is what got lost.
                    Err(Problem::Refused { errno: libc::EEXIST, .. }) if again => Ok(()),
                    made => made,
                }
            }
        });
        made.await.inspect_err(|errno| self.on_others_name(parent, *errno))?;
        let status = Status { kind: Kind::Directory, length: 0, modified: SystemTime::now(), etag: String::new() };
        let found = self.told_of(parent, name, status);
        lock(&self.later).on_made(found.inode);
        let mut made_here = lock(&self.made);
        made_here.retain(|_, at| at.elapsed() < BELIEVED);
        made_here.insert(found.inode, Instant::now());
        Ok(found)
    }

    /// A directory of which every name is known here.
    fn is_known_whole(&self, inode: u64) -> bool {
        lock(&self.made).get(&inode).is_some_and(|at| at.elapsed() < BELIEVED)
    }

    /// What is in the way was made by somebody else: not every name is known here after all.
    fn on_others_name(&self, parent: u64, errno: i32) {
        if errno == libc::EEXIST {
            lock(&self.made).remove(&parent);
        }
    }

    pub async fn remove(&self, parent: u64, name: &str, kind: Kind) -> Result<(), i32> {
        let inode = self.shared.inodes().find(parent, name);
        if let Some(inode) = inode.filter(|inode| kind == Kind::File && lock(&self.files).contains_key(inode)) {
            return self.hide(parent, name, inode).await;
        }
        if let Some(inode) = inode.filter(|_| kind == Kind::Directory) {
            self.make_within(inode).await;
        }
        let path = self.path_of(parent, name)?;
        self.remove_path(&path, kind).await?;
        self.shared.inodes().take_name(parent, name);
        inode.into_iter().for_each(|inode| lock(&self.attributes).forget(inode));
        Ok(())
    }

    async fn remove_path(&self, path: &str, kind: Kind) -> Result<(), i32> {
        let removed = self.shared.patience.insist(format!("remove {path}"), |again| async move {
            match self.remote().remove(path, kind).await {
                Err(Problem::Refused { errno: libc::ENOENT, .. }) if again => Ok(()),
                removed => removed,
            }
        });
        removed.await
    }

    /// Takes the name of an open file away; the file goes when it is closed.
    async fn hide(&self, parent: u64, name: &str, inode: u64) -> Result<(), i32> {
        let hidden = format!("{HIDDEN}{inode:08x}{}", self.next_handle.fetch_add(1, Ordering::Relaxed));
        self.rename((parent, name), (parent, &hidden), true).await?;
        lock(&self.hidden).insert(inode);
        Ok(())
    }

    pub fn is_hidden(name: &str) -> bool {
        name.starts_with(HIDDEN)
    }

    pub async fn rename(&self, from: (u64, &str), to: (u64, &str), replace: bool) -> Result<(), i32> {
        let (source, target) = (self.path_of(from.0, from.1)?, self.path_of(to.0, to.1)?);
        let (inode, taken) = {
            let inodes = self.shared.inodes();
            (inodes.find(from.0, from.1), inodes.find(to.0, to.1))
        };
        let kind = match inode.and_then(|inode| self.shared.inodes().kind(inode)) {
            Some(kind) => kind,
            None => self.about(&source).await?.kind,
        };
        for file in inode.into_iter().flat_map(|inode| self.open_within(inode)) {
            file.settle().await;
        }
        if let Some(taken) = taken.filter(|taken| replace && Some(*taken) != inode) {
            let open = lock(&self.files).contains_key(&taken);
            if open {
                Box::pin(self.hide(to.0, to.1, taken)).await?;
            }
            lock(&self.attributes).forget(taken);
        }
        let renamed = self.shared.patience.insist(format!("rename {source} to {target}"), |again| {
            let (source, target) = (source.clone(), target.clone());
            async move {
                match self.remote().rename(&source, &target, kind, replace).await {
                    Err(Problem::Refused { errno: libc::ENOENT | libc::EEXIST, why }) if again => {
                        // The first try may have done it.
                        let (old, new) = (self.remote().about(&source).await, self.remote().about(&target).await);
                        match (old, new) {
                            (Err(Problem::Refused { errno: libc::ENOENT, .. }), Ok(_)) => Ok(()),
                            // Nobody knows yet.
                            (Err(Problem::Passing { why }), _) | (_, Err(Problem::Passing { why })) => {
                                Err(Problem::Passing { why })
                            }
                            _ => Err(Problem::Refused { errno: libc::ENOENT, why }),
                        }
                    }
                    renamed => renamed,
                }
            }
        });
        lock(&self.made).remove(&to.0);
        renamed.await?;
        self.shared.inodes().rename(from, to);
        inode.into_iter().for_each(|inode| lock(&self.attributes).forget(inode));
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

    /// How full the share is.
    pub async fn room(&self) -> Result<Room, i32> {
        self.shared.patience.insist("ask for room", |_| self.remote().room()).await
    }

    async fn about(&self, path: &str) -> Result<Status, i32> {
        self.shared.patience.insist(format!("look at {path}"), |_| self.remote().about(path)).await
    }

    /// What programs of this machine are to see: the server's word, unless they have written since.
    fn learn(&self, inode: u64, status: Status) -> Status {
        let open = lock(&self.files).get(&inode).cloned();
        if let Some(file) = open {
            if let Some(unsettled) = file.unsettled() {
                return unsettled;
            }
            file.learn(&status);
        }
        lock(&self.attributes).learn(inode, status.clone(), Instant::now());
        status
    }

    fn unsettled(&self, inode: u64) -> Option<Status> {
        let open = lock(&self.files).get(&inode).cloned();
        open.and_then(|file| file.unsettled())
    }

    fn path_of(&self, parent: u64, name: &str) -> Result<String, i32> {
        if name.len() > 255 {
            return Err(libc::ENAMETOOLONG);
        }
        self.shared.inodes().path_of(parent, name).ok_or(libc::ESTALE)
    }
}

#[cfg(test)]
#[path = "volume_tests.rs"]
mod tests;
