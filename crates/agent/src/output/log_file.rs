//! The files in a job's `stdouterr` directory and those of the setup task: their names, and appending to them from several nodes at once. Entered by
//! `prepare`, `ranks` and `execution_log`. A log that cannot be written never stops the process that writes it: its output
//! is read on, and the loss is reported when it has ended.

use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use corro_launch::lines::Sink;
use corro_model::NodeId;
use corro_model::node::{TaskFailure, TaskOrder};

use crate::output::curve_recorder::Listener;
use crate::output::execution_log::ExecutionLog;
use crate::output::output_dir::OutputDir;
use crate::state::lease::LeaseExpiry;
use crate::task_errors;

/// Names of the files this node writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogNames {
    pub execution: String,
    pub preparation_stdout: String,
    pub preparation_stderr: String,
}

impl LogNames {
    /// With one node the names are plain; with several each node has its own.
    pub fn new(order: &TaskOrder, node: &NodeId) -> LogNames {
        let suffix = if order.hosts.len() > 1 { format!("-{node}") } else { String::new() };
        LogNames {
            execution: format!("execution{suffix}.log"),
            preparation_stdout: format!("stdout-job_prep{suffix}.txt"),
            preparation_stderr: format!("stderr-job_prep{suffix}.txt"),
        }
    }
}

/// Names of the files that this node's setup task leaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetupNames {
    pub execution: String,
    pub stdout: String,
    pub stderr: String,
}

impl SetupNames {
    pub fn new(node: &NodeId) -> SetupNames {
        SetupNames {
            execution: format!("execution-{node}.log"),
            stdout: format!("stdout-{node}.txt"),
            stderr: format!("stderr-{node}.txt"),
        }
    }
}

/// One file, opened for appending: the kernel puts each block at the end as it is at that moment.
#[derive(Debug)]
pub struct LogFile {
    path: PathBuf,
    file: File,
    loss: Mutex<Option<Loss>>,
}

/// What could not be written, and the first reason.
#[derive(Debug)]
struct Loss {
    cause: io::Error,
    n_bytes: u64,
}

impl LogFile {
    /// Opens the file, making it if need be; it stays open when the volume it lies on is unmounted. A link, pipe, device or
    /// directory of that name is refused, and not waited for.
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

    /// Has nothing been written to it, by anybody?
    pub fn is_empty(&self) -> bool {
        self.file.metadata().is_ok_and(|file| file.len() == 0)
    }

    /// Ends the line in the middle of which an earlier attempt was cut off. For files that one process writes to.
    pub fn end_half_line(&self) {
        let mut last = [b'\n'];
        let length = self.file.metadata().map_or(0, |file| file.len());
        if length > 0 && self.file.read_exact_at(&mut last, length - 1).is_ok() && last != [b'\n'] {
            self.append(b"\n");
        }
    }

    /// One block in one write, so that nobody else's block lands in its middle. Blocks on the disk.
    pub fn append(&self, block: &[u8]) {
        let mut rest = block;
        while !rest.is_empty() {
            match (&self.file).write(rest) {
                Ok(n) if n > 0 => rest = &rest[n..],
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Ok(_) => return self.lose(rest, ErrorKind::WriteZero.into()),
                Err(error) => return self.lose(rest, error),
            }
        }
    }

    /// What is missing from the file so far.
    pub fn failure(&self, node: &NodeId) -> Option<TaskFailure> {
        self.loss().as_ref().map(|loss| task_errors::log_write(&self.path, node, loss.n_bytes, &loss.cause))
    }

    /// A destination for `lines::pump_into` that never fails; somebody may listen. What comes too late goes to `late`.
    pub fn heard_by(self: &Arc<Self>, listener: Option<Listener>, late: Option<LateOutput>) -> LogSink {
        LogSink { log: Arc::clone(self), listener, late }
    }

    fn lose(&self, rest: &[u8], cause: io::Error) {
        self.loss().get_or_insert(Loss { cause, n_bytes: 0 }).n_bytes += rest.len() as u64;
    }

    fn loss(&self) -> MutexGuard<'_, Option<Loss>> {
        self.loss.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Output that an agent reads when its lease is over, because it was frozen: the job may run elsewhere by then, and the next attempt write
/// to the same files. Nothing of it is lost and nothing mixed: it goes to the execution log, in whole entries that say what they are.
#[derive(Clone, Debug)]
pub struct LateOutput {
    expiry: LeaseExpiry,
    execution: ExecutionLog,
    /// Of whom, for people.
    source: String,
}

impl LateOutput {
    pub fn new(expiry: LeaseExpiry, execution: ExecutionLog, source: String) -> LateOutput {
        LateOutput { expiry, execution, source }
    }

    /// For one of the streams of a process.
    pub fn of(&self, stream: &str) -> LateOutput {
        LateOutput { source: format!("{stream} of {}", self.source), ..self.clone() }
    }

