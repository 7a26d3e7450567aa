//! The thread that writes a timeline. Started by [`super::Timeline::start`], ends when its events do. After every write the
//! file is whole JSON: each begins by overwriting the closing bracket, and ends with a new one.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::Receiver;

use super::chrome_trace::{Event, Trace, file_header};

const FILE_TRAILER: &str = "\n]\n";
/// Enough for one write to be cheap per event, little enough for it to be short.
const MAX_BATCH_BYTES: usize = 64 * 1024;

/// Events that would make the file larger than `most_bytes` are dropped.
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

struct TraceFile {
    file: File,
    /// Where the closing bracket begins.
    end: u64,
}

impl TraceFile {
    fn append(&mut self, records: &str) -> io::Result<()> {
        // In one call, so that nobody finds the bracket gone and nothing in its place.
        self.file.write_all_at(format!("{records}{FILE_TRAILER}").as_bytes(), self.end)?;
        self.end += records.len() as u64;
        Ok(())
    }
}
