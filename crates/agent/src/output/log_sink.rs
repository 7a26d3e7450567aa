//! Destination of one output stream of a process: its log file, the training curve recorder, and the execution log once the lease is over.

use std::io;
use std::path::Path;
use std::sync::Arc;

use corro_launch::line_prefix::LinePrefixer;
use corro_launch::lines::Sink;

use crate::output::curve_recorder::StreamTap;
use crate::output::execution_log::ExecutionLog;
use crate::output::log_file::LogFile;
use crate::state::lease::LeaseExpiry;

/// Destination of output that an agent reads after its lease is over, because it was frozen. The job may run elsewhere
/// by then, and the next attempt may write to the same files. Such output goes to the execution log, in whole entries
/// that name their source, so that nothing is lost or mixed.
#[derive(Clone, Debug)]
pub struct LateOutput {
    expiry: LeaseExpiry,
    execution: ExecutionLog,
    /// Process and attempt, for the entry's text.
    source: String,
}

impl LateOutput {
    pub fn new(expiry: LeaseExpiry, execution: ExecutionLog, source: String) -> LateOutput {
        LateOutput { expiry, execution, source }
    }

    /// For one stream of the process.
    pub fn for_stream(&self, stream: &str) -> LateOutput {
        LateOutput { source: format!("{stream} of {}", self.source), ..self.clone() }
    }

    fn append(&self, block: &[u8]) {
        let text = String::from_utf8_lossy(block);
        let source = &self.source;
        self.execution.line(format_args!("Read from {source} after the lease of this node had expired:\n{text}"));
    }
}

/// Sink for one output stream of a process.
pub struct LogSink {
    log: Arc<LogFile>,
    tap: Option<StreamTap>,
    late: Option<LateOutput>,
    /// Marks the lines in the log file, and only there.
    prefixer: Option<LinePrefixer>,
}

impl LogSink {
    /// A sink for `lines::pump_into` that never fails. Output after the lease goes to `late`.
    pub fn new(log: &Arc<LogFile>, tap: Option<StreamTap>, late: Option<LateOutput>) -> LogSink {
        LogSink { log: Arc::clone(log), tap, late, prefixer: None }
    }

    /// Each line in the log file begins with `prefix`.
    pub fn with_prefix(self, prefix: Option<&str>) -> LogSink {
        LogSink { prefixer: prefix.map(LinePrefixer::new), ..self }
    }

    pub fn path(&self) -> &Path {
        self.log.path()
    }
}

impl Sink for LogSink {
    fn write(&mut self, block: &[u8]) -> impl Future<Output = io::Result<()>> + Send {
        let (log, tap, block) = (Arc::clone(&self.log), self.tap.clone(), block.to_vec());
        let late = self.late.clone();
        let prefixed = self.prefixer.as_mut().map(|prefixer| {
            let mut prefixed = Vec::with_capacity(block.len() + block.len() / 8);
            prefixer.apply(&block, &mut prefixed);
            prefixed
        });
        // On a blocking thread. Fails only when the runtime ends.
        let written = tokio::task::spawn_blocking(move || {
            match late.filter(|late| late.expiry.is_over()) {
                Some(late) => return late.append(&block),
                None => log.append(prefixed.as_deref().unwrap_or(&block)),
            }
            if let Some(tap) = tap {
                tap.observe(&block);
            }
        });
        async move { written.await.map_err(io::Error::other) }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use corro_launch::lines::Mode;
    use corro_model::layout::{ProcessSlot, Role};
    use corro_model::metrics::CURVES;

    use super::*;
    use crate::output::curve_recorder::Recorder;
    use crate::output::output_dir::OutputDir;
    use crate::testing;

    const STDOUT: &str = "stdout.txt";

    /// A full disk must not stop the process that writes.
    #[tokio::test]
    async fn output_is_read_to_its_end_on_write_errors() {
        let file = File::options().append(true).open("/dev/full").expect("Linux has it");
        let log = Arc::new(LogFile::of_test("/logs/stdout.txt", file));
        let output = vec![b'x'; 300_000];
        let n_read =
            corro_launch::lines::pump_into(&output[..], Mode::Raw, None, &mut LogSink::new(&log, None, None)).await;
        assert_eq!(n_read.expect("the sink never fails"), 300_000);
        assert_eq!(log.n_lost_bytes(), Some(300_000));
    }

    #[tokio::test]
    async fn lines_are_prefixed_in_the_file_and_not_for_the_curves() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let logs = OutputDir::of_test(directory.path(), "stdouterr");
        let log = LogFile::open(&logs, STDOUT, &testing::node(1)).expect("it opens");
        let recorder = Recorder::new(&logs, &testing::node(1));
        let slot = ProcessSlot {
            number: 3,
            role: Role::Rank,
            index: 3,
            host_idx: 0,
            command: "x",
            stdout: STDOUT.to_owned(),
            stderr: "stderr.txt".to_owned(),
        };
        let tap = recorder.tap_process(&slot, 4, 1).expect("a rank");
        let mut sink = LogSink::new(&log, Some(tap.stdout), None).with_prefix(Some("[3] "));
        // A dictionary at the start of the line, which a prefix would hide from the parser.
        for block in [&b"{'loss': 2.5, 'epoch': 1.0}\n50%\r"[..], b"100%\r", b"\nlast\n"] {
            sink.write(block).await.expect("written");
        }
        recorder.flush().await;
        let read = |path: std::path::PathBuf| std::fs::read_to_string(path).expect("it is there");
        assert_eq!(read(logs.path().join(STDOUT)), "[3] {'loss': 2.5, 'epoch': 1.0}\n[3] 50%\r[3] 100%\r\n[3] last\n");
        let curves = read(directory.path().join(CURVES).join(format!("{}.jsonl", testing::node(1))));
        assert!(curves.contains(r#""name":"loss""#) && curves.contains(r#""rank":3"#), "{curves}");
    }

    /// As with an agent that was frozen for longer than its lease.
    #[tokio::test]
    async fn output_after_the_lease_goes_to_the_execution_log() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let node = testing::node(1);
        let output = OutputDir::of_test(directory.path(), "");
        let log = LogFile::open(&output, STDOUT, &node).expect("it opens");
        let (expiry, execution) = (LeaseExpiry::default(), ExecutionLog::new());
        execution.open(&output, "execution.log", &node).expect("it opens");
        let late = LateOutput::new(expiry.clone(), execution, "rank 3 in attempt 1".to_owned()).for_stream("stdout");
        let mut sink = LogSink::new(&log, None, Some(late));
        sink.write(b"in time\n").await.expect("written");
        expiry.set(Some(tokio::time::Instant::now()));
        sink.write(b"too\nlate\n").await.expect("written");
        let read = |name: &str| std::fs::read_to_string(directory.path().join(name)).expect("it is there");
        assert_eq!(read(STDOUT), "in time\n");
        let log = read("execution.log");
        let lines: Vec<&str> = log.lines().collect();
        assert!(
            lines[0].ends_with("Read from stdout of rank 3 in attempt 1 after the lease of this node had expired:"),
            "{log}"
        );
        assert_eq!(lines[1..], [">>>   too", ">>>   late"]);
    }
}
