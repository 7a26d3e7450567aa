//! The data directory and its exclusive lock: one server per directory. The lock is an advisory lock of the kernel, so it ends with
//! the process; the file `lock` names the holder for the error message of a second start.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use corro_base::atomic_file;
use corro_server::dir_lock::{DirLock, LockError};

use crate::HostingError;

/// A locked data directory. Dropping it releases the lock.
pub struct DataDir {
    path: PathBuf,
    lock: DirLock,
}

impl DataDir {
    /// Creates the directory if it is missing and locks it.
    pub fn lock(path: &Path) -> Result<Self, HostingError> {
        let failed = |error| HostingError::DataDirUnusable { path: path.to_owned(), error };
        DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(failed)?;
        let path = path.canonicalize().map_err(failed)?;
        match DirLock::exclusive(&path) {
            Ok(lock) => Ok(Self { path, lock }),
            Err(LockError::Held { holder }) => Err(already_running(&path, holder)),
            Err(LockError::Io(error)) => Err(failed(error)),
            Err(LockError::Readers) => Err(HostingError::DataDirRead { path }),
        }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// File that holds the server's URL. Agents read it when they have lost the server.
    pub fn url_file(&self) -> PathBuf {
        self.path.join("url")
    }

    /// Writes the URL file and names this process in the lock file.
    pub fn write_url(&self, url: &str) -> std::io::Result<()> {
        // Atomic: agents may read at any moment.
        atomic_file::replace(&self.url_file(), url.as_bytes(), 0o644)?;
        // Used in an error message only, so a failure is ignored.
        let _ = self.lock.write_holder(&format!("process {}, {url}", std::process::id()));
        Ok(())
    }
}

/// Error of a second start on the same directory.
fn already_running(path: &Path, holder: Option<String>) -> HostingError {
    // The lock file may have been removed; the URL file is another source.
    let url = || std::fs::read_to_string(path.join("url")).ok().map(|url| format!("last known at {url}"));
    let holder = holder.or_else(url).unwrap_or_else(|| "another process".to_owned());
    HostingError::DataDirInUse { path: path.to_owned(), holder }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_start_names_the_process_that_holds_the_lock() {
        let dir = tempfile::tempdir().expect("a temp dir");
        let first = DataDir::lock(dir.path()).expect("free");
        first.write_url("http://127.0.0.1:1").expect("it can be written");
        let message = DataDir::lock(dir.path()).err().expect("taken").to_string();
        assert!(message.contains("already running"), "{message}");
        assert!(message.contains("http://127.0.0.1:1"), "{message}");
        std::fs::remove_file(dir.path().join("lock")).expect("removed");
        let message = DataDir::lock(dir.path()).err().expect("still taken").to_string();
        assert!(message.contains("already running"), "{message}");
        assert!(message.contains("http://127.0.0.1:1"), "{message}");
        drop(first);
        DataDir::lock(dir.path()).expect("free again");
    }
}
