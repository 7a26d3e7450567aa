//! Horovod's timeline: a Chrome trace of negotiation and execution of every tensor. A separate thread writes the file, so the engine never
//! waits for a disk: if the thread falls behind, events are dropped, and the trace ends with their number. While off, an event costs one
//! atomic load.

mod chrome_trace;
mod writer;

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use thiserror::Error;

use crate::dtype::Dtype;
pub(in crate::observe) use chrome_trace::escaped;
use chrome_trace::{Event, EventKind};

/// Timeline of an engine; off until [`Timeline::start`].
#[derive(Debug, Default)]
pub struct Timeline {
    is_on: AtomicBool,
    marks_cycles: AtomicBool,
    queue: RwLock<Option<EventQueue>>,
    /// Locked while starting and stopping, which may wait for the disk.
    writer: Mutex<Option<WriterThread>>,
}

/// Queue to the writer thread.
#[derive(Debug)]
struct EventQueue {
    started: Instant,
    events: SyncSender<Event>,
    n_dropped: Arc<AtomicU64>,
}

/// The writer thread and its file.
#[derive(Debug)]
struct WriterThread {
    path: PathBuf,
    n_dropped: Arc<AtomicU64>,
    thread: JoinHandle<io::Result<()>>,
}

/// Error of a timeline file.
#[derive(Debug, Error)]
pub enum TimelineError {
    #[error("cannot create the timeline {path}")]
    Create {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("cannot start the timeline's writer thread")]
    Thread(#[source] io::Error),
    #[error("cannot write the timeline {path}; it is incomplete")]
    Write {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

/// A complete timeline file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClosedTimeline {
    pub path: PathBuf,
    /// Events dropped because the writer fell behind or the file reached its size limit.
    pub n_dropped: u64,
}

/// Events in the queue: some seconds of a busy engine, about a megabyte.
const QUEUE_CAPACITY: usize = 16 * 1024;

impl Timeline {
    pub fn new() -> Timeline {
        Timeline::default()
    }

    pub fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    /// Creates a file and starts writing events to it. Does nothing if this file is already being written; another one is closed first.
    /// `now_micros` is the Unix time in microseconds, stored at the beginning of the file.
    pub fn start(&self, path: &Path, marks_cycles: bool, now_micros: u64) -> Result<(), TimelineError> {
        self.start_with(path, marks_cycles, now_micros, QUEUE_CAPACITY)
    }

    /// As [`Timeline::start`], into an open file called `name`, which grows to at most about `max_bytes`.
    pub fn start_into(&self, file: File, name: &str, max_bytes: u64, now_micros: u64) -> Result<(), TimelineError> {
        let mut current = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        self.begin(&mut current, (file, PathBuf::from(name), max_bytes), false, now_micros, QUEUE_CAPACITY)
    }

    fn start_with(&self, path: &Path, marks: bool, now_micros: u64, length: usize) -> Result<(), TimelineError> {
        let mut current = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        if current.as_ref().is_some_and(|writer| writer.path == path) {
            return Ok(());
        }
        let path = path.to_owned();
        let file = File::create(&path).map_err(|source| TimelineError::Create { path: path.clone(), source })?;
        self.begin(&mut current, (file, path, u64::MAX), marks, now_micros, length)
    }

    fn begin(
        &self,
        current: &mut Option<WriterThread>,
        (file, path, max_bytes): (File, PathBuf, u64),
        marks: bool,
        now_micros: u64,
        length: usize,
    ) -> Result<(), TimelineError> {
        let (events, received) = sync_channel(length);
        let n_dropped = Arc::new(AtomicU64::new(0));
        let dropped_by_writer = Arc::clone(&n_dropped);
        let thread = thread::Builder::new()
            .name("corro-timeline".to_owned())
            .spawn(move || writer::write(file, max_bytes, now_micros, &received, &dropped_by_writer))
            .map_err(TimelineError::Thread)?;
        let closed = self.close(current);
        *current = Some(WriterThread { path, n_dropped: Arc::clone(&n_dropped), thread });
        let queue = EventQueue { started: Instant::now(), events, n_dropped };
        *self.queue.write().unwrap_or_else(PoisonError::into_inner) = Some(queue);
        self.marks_cycles.store(marks, Ordering::Relaxed);
        self.is_on.store(true, Ordering::Relaxed);
        closed.map(drop)
    }

    /// Stops and returns when the file is complete and closed. `None` if the timeline was off.
    pub fn stop(&self) -> Result<Option<ClosedTimeline>, TimelineError> {
        let mut current = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        self.close(&mut current)
    }

    fn close(&self, current: &mut Option<WriterThread>) -> Result<Option<ClosedTimeline>, TimelineError> {
        self.is_on.store(false, Ordering::Relaxed);
        // The thread ends when the last sender is dropped.
        *self.queue.write().unwrap_or_else(PoisonError::into_inner) = None;
        let Some(writer) = current.take() else { return Ok(None) };
        let written = writer.thread.join().expect("the timeline's thread does not panic");
        let path = writer.path;
        match written {
            Ok(()) => Ok(Some(ClosedTimeline { path, n_dropped: writer.n_dropped.load(Ordering::Relaxed) })),
            Err(source) => Err(TimelineError::Write { path, source }),
        }
    }

    /// The first rank has requested the operation `kind`, for example `ALLREDUCE`, on the tensor `name`.
    pub fn negotiate_start(&self, name: &str, kind: &'static str) {
        self.record(name, || EventKind::NegotiateStart(kind));
    }

    /// Rank `rank` of the process set has requested the tensor.
    pub fn rank_ready(&self, name: &str, rank: usize) {
        self.record(name, || EventKind::RankReady(rank));
    }

    /// All ranks have requested the tensor.
    pub fn negotiate_end(&self, name: &str) {
        self.record(name, || EventKind::NegotiateEnd);
    }

    pub fn operation_start(&self, name: &str, kind: &'static str) {
        self.record(name, || EventKind::OperationStart(kind));
    }

    /// Start of a part of the operation, for example `MEMCPY_IN_FUSION_BUFFER`.
    pub fn activity_start(&self, name: &str, activity: &'static str) {
        self.record(name, || EventKind::ActivityStart(activity));
    }

    pub fn activity_end(&self, name: &str) {
        self.record(name, || EventKind::ActivityEnd);
    }

    /// End of an operation, with dtype and shape of the result.
    pub fn operation_end(&self, name: &str, dtype: Dtype, shape: &[usize]) {
        self.record(name, || EventKind::OperationEnd(dtype, shape.to_vec()));
    }

    /// Span from `began` until now that is not an operation on a tensor.
    pub fn span(&self, name: &str, kind: &'static str, began: Instant) {
        self.record(name, || EventKind::Span(kind, began.elapsed().as_micros() as u64));
    }

    pub fn mark_cycle(&self) {
        if self.is_on() && self.marks_cycles.load(Ordering::Relaxed) {
            self.record("", || EventKind::Cycle);
        }
    }

    fn record(&self, name: &str, kind: impl FnOnce() -> EventKind) {
        if !self.is_on() {
            return;
        }
        if let Some(queue) = &*self.queue.read().unwrap_or_else(PoisonError::into_inner) {
            let micros = queue.started.elapsed().as_micros() as u64;
            // The queue is full, or the thread has ended after a write error.
            if queue.events.try_send(Event { micros, name: name.to_owned(), kind: kind() }).is_err() {
                queue.n_dropped.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

impl Drop for Timeline {
    fn drop(&mut self) {
        // Errors are returned by an explicit `stop`.
        let _ = self.stop();
    }
}

#[cfg(test)]
mod tests;
