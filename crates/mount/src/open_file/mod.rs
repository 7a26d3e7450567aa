//! One open file: writes not uploaded yet, and chunks fetched ahead. Shared by all handles of the file. The error of a
//! write that was already acknowledged is kept and returned once to each handle, by its next write, `fsync` or `close`.
//!
//! This file has the state and the attributes; the operations are in `read`, `write`, `upload` and `creation`.

mod creation;
mod read;
mod upload;
mod write;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use bytes::Bytes;
use tokio::sync::{Notify, OnceCell};

use crate::readahead::{CHUNK_BYTES, ReadPattern};
use crate::remote::{Remote, Status};
use crate::shared_state::SharedState;
use crate::writeback::DirtyRanges;

/// An open file with its unsent writes and read-ahead.
#[derive(Debug)]
pub struct OpenFile<R> {
    inode: u64,
    shared: Arc<SharedState<R>>,
    state: Mutex<State>,
    /// A range was uploaded or has failed.
    uploaded: Notify,
    /// One append at a time, so that the server need remember only one per writer. Holds the number of the last block.
    append_lock: tokio::sync::Mutex<u64>,
    /// False for a file whose creation is deferred until its first content is sent.
    is_created: AtomicBool,
    /// Serializes the creation.
    create_lock: tokio::sync::Mutex<()>,
}

#[derive(Debug)]
struct State {
    /// Attributes as the programs of this machine see them.
    status: Status,
    dirty: DirtyRanges,
    n_errors: u64,
    last_error: i32,
    chunks: HashMap<u64, Chunk>,
    read_pattern: ReadPattern,
}

type Chunk = Arc<OnceCell<Result<Bytes, i32>>>;

/// Number of errors that a handle has already returned.
#[derive(Debug, Default)]
pub struct SeenErrors(AtomicU64);

impl<R: Remote> OpenFile<R> {
    pub fn new(inode: u64, shared: Arc<SharedState<R>>, status: Status, is_created: bool) -> Arc<OpenFile<R>> {
        let (dirty, chunks, read_pattern) = (DirtyRanges::default(), HashMap::new(), ReadPattern::default());
        let state = State { status, dirty, n_errors: 0, last_error: 0, chunks, read_pattern };
        let (uploaded, append_lock) = (Notify::new(), tokio::sync::Mutex::new(0));
        let (is_created, create_lock) = (AtomicBool::new(is_created), tokio::sync::Mutex::default());
        Arc::new(OpenFile { inode, shared, state: Mutex::new(state), uploaded, append_lock, is_created, create_lock })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no one panics while holding the state of a file")
    }

    /// For a new handle: earlier errors do not concern it.
    pub fn seen_errors(&self) -> SeenErrors {
        SeenErrors(AtomicU64::new(self.state().n_errors))
    }

    /// The attributes seen here, if the server does not have everything yet.
    pub fn unsynced_status(&self) -> Option<Status> {
        let state = self.state();
        (!state.dirty.is_clean() || !self.is_created()).then(|| state.status.clone())
    }

    /// Takes over the server's attributes. True if the content differs from what was fetched before.
    pub fn update_status(&self, status: &Status) -> bool {
        let mut state = self.state();
        if !state.dirty.is_clean() || !self.is_created() {
            return false;
        }
        let changed = !state.status.is_same(status);
        if changed {
            state.chunks.clear();
        }
        if changed || !status.etag.is_empty() {
            state.status = status.clone();
        }
        changed
    }

    fn has_moved(&self, path: &str) -> bool {
        self.shared.path(self.inode).is_ok_and(|now| now != path)
    }
}

impl State {
    fn invalidate_chunks(&mut self, start: u64, end: u64) {
        if !self.chunks.is_empty() {
            self.chunks.retain(|index, _| (index + 1) * CHUNK_BYTES <= start || index * CHUNK_BYTES >= end);
        }
    }

    /// The unsent writes are lost.
    fn record_error(&mut self, errno: i32) {
        self.n_errors += 1;
        self.last_error = errno;
        self.dirty.discard();
    }

    /// An error that the handle has not returned yet; it stays pending.
    fn check_error(&self, seen_errors: &SeenErrors) -> Result<(), i32> {
        if self.n_errors > seen_errors.0.load(Ordering::Relaxed) { Err(self.last_error) } else { Ok(()) }
    }

    fn take_error(&self, seen_errors: &SeenErrors) -> Result<(), i32> {
        let kernel_attrs = seen_errors.0.swap(self.n_errors, Ordering::Relaxed);
        if self.n_errors > kernel_attrs { Err(self.last_error) } else { Ok(()) }
    }
}
