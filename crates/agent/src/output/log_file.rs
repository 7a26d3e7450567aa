//! Log files of a job and of the setup task, appended to by several nodes at once. A write error never stops the
//! process that produces the output: its output is read on, and the loss is reported at the end.

use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use corro_model::NodeId;
use corro_model::node::TaskFailure;

use crate::output::output_dir::OutputDir;
use crate::task_errors;

/// A file opened with O_APPEND: the kernel puts each write at the current end.
#[derive(Debug)]
pub struct LogFile {
    path: PathBuf,
    file: File,
    loss: Mutex<Option<LostBytes>>,
}

/// Number of bytes that could not be written, and the first error.
#[derive(Debug)]
struct LostBytes {
    cause: io::Error,
    n_bytes: u64,
}

impl LogFile {
    /// Opens or creates the file. It stays open if its volume is unmounted. A symlink, pipe, device or directory of
    /// that name is refused without blocking.
    pub fn open(directory: &OutputDir, name: &str, node: &NodeId) -> Result<Arc<LogFile>, TaskFailure> {
        let path = directory.path().join(name);
        match directory.append(name) {
            Ok(file) => Ok(Arc::new(LogFile { path, file, loss: Mutex::new(None) })),
            Err(error) => Err(task_errors::log_write(&path, node, 0, &error)),
        }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the file is empty.
    pub fn is_empty(&self) -> bool {
        self.file.metadata().is_ok_and(|file| file.len() == 0)
    }

    /// Terminates a line that an earlier attempt left incomplete. For files with a single writer.
    pub fn terminate_partial_line(&self) {
        let mut last = [b'\n'];
        let length = self.file.metadata().map_or(0, |file| file.len());
        if length > 0 && self.file.read_exact_at(&mut last, length - 1).is_ok() && last != [b'\n'] {
            self.append(b"\n");
        }
    }

    /// Appends a block in one write, so that blocks of other writers do not interleave. Blocks on the disk.
    pub fn append(&self, block: &[u8]) {
        let mut rest = block;
        while !rest.is_empty() {
            match (&self.file).write(rest) {
                Ok(n) if n > 0 => rest = &rest[n..],
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Ok(_) => return self.record_loss(rest, ErrorKind::WriteZero.into()),
                Err(error) => return self.record_loss(rest, error),
            }
        }
    }

    /// The failure to report, if bytes are missing from the file.
    pub fn failure(&self, node: &NodeId) -> Option<TaskFailure> {
        self.loss().as_ref().map(|loss| task_errors::log_write(&self.path, node, loss.n_bytes, &loss.cause))
    }

    #[cfg(test)]
    pub fn of_test(path: &str, file: File) -> LogFile {
        LogFile { path: path.into(), file, loss: Mutex::new(None) }
    }

    #[cfg(test)]
    pub fn n_lost_bytes(&self) -> Option<u64> {
        self.loss().as_ref().map(|loss| loss.n_bytes)
    }

    fn record_loss(&self, rest: &[u8], cause: io::Error) {
        self.loss().get_or_insert(LostBytes { cause, n_bytes: 0 }).n_bytes += rest.len() as u64;
    }

    fn loss(&self) -> MutexGuard<'_, Option<LostBytes>> {
        self.loss.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use rustix::fs;

    use super::*;
    use crate::testing;

    const STDOUT: &str = "stdout.txt";

    #[test]
    fn several_writers_append_to_one_file() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let node = testing::node(1);
        let output = OutputDir::of_test(directory.path(), "");
        let logs = [0, 1].map(|_| LogFile::open(&output, STDOUT, &node).expect("it opens"));
        for log in logs.iter().chain(&logs) {
            log.append(b"line\n");
        }
        assert_eq!(std::fs::read(logs[0].path()).expect("it is there"), b"line\nline\nline\nline\n");
        assert_eq!(logs[0].failure(&node), None);
    }

    #[test]
    fn a_partial_line_is_terminated_once() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let log =
            LogFile::open(&OutputDir::of_test(directory.path(), ""), STDOUT, &testing::node(1)).expect("it opens");
        log.terminate_partial_line();
        log.append(b"whole\nhalf");
        log.terminate_partial_line();
        log.terminate_partial_line();
        log.append(b"next");
        assert_eq!(std::fs::read(log.path()).expect("it is there"), b"whole\nhalf\nnext");
    }

    #[test]
    fn lost_bytes_are_counted_and_reported() {
        let node = testing::node(1);
        // Every write to this file fails as on a full disk.
        let file = File::options().append(true).open("/dev/full").expect("Linux has it");
        let log = LogFile::of_test("/logs/stdout.txt", file);
        log.append(b"12345");
        log.append(b"123");
        let failure = log.failure(&node).expect("bytes were lost");
        assert_eq!((failure.error.code.as_str(), failure.exit_code), ("LogWriteFailed", Some(-1)));
        let details: Vec<&str> = failure.error.details.iter().map(|detail| detail.value.as_str()).collect();
        assert_eq!(details[..2], [node.as_str(), "/logs/stdout.txt"]);
        assert!(details[2].starts_with("No space left on device") && details[2].contains("8 bytes"), "{}", details[2]);
    }

    #[test]
    fn a_pipe_is_refused_at_once() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join(STDOUT);
        fs::mknodat(fs::CWD, &path, fs::FileType::Fifo, fs::Mode::RWXU, 0).expect("a pipe");
        let output = OutputDir::of_test(directory.path(), "");
        let error = LogFile::open(&output, STDOUT, &testing::node(1)).expect_err("it is no file");
        assert_eq!(error.error.code, "LogWriteFailed");
    }

    #[test]
    fn a_link_is_refused_and_what_it_leads_to_stays() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let output = OutputDir::of_test(directory.path(), "logs");
        std::fs::write(directory.path().join("key"), "secret").expect("a file");
        std::os::unix::fs::symlink(directory.path().join("key"), output.path().join(STDOUT)).expect("a link");
        let error = LogFile::open(&output, STDOUT, &testing::node(1)).expect_err("it is a link").error;
        let info = &error.details.last().expect("a cause").value;
        assert!(info.contains("symbolic link"), "{info}");
        assert_eq!(std::fs::read_to_string(directory.path().join("key")).expect("it stays"), "secret");
    }
}