    fn append(&self, block: &[u8]) {
        let text = String::from_utf8_lossy(block);
        let source = &self.source;
        self.execution.line(format_args!("Read from {source} after the lease of this node was over:\n{text}"));
    }
}

pub struct LogSink {
    log: Arc<LogFile>,
    listener: Option<Listener>,
    late: Option<LateOutput>,
}

impl LogSink {
    pub fn path(&self) -> &Path {
        self.log.path()
    }
}

impl Sink for LogSink {
    fn write(&mut self, block: &[u8]) -> impl Future<Output = io::Result<()>> + Send {
        let (log, listener, block) = (Arc::clone(&self.log), self.listener.clone(), block.to_vec());
        let late = self.late.clone();
        // On a thread that may wait for the disk. Fails only when the runtime ends.
        let written = tokio::task::spawn_blocking(move || {
            match late.filter(|late| late.expiry.is_over()) {
                Some(late) => return late.append(&block),
                None => log.append(&block),
            }
            if let Some(listener) = listener {
                listener.hear(&block);
            }
        });
        async move { written.await.map_err(io::Error::other) }
    }
}

#[cfg(test)]
mod tests {
    use corro_launch::lines::Mode;
    use rustix::fs;

    use super::*;
    use crate::testing;

    const STDOUT: &str = "stdout.txt";

    #[test]
    fn names_follow_the_number_of_nodes() {
        let names = |n_nodes| LogNames::new(&testing::order(n_nodes), &testing::node(2));
        let check = |names: LogNames, expected: [&str; 3]| {
            assert_eq!([&names.execution, &names.preparation_stdout, &names.preparation_stderr], expected);
        };
        check(names(1), ["execution.log", "stdout-job_prep.txt", "stderr-job_prep.txt"]);
        check(
            names(2),
            [
                "execution-tvm-1_2-20180718t174802z-p.log",
                "stdout-job_prep-tvm-1_2-20180718t174802z-p.txt",
                "stderr-job_prep-tvm-1_2-20180718t174802z-p.txt",
            ],
        );
    }

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
    fn a_line_that_was_cut_off_is_ended_once() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let log =
            LogFile::open(&OutputDir::of_test(directory.path(), ""), STDOUT, &testing::node(1)).expect("it opens");
        log.end_half_line();
        log.append(b"whole\nhalf");
        log.end_half_line();
        log.end_half_line();
        log.append(b"next");
        assert_eq!(std::fs::read(log.path()).expect("it is there"), b"whole\nhalf\nnext");
    }

    #[test]
    fn what_cannot_be_written_is_counted_and_named() {
        let node = testing::node(1);
        // Every write to this file fails as on a full disk.
        let file = File::options().append(true).open("/dev/full").expect("Linux has it");
        let log = LogFile { path: "/logs/stdout.txt".into(), file, loss: Mutex::new(None) };
        log.append(b"12345");
        log.append(b"123");
        let failure = log.failure(&node).expect("bytes were lost");
        assert_eq!((failure.error.code.as_str(), failure.exit_code), ("LogWriteFailed", Some(-1)));
        let details: Vec<&str> = failure.error.details.iter().map(|detail| detail.value.as_str()).collect();
        assert_eq!(details[..2], [node.as_str(), "/logs/stdout.txt"]);
        assert!(details[2].starts_with("No space left on device") && details[2].contains("8 bytes"), "{}", details[2]);
    }

    /// The process that writes must be able to go on, however full the disk is.
    #[tokio::test]
    async fn output_is_read_to_its_end_though_nothing_can_be_written() {
        let file = File::options().append(true).open("/dev/full").expect("Linux has it");
        let log = Arc::new(LogFile { path: "/logs/stdout.txt".into(), file, loss: Mutex::new(None) });
        let output = vec![b'x'; 300_000];
        let n_read = corro_launch::lines::pump_into(&output[..], Mode::Raw, None, &mut log.heard_by(None, None)).await;
        assert_eq!(n_read.expect("the sink never fails"), 300_000);
        assert_eq!(log.loss().as_ref().map(|loss| loss.n_bytes), Some(300_000));
    }

    /// As of an agent that was frozen for longer than its lease.
    #[tokio::test]
    async fn output_that_is_read_too_late_goes_to_the_execution_log() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let node = testing::node(1);
        let output = OutputDir::of_test(directory.path(), "");
        let log = LogFile::open(&output, STDOUT, &node).expect("it opens");
        let (expiry, execution) = (LeaseExpiry::default(), ExecutionLog::new());
        execution.open(&output, "execution.log", &node).expect("it opens");
        let late = LateOutput::new(expiry.clone(), execution, "rank 3 in attempt 1".to_owned()).of("stdout");
        let mut sink = log.heard_by(None, Some(late));
        sink.write(b"in time\n").await.expect("written");
        expiry.set(Some(tokio::time::Instant::now()));
        sink.write(b"too\nlate\n").await.expect("written");
        let read = |name: &str| std::fs::read_to_string(directory.path().join(name)).expect("it is there");
        assert_eq!(read(STDOUT), "in time\n");
        let told = read("execution.log");
        let lines: Vec<&str> = told.lines().collect();
        assert!(
            lines[0].ends_with("Read from stdout of rank 3 in attempt 1 after the lease of this node was over:"),
            "{told}"
        );
        assert_eq!(lines[1..], [">>>   too", ">>>   late"]);
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
