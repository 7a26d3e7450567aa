//! Cache of the Python environments of jobs, one directory for each content key, shared by the nodes that are given the
//! same directory. An environment is made once, in a directory that nobody uses before a record says that it is
//! complete, so that one whose maker was killed is never used; it is not moved afterwards, since virtual environments
//! contain their path. The cache is bounded; what is in use is never removed.
//!
//! On the disk: `KEY.lock` (see [`entry_lock`]; its modification time is that of the last use), `KEY/complete.json` (the
//! record) and `KEY/NAME/`, the directory that jobs see. All functions block on the disk.

mod entry_lock;
mod eviction;

use std::collections::BTreeSet;
use std::fs::{DirBuilder, File};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use crate::fs::{dirfd, json_file};

use entry_lock::EntryLock;
use eviction::{Candidate, choose_evictions};

pub use eviction::CacheLimits;

/// The cache.
#[derive(Debug)]
pub struct PythonCache {
    root: PathBuf,
    limits: CacheLimits,
}

/// Identifies the content of an environment.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct EnvironmentKey(String);

/// A complete environment. It stays as long as this exists.
#[derive(Debug)]
pub struct CachedEnvironment {
    directory: PathBuf,
    _lock: EntryLock,
}

/// A directory in which an environment is to be made. Nobody else makes one of the same key meanwhile.
#[derive(Debug)]
pub struct UnfinishedEnvironment {
    directory: PathBuf,
    name: String,
    lock: EntryLock,
}

/// State of an environment that a job needs.
#[derive(Debug)]
pub enum Lookup {
    Complete(CachedEnvironment),
    /// There is none: the caller makes it.
    Missing(UnfinishedEnvironment),
    /// Another job makes or removes it.
    Busy,
}

/// What is known of a complete environment.
#[derive(Debug, Serialize, Deserialize)]
struct Record {
    /// Name of its directory.
    directory: String,
    bytes: u64,
}

const RECORD_FILE: &str = "complete.json";
const LOCK_SUFFIX: &str = ".lock";
/// The environment in the directory that jobs see. Programs that make one want to create its directory themselves.
const ENVIRONMENT: &str = "env";

impl EnvironmentKey {
    pub fn new(digest: &[u8; 32]) -> EnvironmentKey {
        EnvironmentKey(digest[..16].iter().map(|byte| format!("{byte:02x}")).collect())
    }

    /// The key of a directory with this name.
    fn parse(name: &str) -> Option<EnvironmentKey> {
        let is_key = name.len() == 32 && name.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        is_key.then(|| EnvironmentKey(name.to_owned()))
    }
}

impl CachedEnvironment {
    /// The directory that jobs see; it contains the environment.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    pub fn environment(&self) -> PathBuf {
        self.directory.join(ENVIRONMENT)
    }
}

impl UnfinishedEnvironment {
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Where the environment is to be made. Does not exist yet.
    pub fn environment(&self) -> PathBuf {
        self.directory.join(ENVIRONMENT)
    }
}

impl PythonCache {
    /// The cache in `root`, which need not exist yet. Its parent must.
    pub fn open(root: &Path, limits: CacheLimits) -> io::Result<PythonCache> {
        let root = match (root.canonicalize(), root.parent(), root.file_name()) {
            (Ok(root), ..) => root,
            (Err(_), Some(parent), Some(name)) => parent.canonicalize()?.join(name),
            (Err(error), ..) => return Err(error),
        };
        Ok(PythonCache { root, limits })
    }

    /// Absolute, without symbolic links.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Looks up an environment, and marks it as used.
    pub fn look_up(&self, key: &EnvironmentKey) -> io::Result<Lookup> {
        DirBuilder::new().recursive(true).mode(0o700).create(&self.root)?;
        loop {
            let Some(lock) = EntryLock::try_shared(&self.lock_path(key))? else { return Ok(Lookup::Busy) };
            if let Some(record) = self.record(key) {
                lock.mark_used(SystemTime::now())?;
                let directory = self.entry(key).join(record.directory);
                return Ok(Lookup::Complete(CachedEnvironment { directory, _lock: lock }));
            }
            drop(lock);
            let Some(lock) = EntryLock::try_exclusive(&self.lock_path(key))? else { return Ok(Lookup::Busy) };
            // Another job may have made it between the two locks.
            if self.record(key).is_none() {
                return self.begin(key, lock).map(Lookup::Missing);
            }
        }
    }

    /// Makes an empty directory in place of one that another job left unfinished, and room for it.
    fn begin(&self, key: &EnvironmentKey, lock: EntryLock) -> io::Result<UnfinishedEnvironment> {
        dirfd::remove(self.handle()?, &key.0)?;
        // A name of its own: processes of a killed agent may still write into the directory of the same key.
        let mut random = [0; 4];
        getrandom::fill(&mut random).map_err(io::Error::other)?;
        let name: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
        let directory = self.entry(key).join(&name);
        DirBuilder::new().recursive(true).mode(0o700).create(&directory)?;
        self.evict()?;
        Ok(UnfinishedEnvironment { directory, name, lock })
    }

