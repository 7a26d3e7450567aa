//! The log of a server in the background: `server.log` in its data directory. A log that has reached its limit becomes `server.log.1`, which replaces
//! the one before, so both together have at most twice the limit.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

pub const LOG_FILE: &str = "server.log";
const MAX_LOG_BYTES: u64 = 16 * 1024 * 1024;

/// A writer of the log; clones write to the same file.
#[derive(Clone, Debug)]
pub struct ServerLog {
    shared: Arc<Mutex<LogFile>>,
}

#[derive(Debug)]
struct LogFile {
    path: PathBuf,
    file: File,
    max_bytes: u64,
    /// Whether standard output and standard error are this file too.
    is_stdio: bool,
}

impl ServerLog {
    /// Opens the log in a data directory, to append to it.
    pub fn open(data: &Path) -> io::Result<ServerLog> {
        ServerLog::open_with_limit(&data.join(LOG_FILE), MAX_LOG_BYTES)
    }

    fn open_with_limit(path: &Path, max_bytes: u64) -> io::Result<ServerLog> {
        let log = LogFile { path: path.to_owned(), file: open(path)?, max_bytes, is_stdio: false };
        Ok(ServerLog { shared: Arc::new(Mutex::new(log)) })
    }

    pub fn path(&self) -> PathBuf {
        self.lock().path.clone()
    }

    /// Makes the log this process's standard output and standard error, from which panics and messages come.
    pub fn replace_stdio(&self) -> io::Result<()> {
        let mut log = self.lock();
        log.is_stdio = true;
        log.duplicate_to_stdio()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, LogFile> {
        self.shared.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl Write for ServerLog {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut log = self.lock();
        // Messages that did not pass through this writer count too.
        if log.file.metadata().is_ok_and(|metadata| metadata.len() >= log.max_bytes) {
            // A log that cannot be renamed grows; nothing is lost.
            let _ = log.rotate();
        }
        log.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl LogFile {
    fn rotate(&mut self) -> io::Result<()> {
        fs::rename(&self.path, self.path.with_extension("log.1"))?;
        self.file = open(&self.path)?;
        if self.is_stdio { self.duplicate_to_stdio() } else { Ok(()) }
    }

    fn duplicate_to_stdio(&self) -> io::Result<()> {
        rustix::stdio::dup2_stdout(&self.file)?;
        Ok(rustix::stdio::dup2_stderr(&self.file)?)
    }
}

fn open(path: &Path) -> io::Result<File> {
    File::options().append(true).create(true).mode(0o600).open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_log_is_renamed_and_the_one_before_replaced() {
        let dir = tempfile::tempdir().expect("a temp dir");
        let path = dir.path().join(LOG_FILE);
        let text = |name: &str| fs::read_to_string(dir.path().join(name)).unwrap_or_default();
        fs::write(&path, "old\n").expect("written");
        let mut log = ServerLog::open_with_limit(&path, 12).expect("opened");
        for line in ["one\n", "two\n", "three\n", "four\n", "five\n"] {
            log.clone().write_all(line.as_bytes()).expect("written");
        }
        assert_eq!(
            (text("server.log.1").as_str(), text(LOG_FILE).as_str()),
            ("old\none\ntwo\n", "three\nfour\nfive\n")
        );
        log.write_all(b"six\n").expect("written");
        assert_eq!((text("server.log.1").as_str(), text(LOG_FILE).as_str()), ("three\nfour\nfive\n", "six\n"));
        assert_eq!(fs::read_dir(dir.path()).expect("listed").count(), 2);
    }
}
