//! The data directory and the lock on it: one server at a time. The lock is the kernel's, so it goes with the process;
//! the file says who holds it, for the message a second start shows.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

use crate::failure::Failure;

pub struct DataDir {
    path: PathBuf,
    lock: File,
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
        let options = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).to_owned();
        let mut lock = options.open(path.join("lock")).map_err(failed)?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Self { path, lock }),
            Err(rustix::io::Errno::WOULDBLOCK) => Err(already_running(&path, &mut lock)),
            Err(errno) => Err(failed(errno.into())),
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
        let mut file = &self.lock;
        // Only for a message: a failure changes nothing.
        let _ = file.set_len(0).and_then(|()| file.rewind());
        let _ = writeln!(file, "process {}, {url}", std::process::id());
        Ok(())
    }
}

fn already_running(path: &Path, lock: &mut File) -> Failure {
    let mut holder = String::new();
    let _ = lock.read_to_string(&mut holder);
    let holder = match holder.trim() {
        "" => "another process".to_owned(),
        holder => holder.to_owned(),
    };
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
        drop(first);
        DataDir::hold(dir.path()).expect("free again");
    }
}
