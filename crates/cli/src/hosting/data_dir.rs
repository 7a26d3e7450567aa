//! The data directory and the lock on it: one server at a time. The lock is the kernel's, so it goes with the process;
//! the file `lock` says who holds it, for the message a second start shows.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use corro_server::dir_lock::{DirLock, LockError};

use crate::failure::Failure;

pub struct DataDir {
    path: PathBuf,
    lock: DirLock,
}

impl DataDir {
    /// Makes the directory when it is not there and takes hold of it.
    pub fn hold(path: &Path) -> Result<Self, Failure> {
        let failed = |error: std::io::Error| {
            Failure::new(format!("cannot use {} as data directory: {error}", path.display()))
                .hint("choose another one with --data DIR")
        };
        DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(failed)?;
        let path = path.canonicalize().map_err(failed)?;
        match DirLock::exclusive(&path) {
            Ok(lock) => Ok(Self { path, lock }),
            Err(LockError::Held { holder }) => Err(already_running(&path, holder)),
            Err(LockError::Io(error)) => Err(failed(error)),
            Err(LockError::Readers) => {
                Err(Failure::new(format!("'corro admin backup' or 'corro admin check' still reads {}", path.display()))
                    .hint("wait until it ends, then start again"))
            }
        }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The file that agents find the server's address in.
    pub fn url_file(&self) -> PathBuf {
        self.path.join("url")
    }

    /// Writes down who holds the directory and where it listens.
    pub fn announce(&self, url: &str) -> std::io::Result<()> {
        // Whole or not at all: agents may look at any moment.
        let draft = self.path.join("url.draft");
        std::fs::write(&draft, url)?;
        std::fs::rename(&draft, self.url_file())?;
        // Only for a message: a failure changes nothing.
        let _ = self.lock.write_holder(&format!("process {}, {url}", std::process::id()));
        Ok(())
    }
}

fn already_running(path: &Path, holder: Option<String>) -> Failure {
    // The file with the name of the holder may have been removed; the address lies in another.
    let url = || std::fs::read_to_string(path.join("url")).ok().map(|url| format!("last known at {url}"));
    let holder = holder.or_else(url).unwrap_or_else(|| "another process".to_owned());
    Failure::new(format!("Corro is already running on {} ({holder})", path.display()))
        .hint("use that one, stop it with Ctrl-C, or give this one a directory of its own with --data DIR")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_holder_is_told_about_the_first() {
        let dir = tempfile::tempdir().expect("a temp dir");
        let first = DataDir::hold(dir.path()).expect("free");
        first.announce("http://127.0.0.1:1").expect("it can be written");
        let failure = DataDir::hold(dir.path()).err().expect("taken");
        assert!(failure.message.contains("already running"), "{}", failure.message);
        assert!(failure.message.contains("http://127.0.0.1:1"), "{}", failure.message);
        std::fs::remove_file(dir.path().join("lock")).expect("removed");
        let failure = DataDir::hold(dir.path()).err().expect("still taken");
        assert!(failure.message.contains("already running"), "{}", failure.message);
        assert!(failure.message.contains("http://127.0.0.1:1"), "{}", failure.message);
        drop(first);
        DataDir::hold(dir.path()).expect("free again");
    }
}
