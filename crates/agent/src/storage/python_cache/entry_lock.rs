//! Lock of one entry of a cache: an advisory lock of the kernel on a file beside the entry, which ends with the process
//! that holds it. Shared by those who use the entry, exclusive for making and removing it. Never waits.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;

/// A lock that is held. Dropping it releases the lock.
#[derive(Debug)]
pub struct EntryLock {
    file: File,
    path: PathBuf,
}

impl EntryLock {
    /// `None` if the entry is being made or removed.
    pub fn try_shared(path: &Path) -> io::Result<Option<EntryLock>> {
        EntryLock::acquire(path, FlockOperation::NonBlockingLockShared)
    }

    /// `None` if the entry is in use.
    pub fn try_exclusive(path: &Path) -> io::Result<Option<EntryLock>> {
        EntryLock::acquire(path, FlockOperation::NonBlockingLockExclusive)
    }

    fn acquire(path: &Path, operation: FlockOperation) -> io::Result<Option<EntryLock>> {
        loop {
            let file = OpenOptions::new()
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .mode(0o600)
                .custom_flags(OFlags::NOFOLLOW.bits() as i32)
                .open(path)?;
            match flock(&file, operation) {
                Ok(()) => {}
                Err(Errno::WOULDBLOCK) => return Ok(None),
                Err(Errno::INTR) => continue,
                Err(errno) => return Err(errno.into()),
            }
            let lock = EntryLock { file, path: path.to_owned() };
            if lock.is_current()? {
                return Ok(Some(lock));
            }
        }
    }

    /// Turns an exclusive lock into a shared one. `None` if the entry was removed in between: the kernel releases the
    /// one before it takes the other.
    pub fn into_shared(self) -> io::Result<Option<EntryLock>> {
        match flock(&self.file, FlockOperation::NonBlockingLockShared) {
            Ok(()) => Ok(self.is_current()?.then_some(self)),
            Err(Errno::WOULDBLOCK) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }

    /// When the entry was last used.
    pub fn last_used(&self) -> io::Result<SystemTime> {
        self.file.metadata()?.modified()
    }

    pub fn mark_used(&self, now: SystemTime) -> io::Result<()> {
        self.file.set_modified(now)
    }

    /// Removes the file of an exclusive lock, after its entry.
    pub fn remove(self) -> io::Result<()> {
        std::fs::remove_file(&self.path)
    }

    /// Whether the file still has its name: another process may have removed it while this one waited to lock it.
    fn is_current(&self) -> io::Result<bool> {
        let own = self.file.metadata()?;
        match std::fs::symlink_metadata(&self.path) {
            Ok(found) => Ok((found.dev(), found.ino()) == (own.dev(), own.ino())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_share_an_entry_and_keep_it_from_being_removed() {
        let base = tempfile::tempdir().expect("a temporary directory");
        let path = base.path().join("a.lock");
        let shared = || EntryLock::try_shared(&path).expect("it can be opened");
        let exclusive = || EntryLock::try_exclusive(&path).expect("it can be opened");
        let users = [shared(), shared()];
        assert!(users.iter().all(Option::is_some) && exclusive().is_none());
        drop(users);
        let maker = exclusive().expect("free");
        assert!(shared().is_none() && exclusive().is_none());
        let user = maker.into_shared().expect("it can be changed").expect("nobody removed it");
        assert!(shared().is_some() && exclusive().is_none());
        drop(user);
        exclusive().expect("free").remove().expect("removed");
        assert!(!path.exists());
    }

    #[test]
    fn a_lock_on_a_removed_file_is_worth_nothing() {
        let base = tempfile::tempdir().expect("a temporary directory");
        let path = base.path().join("a.lock");
        let first = EntryLock::try_exclusive(&path).expect("opened").expect("free");
        std::fs::remove_file(&path).expect("removed");
        let second = EntryLock::try_exclusive(&path).expect("opened").expect("a file of its own");
        assert!(first.into_shared().expect("it can be changed").is_none());
        drop(second);
    }
}
