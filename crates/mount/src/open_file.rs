//! One open file: writes not uploaded yet, and chunks fetched ahead. Shared by all handles of the file. The error of a
//! write that was already acknowledged is kept and returned once to each handle, by its next write, `fsync` or `close`.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::SystemTime;

use bytes::{Bytes, BytesMut};
use tokio::sync::{Notify, OnceCell, OwnedSemaphorePermit};

use crate::readahead::{CHUNK_BYTES, ReadPattern, ReadPlan};
use crate::remote::{AppendBlock, Remote, Status};
use crate::shared_state::SharedState;
use crate::writeback::{DirtyRange, DirtyRanges, MAX_RANGE_BYTES, batches};

/// Limit of unsent data of a file; above it ranges are sent even if they are not full.
const MAX_BUFFERED_BYTES: usize = 4 * MAX_RANGE_BYTES;
const MAX_BUFFERED_RANGES: usize = 512;
/// The service's largest file size.
const MAX_FILE_BYTES: u64 = 1 << 42;

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

    /// Whether the file exists on the server.
    pub fn is_created(&self) -> bool {
        self.is_created.load(Ordering::Acquire)
    }

    /// Creates the file on the server if it does not exist yet. True if this was done together with the content.
    async fn create_with_content(&self, batch: &[DirtyRange]) -> Result<bool, i32> {
        if self.is_created() {
            return Ok(false);
        }
        let _guard = self.create_lock.lock().await;
        if self.is_created() {
            return Ok(false);
        }
        let created = self.create_on_server(batch).await;
        // Set even on failure, which is reported to the writers: the creation is not repeated forever.
        self.is_created.store(true, Ordering::Release);
        created
    }

    async fn create_on_server(&self, batch: &[DirtyRange]) -> Result<bool, i32> {
        let (path, remote) = (self.shared.path(self.inode)?, &self.shared.remote);
        let operation = || format!("create {path}");
        let with_content = async {
            match batch {
                [] => Ok(false),
                batch => self.shared.retry.run(operation(), |_| remote.create_with(&path, batch)).await,
            }
        };
        let created = match with_content.await {
            Ok(true) => return Ok(true),
            Ok(false) => self.shared.retry.run(operation(), |_| remote.create(&path)).await,
            Err(errno) => Err(errno),
        };
        match created {
            // Created by another machine, or by an attempt whose answer was lost: it is opened and truncated.
            Err(libc::EEXIST) => self.shared.retry.run(operation(), |_| remote.resize(&path, 0)).await.map(|()| false),
            created => created.map(|()| false),
        }
    }

    /// Creates the file on the server if its creation was deferred. An error is reported to the writers.
    pub async fn ensure_created(&self) {
        if let Err(errno) = self.create_with_content(&[]).await {
            self.state().record_error(errno);
        }
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

    pub async fn write(self: &Arc<Self>, offset: u64, content: &[u8], seen_errors: &SeenErrors) -> Result<(), i32> {
        let end = offset.checked_add(content.len() as u64).filter(|end| *end <= MAX_FILE_BYTES).ok_or(libc::EFBIG)?;
        let (ranges, is_over_limit) = {
            let mut state = self.state();
            state.check_error(seen_errors)?;
            state.dirty.write(offset, content);
            state.invalidate_chunks(offset, end);
            state.status.length = state.status.length.max(end);
            state.status.modified = SystemTime::now();
            state.status.etag.clear();
            let full =
                state.dirty.buffered_bytes() > MAX_BUFFERED_BYTES || state.dirty.n_buffered() > MAX_BUFFERED_RANGES;
            let ranges = if full { state.dirty.take_all() } else { state.dirty.take_full() };
            (ranges, full && state.dirty.buffered_bytes() > MAX_BUFFERED_BYTES)
        };
        self.send(batches(ranges)).await;
        if is_over_limit {
            // Ranges that overlap those in flight must wait for them; so does the program that writes more.
            self.upload_all().await;
        }
        Ok(())
    }

    /// Appends blocks at the current end on the server. Synchronous.
    pub async fn append(self: &Arc<Self>, content: &[u8], seen_errors: &SeenErrors) -> Result<(), i32> {
        self.state().check_error(seen_errors)?;
        self.upload_all().await;
        let mut number = self.append_lock.lock().await;
        for content in content.chunks(MAX_RANGE_BYTES) {
            *number += 1;
            let after = self.state().status.length;
            let block = AppendBlock {
                content: Bytes::copy_from_slice(content),
                file: self.inode,
                number: *number,
                retry_from: None,
            };
            let path = self.shared.path(self.inode)?;
            let appended = self.shared.retry.run(format!("append to {path}"), |is_retry| {
                let (block, path) =
                    (AppendBlock { retry_from: is_retry.then_some(after), ..block.clone() }, path.clone());
                async move { self.shared.remote.append(&path, &block).await }
            });
            let (_, status) = appended.await?;
            let mut state = self.state();
            state.chunks.clear();
            state.status = status;
        }
        Ok(())
    }

    pub async fn read(self: &Arc<Self>, offset: u64, length: u64) -> Result<Bytes, i32> {
        let (plan, length, unsynced_status) = loop {
            {
                let mut state = self.state();
                let (end, known) = (offset.saturating_add(length), state.status.length);
                if !state.dirty.overlaps(offset, end) {
                    let plan = state.read_pattern.plan(offset, length, known);
                    break (plan, length, (!state.dirty.is_clean()).then_some(known));
                }
                if let Some(content) = state.dirty.read(offset, end.min(known)) {
                    return Ok(content.into());
                }
            }
            self.upload_all().await;
        };
        let content = match plan {
            ReadPlan::Direct => self.fetch(offset, length).await?,
            ReadPlan::Chunks { now, ahead, past } => {
                let chunks = self.chunks(now.clone(), ahead, past);
                self.assemble(offset, length, now.start, &chunks).await?
            }
        };
        // Between the server's end and later unsent writes there is a hole.
        let missing = unsynced_status
            .map_or(0, |known| (offset + length).min(known).saturating_sub(offset + content.len() as u64));
        if missing == 0 {
            return Ok(content);
        }
        let mut padded = BytesMut::from(content.as_ref());
        padded.resize(padded.len() + missing as usize, 0);
        Ok(padded.freeze())
    }

    /// The chunks that a read needs. Starts fetching the chunks `ahead`.
    fn chunks(self: &Arc<Self>, now: std::ops::Range<u64>, ahead: std::ops::Range<u64>, past: u64) -> Vec<Chunk> {
        let mut state = self.state();
        state.chunks.retain(|index, _| *index >= past.min(now.start));
        for index in ahead {
            if let Entry::Vacant(vacant) = state.chunks.entry(index) {
                let chunk = vacant.insert(Chunk::default()).clone();
                let file = self.clone();
                self.shared.runtime.spawn(async move { file.load(&chunk, index).await.map(drop) });
            }
        }
        now.map(|index| state.chunks.entry(index).or_default().clone()).collect()
    }

    async fn load(&self, chunk: &Chunk, index: u64) -> Result<Bytes, i32> {
        chunk.get_or_init(|| self.fetch(index * CHUNK_BYTES, CHUNK_BYTES)).await.clone()
    }

    async fn assemble(&self, offset: u64, length: u64, first: u64, chunks: &[Chunk]) -> Result<Bytes, i32> {
        let mut gathered = BytesMut::new();
        for (index, chunk) in (first..).zip(chunks) {
            let content = match self.load(chunk, index).await {
                Ok(content) => content,
                Err(errno) => {
                    // The next read tries again.
                    self.state().chunks.remove(&index);
                    return Err(errno);
                }
            };
            let start = index * CHUNK_BYTES;
            let from = (offset.max(start) - start).min(content.len() as u64) as usize;
            let to = (offset + length - start).min(content.len() as u64) as usize;
            let part = content.slice(from..to.max(from));
            if part.len() as u64 == length {
                return Ok(part);
            }
            gathered.extend_from_slice(&part);
            if (content.len() as u64) < CHUNK_BYTES {
                break;
            }
        }
        let reached = offset + gathered.len() as u64;
        if (gathered.len() as u64) < length && reached < self.state().status.length {
            // The file has grown since the chunk was fetched.
            gathered.extend_from_slice(&self.fetch(reached, offset + length - reached).await?);
        }
        Ok(gathered.freeze())
    }

    async fn fetch(&self, offset: u64, length: u64) -> Result<Bytes, i32> {
        self.create_with_content(&[]).await?;
        loop {
            let path = self.shared.path(self.inode)?;
            let operation = format!("read {path}");
            let read = self.shared.retry.run(operation, |_| self.shared.remote.read(&path, offset, length)).await;
            match read {
                Err(libc::ENOENT) if self.has_moved(&path) => {}
                read => return read,
            }
        }
    }

    /// Uploads everything, waits, and returns an error that the handle has not returned yet.
    pub async fn flush(self: &Arc<Self>, seen_errors: &SeenErrors) -> Result<(), i32> {
        self.upload_all().await;
        self.state().take_error(seen_errors)
    }

    /// Returns when everything written is on the server's disk.
    pub async fn sync(self: &Arc<Self>, seen_errors: &SeenErrors) -> Result<(), i32> {
        self.flush(seen_errors).await?;
        let path = self.shared.path(self.inode)?;
        self.shared.retry.run(format!("flush {path}"), |_| self.shared.remote.sync(&path)).await
    }

    pub async fn resize(self: &Arc<Self>, length: u64) -> Result<(), i32> {
        self.upload_all().await;
        let path = self.shared.path(self.inode)?;
        let operation = format!("set the length of {path}");
        self.shared.retry.run(operation, |_| self.shared.remote.resize(&path, length)).await?;
        let mut state = self.state();
        state.chunks.clear();
        state.status.length = length;
        state.status.modified = SystemTime::now();
        state.status.etag.clear();
        Ok(())
    }

    /// Uploads everything and waits until it has arrived or failed.
    pub async fn upload_all(self: &Arc<Self>) {
        loop {
            let mut uploaded = std::pin::pin!(self.uploaded.notified());
            uploaded.as_mut().enable();
            let (ranges, clean) = {
                let mut state = self.state();
                let ranges = state.dirty.take_all();
                (ranges, state.dirty.is_clean())
            };
            if clean {
                return self.ensure_created().await;
            }
            let mut batches = batches(ranges);
            match batches.len() {
                0 => uploaded.await,
                1 => {
                    // A single batch is sent on the waiting thread.
                    let permit = self.permit().await;
                    self.deliver(&batches.remove(0), permit).await;
                }
                _ => self.send(batches).await,
            }
        }
    }

    async fn permit(&self) -> OwnedSemaphorePermit {
        self.shared.uploads.clone().acquire_owned().await.expect("nobody closes it")
    }

    async fn send(self: &Arc<Self>, batches: Vec<Vec<DirtyRange>>) {
        for batch in batches {
            let (permit, file) = (self.permit().await, self.clone());
            self.shared.runtime.spawn(async move { file.deliver(&batch, permit).await });
        }
    }

    async fn deliver(&self, batch: &[DirtyRange], permit: OwnedSemaphorePermit) {
        let result = self.upload(batch).await;
        drop(permit);
        self.on_uploaded(batch, result);
    }

    async fn upload(&self, batch: &[DirtyRange]) -> Result<(), i32> {
        if self.create_with_content(batch).await? {
            return Ok(());
        }
        loop {
            let path = self.shared.path(self.inode)?;
            let operation = format!("write {path}");
            match self.shared.retry.run(operation, |_| self.shared.remote.write(&path, batch)).await {
                Err(libc::ENOENT) if self.has_moved(&path) => {}
                result => return result,
            }
        }
    }

    fn on_uploaded(&self, batch: &[DirtyRange], result: Result<(), i32>) {
        let mut state = self.state();
        for range in batch {
            state.dirty.on_uploaded(range.offset);
            // Chunks fetched during the upload may contain old content.
            state.invalidate_chunks(range.offset, range.offset + range.content.len() as u64);
        }
        if let Err(errno) = result {
            state.record_error(errno);
        }
        drop(state);
        self.uploaded.notify_waiters();
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