    /// Declares an environment complete once it is on the disk, and returns it with its size. `None` if it was removed
    /// at once, because the cache is full.
    pub fn finish(
        &self,
        key: &EnvironmentKey,
        made: UnfinishedEnvironment,
    ) -> io::Result<Option<(CachedEnvironment, u64)>> {
        let UnfinishedEnvironment { directory, name, lock } = made;
        let bytes = disk_usage(&directory)?;
        rustix::fs::syncfs(File::open(&directory)?)?;
        json_file::write(&self.entry(key).join(RECORD_FILE), &Record { directory: name, bytes })?;
        lock.mark_used(SystemTime::now())?;
        self.evict()?;
        let lock = lock.into_shared()?.filter(|_| directory.is_dir());
        Ok(lock.map(|lock| (CachedEnvironment { directory, _lock: lock }, bytes)))
    }

    /// Removes an environment that could not be made.
    pub fn discard(&self, key: &EnvironmentKey, unfinished: UnfinishedEnvironment) -> io::Result<()> {
        self.remove(key, unfinished.lock)
    }

    /// Removes what killed agents left unfinished.
    pub fn remove_unfinished(&self) -> io::Result<()> {
        for key in self.keys()? {
            if self.record(&key).is_none()
                && let Some(lock) = EntryLock::try_exclusive(&self.lock_path(&key))?
                && self.record(&key).is_none()
            {
                self.remove(&key, lock)?;
            }
        }
        Ok(())
    }

    /// Removes environments until the cache is within its limits.
    fn evict(&self) -> io::Result<()> {
        let (mut entries, mut candidates) = (Vec::new(), Vec::new());
        for key in self.keys()?.into_iter().filter(|key| self.entry(key).is_dir()) {
            let bytes = self.record(&key).map_or(0, |record| record.bytes);
            let lock = EntryLock::try_exclusive(&self.lock_path(&key))?;
            let last_used = lock.as_ref().map_or(Ok(SystemTime::UNIX_EPOCH), EntryLock::last_used)?;
            candidates.push(Candidate { last_used, bytes, is_in_use: lock.is_none() });
            entries.push((key, lock));
        }
        for idx in choose_evictions(&candidates, self.limits) {
            let (key, lock) = &mut entries[idx];
            let removed = lock.take().map_or(Ok(()), |lock| self.remove(key, lock));
            match removed {
                Ok(()) => tracing::info!(key = key.0, "removed the least recently used Python environment"),
                // A directory that cannot be removed must not make every further job fail.
                Err(error) => tracing::warn!(%error, key = key.0, "a Python environment could not be removed"),
            }
        }
        Ok(())
    }

    /// Removes an entry. The record goes first, so that an entry that is removed in part is not used.
    fn remove(&self, key: &EnvironmentKey, lock: EntryLock) -> io::Result<()> {
        json_file::remove(&self.entry(key).join(RECORD_FILE))?;
        dirfd::remove(self.handle()?, &key.0)?;
        lock.remove()
    }

    /// The record of an environment, if it is complete.
    fn record(&self, key: &EnvironmentKey) -> Option<Record> {
        let entry = self.entry(key);
        // An unreadable record is as good as none: the environment is made again.
        let record: Record = json_file::read(&entry.join(RECORD_FILE)).ok().flatten()?;
        entry.join(&record.directory).is_dir().then_some(record)
    }

    /// Keys of all entries, complete or not, and of locks without an entry.
    fn keys(&self) -> io::Result<BTreeSet<EnvironmentKey>> {
        let entries = match std::fs::read_dir(&self.root) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeSet::new()),
            entries => entries?,
        };
        let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
        Ok(names.filter_map(|name| EnvironmentKey::parse(name.strip_suffix(LOCK_SUFFIX).unwrap_or(&name))).collect())
    }

    fn entry(&self, key: &EnvironmentKey) -> PathBuf {
        self.root.join(&key.0)
    }

    fn lock_path(&self, key: &EnvironmentKey) -> PathBuf {
        self.root.join(format!("{}{LOCK_SUFFIX}", key.0))
    }

    fn handle(&self) -> io::Result<OwnedFd> {
        dirfd::open_directory(&self.root)
    }
}

/// Bytes that a tree occupies on the disk. Follows no symbolic link.
fn disk_usage(root: &Path) -> io::Result<u64> {
    let mut n_blocks = 0;
    let mut directories = vec![root.to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(directory)? {
            let entry = entry?;
            let metadata = entry.metadata()?;
            n_blocks += metadata.blocks();
            if metadata.is_dir() {
                directories.push(entry.path());
            }
        }
    }
    // The unit of `st_blocks`, on every file system.
    Ok(n_blocks * 512)
}

#[cfg(test)]
mod tests;
