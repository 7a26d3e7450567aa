//! The node's log of a job, `execution.log`: what was mounted, created, started and ended. Secrets are masked, even if
//! a user wrote one into a command line. Lines are buffered until the file can be opened, since it may be on a volume
//! that is not mounted yet. A line that cannot be written is dropped: this log fails no job.

use std::fmt::Display;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use corro_launch::redact::Secrets;
use corro_model::NodeId;
use corro_model::node::TaskFailure;

use crate::output::log_file::LogFile;
use crate::output::output_dir::OutputDir;
use crate::task_errors::now;

/// The execution log of a job. Clones write to the same file.
#[derive(Clone, Debug)]
pub struct ExecutionLog {
    state: Arc<Mutex<State>>,
    secrets: Arc<Mutex<Secrets>>,
}

#[derive(Debug)]
enum State {
    Buffered(String),
    Open(Arc<LogFile>),
    /// The file could not be opened, which has been reported, or has been closed before its volume is unmounted.
    Closed,
}

impl ExecutionLog {
    pub fn new() -> ExecutionLog {
        ExecutionLog { state: Arc::new(Mutex::new(State::Buffered(String::new()))), secrets: Arc::default() }
    }

    /// Masks these secrets in all further lines.
    pub fn redact(&self, secrets: Secrets) {
        *self.secrets.lock().unwrap_or_else(PoisonError::into_inner) = secrets;
    }

    /// Opens the file and writes the buffered lines.
    pub fn open(&self, directory: &OutputDir, name: &str, node: &NodeId) -> Result<(), TaskFailure> {
        let opened = LogFile::open(directory, name, node);
        let mut state = self.state();
        match opened {
            Ok(file) => {
                if let State::Buffered(lines) = &*state {
                    file.append(lines.as_bytes());
                }
                *state = State::Open(file);
                Ok(())
            }
            Err(failure) => {
                *state = State::Closed;
                Err(failure)
            }
        }
    }

    /// Closes the file. Further lines are dropped.
    pub fn close(&self) {
        *self.state() = State::Closed;
    }

    pub fn line(&self, message: impl Display) {
        // A message of several lines is one entry; the other lines are indented like a tool's output.
        let text = message.to_string();
        let mut lines = text.lines();
        let mut entry = format!("{} {}\n", now().whole_seconds(), lines.next().unwrap_or_default());
        lines.for_each(|line| push_tool_line(&mut entry, line));
        self.write(&entry);
    }

    /// Writes the output of a program that was run for the job.
    pub fn tool_output<'a>(&self, lines: impl IntoIterator<Item = &'a String>) {
        let mut entry = String::new();
        lines.into_iter().for_each(|line| push_tool_line(&mut entry, line));
        self.write(&entry);
    }

    fn write(&self, entry: &str) {
        let secrets = self.secrets.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let entry = &*secrets.redact(entry);
        match &mut *self.state() {
            State::Buffered(lines) => lines.push_str(entry),
            State::Open(file) => file.append(entry.as_bytes()),
            State::Closed => {}
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn push_tool_line(entry: &mut String, line: &str) {
    entry.push_str(">>>   ");
    entry.push_str(line);
    entry.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    #[test]
    fn a_secret_in_a_command_line_is_not_written() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let log = ExecutionLog::new();
        log.redact(Secrets::new(["correct horse"]));
        log.line("Running: login --password 'correct horse'");
        let output = OutputDir::of_test(directory.path(), "");
        log.open(&output, "execution.log", &testing::node(1)).expect("it opens");
        log.tool_output(&["correct horse refused".to_owned()]);
        let text = std::fs::read_to_string(directory.path().join("execution.log")).expect("it is there");
        assert!(text.contains("login --password '***'") && text.ends_with(">>>   *** refused\n"), "{text}");
    }

    #[test]
    fn early_lines_are_buffered_and_tool_output_is_indented() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let log = ExecutionLog::new();
        log.line("Mounting Azure file shares");
        let output = OutputDir::of_test(directory.path(), "");
        log.open(&output, "execution.log", &testing::node(1)).expect("it opens");
        log.line("Running: a\nb");
        log.tool_output(&["one".to_owned(), "two".to_owned()]);
        let text = std::fs::read_to_string(directory.path().join("execution.log")).expect("it is there");
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].ends_with("Z Mounting Azure file shares") && lines[0].len() == 20 + 1 + 26, "{}", lines[0]);
        assert!(lines[1].ends_with("Z Running: a"));
        assert_eq!(lines[2..], [">>>   b", ">>>   one", ">>>   two"]);
    }
}
