//! Lock of a data directory: one server, or any number of readers while no server runs. It is `flock` on the directory
//! itself, which cannot be removed while in use, and on the file `lock` in it, which older versions use and which names
//! the holder. The kernel releases both when the process ends.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

const LOCK_FILE: &str = "lock";
/// How long a server waits for a backup or check of its directory.
const READERS_TIMEOUT: Duration = Duration::from_secs(60);

#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// `holder` is the description that the holder wrote, if it can be read.
    #[error("another process has locked the directory")]
    Held { holder: Option<String> },
    #[error("a backup or a check of the directory does not finish")]
    Readers,
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Exclusive lock of the server.
#[derive(Debug)]
pub struct DirLock {
    _directory: File,
    file: File,
}

/// Shared lock of commands that read a directory while no server runs.
#[derive(Debug)]
pub struct SharedDirLock {
    // Released before the directory: a server locks the directory first, and must not find the file still locked.
    _file: Option<File>,
    _directory: File,
}

impl DirLock {
    /// Waits for readers, but not for another server.
    pub fn exclusive(dir: &Path) -> Result<Self, LockError> {
        let directory = File::open(dir)?;
        let deadline = Instant::now() + READERS_TIMEOUT;
        while !try_lock(&directory, FlockOperation::NonBlockingLockExclusive)? {
            if !try_lock(&directory, FlockOperation::NonBlockingLockShared)? {
                return Err(LockError::Held { holder: read_holder(dir) });
            }
            if Instant::now() >= deadline {
                return Err(LockError::Readers);
            }
            flock(&directory, FlockOperation::Unlock).map_err(io::Error::from)?;
            std::thread::park_timeout(Duration::from_millis(10));
        }
        let options = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).to_owned();
        let file = options.open(dir.join(LOCK_FILE))?;
        match try_lock(&file, FlockOperation::NonBlockingLockExclusive)? {
            true => Ok(Self { _directory: directory, file }),
            false => Err(LockError::Held { holder: read_holder(dir) }),
        }
    }

    /// Writes a description of the holder, for the error message of a second start.
    pub fn write_holder(&self, holder: &str) -> io::Result<()> {
        let mut file = &self.file;
        file.set_len(0)?;
        file.rewind()?;
        writeln!(file, "{holder}")
    }
}

impl SharedDirLock {
    /// `None` if a server holds the directory.
    pub fn acquire(dir: &Path) -> io::Result<Option<Self>> {
        let directory = File::open(dir)?;
        if !try_lock(&directory, FlockOperation::NonBlockingLockShared)? {
            return Ok(None);
        }
        let file = match File::open(dir.join(LOCK_FILE)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            file => Some(file?),
        };
        let free = match &file {
            Some(file) => try_lock(file, FlockOperation::NonBlockingLockShared)?,
            None => true,
        };
        Ok(free.then_some(Self { _directory: directory, _file: file }))
    }
}

fn try_lock(file: &File, operation: FlockOperation) -> io::Result<bool> {
    match flock(file, operation) {
        Ok(()) => Ok(true),
        Err(Errno::WOULDBLOCK) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}

fn read_holder(dir: &Path) -> Option<String> {
    let mut holder = String::new();
    File::open(dir.join(LOCK_FILE)).ok()?.take(1024).read_to_string(&mut holder).ok()?;
    Some(holder.trim().to_owned()).filter(|holder| !holder.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_directory_stays_locked_without_its_lock_file() {
        let dir = tempfile::tempdir().expect("a temp dir");
        let lock = DirLock::exclusive(dir.path()).expect("free");
        lock.write_holder("process 7").expect("written");
        let holder = || match DirLock::exclusive(dir.path()) {
            Err(LockError::Held { holder }) => holder,
            other => panic!("{other:?}"),
        };
        assert_eq!(holder().as_deref(), Some("process 7"));
        std::fs::remove_file(dir.path().join(LOCK_FILE)).expect("removed");
        assert_eq!(holder(), None);
        assert!(!dir.path().join(LOCK_FILE).exists(), "a refused start makes nothing");
        assert!(SharedDirLock::acquire(dir.path()).expect("asked").is_none());
        drop(lock);
        let readers = [0; 2].map(|_| SharedDirLock::acquire(dir.path()).expect("asked").expect("free"));
        let server = std::thread::scope(|scope| {
            let server = scope.spawn(|| DirLock::exclusive(dir.path()));
            drop(readers);
            server.join().expect("it ends")
        });
        server.expect("it waited for the readers");
    }

    #[test]
    fn a_server_of_an_older_version_holds_the_lock_file_alone() {
        let dir = tempfile::tempdir().expect("a temp dir");
        let file = File::create(dir.path().join(LOCK_FILE)).expect("made");
        flock(&file, FlockOperation::NonBlockingLockExclusive).expect("free");
        assert!(matches!(DirLock::exclusive(dir.path()), Err(LockError::Held { .. })));
        assert!(SharedDirLock::acquire(dir.path()).expect("asked").is_none());
    }
}
