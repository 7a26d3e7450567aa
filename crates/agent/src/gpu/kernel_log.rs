//! Errors of GPUs in the kernel's log, from a position on: the ring buffer (`/dev/kmsg`), or the journal where the buffer
//! is not readable. Reading is bounded in time and size, and a log that cannot be read is empty.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::fs::OFlags;
use rustix::io::Errno;

const RING_BUFFER: &str = "/dev/kmsg";
const MARK: &str = "NVRM: Xid";
/// Lines that are kept, at most.
pub const MAX_LINES: usize = 200;
/// Records of the ring buffer are at most this long.
const MAX_RECORD_BYTES: usize = 8192;
/// Time for reading the ring buffer, of which a record takes a microsecond.
const RING_BUFFER_TIMEOUT: Duration = Duration::from_millis(300);
const JOURNAL_TIMEOUT: Duration = Duration::from_millis(600);
const MAX_JOURNAL_BYTES: u64 = 1 << 20;

/// A log of the kernel that can be read from a position on.
pub trait KernelLog: Send {
    /// Its present end.
    fn position(&mut self) -> LogPosition;

    /// The lines since then that may be errors of GPUs, at most [`MAX_LINES`]. Moves the position to the end.
    fn since(&mut self, position: &mut LogPosition) -> Vec<String>;
}

/// End of the log at some time.
#[derive(Debug)]
pub enum LogPosition {
    /// The ring buffer, opened and read to its end.
    RingBuffer(File),
    /// The journal at that time.
    Journal(SystemTime),
    /// Number of a line.
    Line(usize),
}

/// The log of this machine.
pub struct MachineLog;

impl KernelLog for MachineLog {
    fn position(&mut self) -> LogPosition {
        match open_at_end() {
            Ok(file) => LogPosition::RingBuffer(file),
            Err(_) => LogPosition::Journal(SystemTime::now()),
        }
    }

    fn since(&mut self, position: &mut LogPosition) -> Vec<String> {
        match position {
            LogPosition::RingBuffer(file) => read_records(file),
            LogPosition::Journal(time) => {
                let since = std::mem::replace(time, SystemTime::now());
                read_output(&mut journal_command(since), JOURNAL_TIMEOUT)
            }
            LogPosition::Line(_) => Vec::new(),
        }
    }
}

fn open_at_end() -> io::Result<File> {
    let flags = (OFlags::NONBLOCK | OFlags::CLOEXEC).bits() as i32;
    let mut file = OpenOptions::new().read(true).custom_flags(flags).open(RING_BUFFER)?;
    file.seek(SeekFrom::End(0))?;
    Ok(file)
}

/// Reads records until there are no more. Each read returns one.
fn read_records(file: &mut impl Read) -> Vec<String> {
    let deadline = Instant::now() + RING_BUFFER_TIMEOUT;
    let mut record = [0; MAX_RECORD_BYTES];
    let mut lines = Vec::new();
    while lines.len() < MAX_LINES && Instant::now() < deadline {
        match file.read(&mut record) {
            Ok(0) => break,
            Ok(n) => lines.extend(relevant_lines(&String::from_utf8_lossy(&record[..n]))),
            // Records were overwritten before they were read; the next read returns the oldest that is left.
            Err(error) if error.raw_os_error() == Some(Errno::PIPE.raw_os_error()) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => break,
        }
    }
    lines.truncate(MAX_LINES);
    lines
}

fn relevant_lines(text: &str) -> impl Iterator<Item = String> {
    text.lines().filter(|line| line.contains(MARK)).map(str::to_owned)
}

fn journal_command(since: SystemTime) -> Command {
    let seconds = since.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let mut command = Command::new("journalctl");
    command.args(["--dmesg", "--quiet", "--no-pager", "--output=cat", "--lines=5000"]);
    command.arg(format!("--since=@{seconds}"));
    command
}

/// The relevant lines that a command writes; none if it cannot be started or takes longer than `limit`.
fn read_output(command: &mut Command, limit: Duration) -> Vec<String> {
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
    let Ok(mut child) = child else { return Vec::new() };
    let Some(output) = child.stdout.take() else { return Vec::new() };
    let (sender, receiver) = mpsc::channel();
    let reader = thread::Builder::new().name("kernel-log".into()).spawn(move || {
        let mut text = Vec::new();
        let _ = output.take(MAX_JOURNAL_BYTES).read_to_end(&mut text);
        // Nobody waits any more after the limit.
        let _ = sender.send(String::from_utf8_lossy(&text).into_owned());
    });
    let text = reader.ok().and_then(|_| receiver.recv_timeout(limit).ok()).unwrap_or_default();
    // It has ended, or is not wanted any more.
    let _ = child.kill();
    let _ = child.wait();
    relevant_lines(&text).take(MAX_LINES).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    /// Returns one scripted record per read, as the ring buffer does.
    struct Records(VecDeque<Result<&'static str, Errno>>);

    impl Read for Records {
        fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
            let record = self.0.pop_front().unwrap_or(Err(Errno::AGAIN))?;
            buf[..record.len()].copy_from_slice(record.as_bytes());
            Ok(record.len())
        }
    }

    #[test]
    fn records_of_the_ring_buffer_are_read_to_the_end() {
        let xid = "4,2417,86400123456,-;NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.\n SUBSYSTEM=pci\n";
        let records = [Ok("6,1,100,-;usb 1-1: new device\n"), Err(Errno::PIPE), Err(Errno::INTR), Ok(xid)];
        let lines = read_records(&mut Records(records.into()));
        assert_eq!(lines, ["4,2417,86400123456,-;NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus."]);
        assert_eq!(read_records(&mut Records(vec![Ok(xid); MAX_LINES + 5].into())).len(), MAX_LINES);
    }

    #[test]
    fn a_command_that_does_not_end_has_no_lines() {
        let shell = |script: &str| {
            let mut command = Command::new("sh");
            command.args(["-c", script]);
            command
        };
        let began = Instant::now();
        assert!(
            read_output(&mut shell("echo 'NVRM: Xid (x): 1'; exec sleep 100"), Duration::from_millis(100)).is_empty()
        );
        assert!(began.elapsed() < Duration::from_secs(20));
        let written = read_output(&mut shell("echo 'NVRM: Xid (x): 1'; echo other"), Duration::from_secs(30));
        assert_eq!(written, ["NVRM: Xid (x): 1"]);
        assert!(read_output(&mut Command::new("/nonexistent"), Duration::from_secs(30)).is_empty());
    }

    #[test]
    fn this_machines_log_can_be_asked() {
        let mut position = MachineLog.position();
        eprintln!("{position:?}: {:?}", MachineLog.since(&mut position));
        let mut journal = LogPosition::Journal(SystemTime::now());
        MachineLog.since(&mut journal);
    }
}
