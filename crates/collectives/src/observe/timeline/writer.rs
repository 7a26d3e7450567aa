//! Writer thread of a timeline. Ends when the event queue is closed. The file is valid JSON after every write: each write overwrites the
//! closing bracket and appends a new one.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::Receiver;

use super::chrome_trace::{Event, Trace, file_header};

const FILE_TRAILER: &str = "\n]\n";
/// Bytes per write: enough to make the cost per event small, few enough to keep a write short.
const MAX_BATCH_BYTES: usize = 64 * 1024;

/// Writes events until the queue is closed. Events that would make the file larger than `max_bytes` are dropped.
pub fn write(
    file: File,
    max_bytes: u64,
    now_micros: u64,
    events: &Receiver<Event>,
    n_dropped: &AtomicU64,
) -> io::Result<()> {
    let mut trace_file = TraceFile { file, end: 0 };
    trace_file.append(&format!("[\n{}", file_header(now_micros)))?;
    let mut trace = Trace::default();
    let mut last_micros = 0;
    while let Ok(event) = events.recv() {
        last_micros = event.micros;
        trace.add(event);
        let mut n_events = 1;
        while trace.out.len() < MAX_BATCH_BYTES
            && let Ok(event) = events.try_recv()
        {
            last_micros = event.micros;
            trace.add(event);
            n_events += 1;
        }
        if trace_file.end + trace.out.len() as u64 <= max_bytes {
            trace_file.append(&trace.out)?;
        } else {
            n_dropped.fetch_add(n_events, Ordering::Relaxed);
        }
        trace.out.clear();
    }
    match n_dropped.load(Ordering::Relaxed) {
        0 => Ok(()),
        n_dropped => {
            trace.add_dropped(n_dropped, last_micros);
            trace_file.append(&trace.out)
        }
    }
}

/// The trace file.
struct TraceFile {
    file: File,
    /// Offset of the closing bracket.
    end: u64,
}

impl TraceFile {
    fn append(&mut self, records: &str) -> io::Result<()> {
        // One write call, so that a reader never sees the file without its closing bracket.
        self.file.write_all_at(format!("{records}{FILE_TRAILER}").as_bytes(), self.end)?;
        self.end += records.len() as u64;
        Ok(())
    }
}
