//! One file that somebody has open: what was written and is on its way, what was fetched ahead. Entered by `volume` for every handle of
//! the file. An error of a write that was already said to be done is kept, and told to each handle once, by the next write, `fsync` or `close`.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::SystemTime;

use bytes::{Bytes, BytesMut};
use tokio::runtime::Handle;
use tokio::sync::{Notify, OnceCell, OwnedSemaphorePermit, Semaphore};

use crate::cache::{CHUNK, Plan, Reading};
use crate::inodes::Inodes;
use crate::patience::Patience;
use crate::remote::{Block, Remote, Status};
use crate::writeback::{Dirty, PIECE, Piece, batches};

/// What may wait in memory for one file before it is sent, though no piece of it is full.
const MOST_WAITING: usize = 4 * PIECE;
const MOST_RUNS: usize = 512;
/// Pieces of all files that are on their way at once.
const UPLOADS: usize = 8;
/// The service's largest file.
const LARGEST: u64 = 1 << 42;

/// What everything of a mount has in common.
#[derive(Debug)]
pub struct Shared<R> {
    pub remote: R,
    pub patience: Patience,
    pub inodes: Mutex<Inodes>,
    /// For what goes on after the program has its answer.
    runtime: Handle,
    uploads: Arc<Semaphore>,
}

impl<R> Shared<R> {
    pub fn new(remote: R, patience: Patience, runtime: Handle) -> Shared<R> {
        let uploads = Arc::new(Semaphore::new(UPLOADS));
        Shared { remote, patience, inodes: Mutex::default(), runtime, uploads }
    }

    pub fn inodes(&self) -> MutexGuard<'_, Inodes> {
        self.inodes.lock().expect("no one panics while holding the inodes")
    }

    /// Goes on after the program has its answer.
    pub fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.runtime.spawn(work);
    }

    pub fn path(&self, inode: u64) -> Result<String, i32> {
        self.inodes().path(inode).ok_or(libc::ESTALE)
    }
}

#[derive(Debug)]
pub struct OpenFile<R> {
    inode: u64,
    shared: Arc<Shared<R>>,
    state: Mutex<State>,
    /// A piece has arrived or was given up.
    arrived: Notify,
    /// One block at a time, so that the server need remember one only.
    appending: tokio::sync::Mutex<u64>,
    /// False for one that a program has made, and the server is told of together with its first content.
    is_made: AtomicBool,
    /// It is made once.
    making: tokio::sync::Mutex<()>,
}

#[derive(Debug)]
struct State {
    /// As the programs of this machine see it.
    status: Status,
    dirty: Dirty,
    n_errors: u64,
    last_error: i32,
    chunks: HashMap<u64, Chunk>,
    reading: Reading,
}

type Chunk = Arc<OnceCell<Result<Bytes, i32>>>;

/// Which errors a handle has been told of.
#[derive(Debug, Default)]
pub struct Seen(AtomicU64);

impl<R: Remote> OpenFile<R> {
    pub fn new(inode: u64, shared: Arc<Shared<R>>, status: Status, is_made: bool) -> Arc<OpenFile<R>> {
        let (dirty, chunks, reading) = (Dirty::default(), HashMap::new(), Reading::default());
        let state = State { status, dirty, n_errors: 0, last_error: 0, chunks, reading };
        let (arrived, appending) = (Notify::new(), tokio::sync::Mutex::new(0));
        let (is_made, making) = (AtomicBool::new(is_made), tokio::sync::Mutex::default());
        Arc::new(OpenFile { inode, shared, state: Mutex::new(state), arrived, appending, is_made, making })
    }

    /// Whether the server knows of it.
    pub fn is_made(&self) -> bool {
        self.is_made.load(Ordering::Acquire)
    }

    /// Makes it on the server if it is not there yet, with this content if that can be done in one; says whether that was so.
    async fn make_with(&self, batch: &[Piece]) -> Result<bool, i32> {
        if self.is_made() {
            return Ok(false);
        }
        let _turn = self.making.lock().await;
        if self.is_made() {
            return Ok(false);
        }
        let made = self.make_now(batch).await;
        // Also when it failed, which is told to those who wrote: nobody tries for ever.
        self.is_made.store(true, Ordering::Release);
        made
    }

    async fn make_now(&self, batch: &[Piece]) -> Result<bool, i32> {
        let (path, remote) = (self.shared.path(self.inode)?, &self.shared.remote);
        let what = || format!("make {path}");
        let with_content = async {
            match batch {
                [] => Ok(false),
                batch => self.shared.patience.insist(what(), |_| remote.create_with(&path, batch)).await,
            }
        };
        let made = match with_content.await {
            Ok(true) => return Ok(true),
            Ok(false) => self.shared.patience.insist(what(), |_| remote.create(&path)).await,
            Err(errno) => Err(errno),
        };
        match made {
            // Somebody else was first, or a try whose answer was lost: either way it is opened now, and cut.
            Err(libc::EEXIST) => self.shared.patience.insist(what(), |_| remote.resize(&path, 0)).await.map(|()| false),
            made => made.map(|()| false),
        }
    }

    /// The server is to know of it, whatever else happens.
    pub async fn make(&self) {
        if let Err(errno) = self.make_with(&[]).await {
            self.state().fail(errno);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no one panics while holding the state of a file")
    }

    /// For a new handle: what went wrong before it was made is not its business.
    pub fn seen(&self) -> Seen {
        Seen(AtomicU64::new(self.state().n_errors))
    }

    /// What it looks like from here, if the server does not know all of it yet.
    pub fn unsettled(&self) -> Option<Status> {
        let state = self.state();
        (!state.dirty.is_clean() || !self.is_made()).then(|| state.status.clone())
    }

    /// What the server says of it now. True when its content is not what was fetched before.
    pub fn learn(&self, status: &Status) -> bool {
        let mut state = self.state();
        if !state.dirty.is_clean() || !self.is_made() {
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

    pub async fn write(self: &Arc<Self>, offset: u64, content: &[u8], seen: &Seen) -> Result<(), i32> {
        let end = offset.checked_add(content.len() as u64).filter(|end| *end <= LARGEST).ok_or(libc::EFBIG)?;
        let (pieces, crowded) = {
            let mut state = self.state();
            state.check(seen)?;
            state.dirty.write(offset, content);
            state.forget_chunks(offset, end);
            state.status.length = state.status.length.max(end);
            state.status.modified = SystemTime::now();
            state.status.etag.clear();
            let full = state.dirty.waiting() > MOST_WAITING || state.dirty.n_runs() > MOST_RUNS;
            let pieces = if full { state.dirty.take_all() } else { state.dirty.take_full() };
            (pieces, full && state.dirty.waiting() > MOST_WAITING)
        };
        self.send(batches(pieces)).await;
        if crowded {
            // What lies over pieces on their way has to wait for them; so does who writes more of it.
            self.settle().await;
        }
        Ok(())
    }

    /// One block, at the end as it is at that moment on the server. Done when it returns.
    pub async fn append(self: &Arc<Self>, content: &[u8], seen: &Seen) -> Result<(), i32> {
        self.state().check(seen)?;
        self.settle().await;
        let mut number = self.appending.lock().await;
        for content in content.chunks(PIECE) {
            *number += 1;
            let after = self.state().status.length;
            let block =
                Block { content: Bytes::copy_from_slice(content), file: self.inode, number: *number, again: None };
            let path = self.shared.path(self.inode)?;
            let appended = self.shared.patience.insist(format!("append to {path}"), |again| {
                let (block, path) = (Block { again: again.then_some(after), ..block.clone() }, path.clone());
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
        let (plan, length, unsettled) = loop {
            {
                let mut state = self.state();
                let (end, known) = (offset.saturating_add(length), state.status.length);
                if !state.dirty.touches(offset, end) {
                    let plan = state.reading.plan(offset, length, known);
                    break (plan, length, (!state.dirty.is_clean()).then_some(known));
                }
                if let Some(content) = state.dirty.read(offset, end.min(known)) {
                    return Ok(content.into());
                }
            }
            self.settle().await;
        };
        let content = match plan {
            Plan::Direct => self.fetch(offset, length).await?,
            Plan::Chunks { now, ahead, past } => {
                let chunks = self.chunks(now.clone(), ahead, past);
                self.gather(offset, length, now.start, &chunks).await?
            }
        };
        // Beyond the server's end lies a hole, where this machine has written something behind it.
        let missing =
            unsettled.map_or(0, |known| (offset + length).min(known).saturating_sub(offset + content.len() as u64));
        if missing == 0 {
            return Ok(content);
        }
        let mut padded = BytesMut::from(content.as_ref());
        padded.resize(padded.len() + missing as usize, 0);
        Ok(padded.freeze())
    }

    /// The chunks a read needs; those it will need are fetched from now on.
    fn chunks(self: &Arc<Self>, now: std::ops::Range<u64>, ahead: std::ops::Range<u64>, past: u64) -> Vec<Chunk> {
        let mut state = self.state();
        state.chunks.retain(|index, _| *index >= past.min(now.start));
        for index in ahead {
            if let Entry::Vacant(place) = state.chunks.entry(index) {
                let chunk = place.insert(Chunk::default()).clone();
                let file = self.clone();
                self.shared.runtime.spawn(async move { file.load(&chunk, index).await.map(drop) });
            }
        }
        now.map(|index| state.chunks.entry(index).or_default().clone()).collect()
    }

    async fn load(&self, chunk: &Chunk, index: u64) -> Result<Bytes, i32> {
        chunk.get_or_init(|| self.fetch(index * CHUNK, CHUNK)).await.clone()
    }

    async fn gather(&self, offset: u64, length: u64, first: u64, chunks: &[Chunk]) -> Result<Bytes, i32> {
        let mut gathered = BytesMut::new();
        for (index, chunk) in (first..).zip(chunks) {
            let content = match self.load(chunk, index).await {
                Ok(content) => content,
                Err(errno) => {
                    // The next one who asks may have more luck.
                    self.state().chunks.remove(&index);
                    return Err(errno);
                }
            };
            let start = index * CHUNK;
            let from = (offset.max(start) - start).min(content.len() as u64) as usize;
            let to = (offset + length - start).min(content.len() as u64) as usize;
            let part = content.slice(from..to.max(from));
            if part.len() as u64 == length {
                return Ok(part);
            }
            gathered.extend_from_slice(&part);
            if (content.len() as u64) < CHUNK {
                break;
            }
        }
        let reached = offset + gathered.len() as u64;
        if (gathered.len() as u64) < length && reached < self.state().status.length {
            // It has grown since the chunk was fetched.
            gathered.extend_from_slice(&self.fetch(reached, offset + length - reached).await?);
        }
        Ok(gathered.freeze())
    }

    async fn fetch(&self, offset: u64, length: u64) -> Result<Bytes, i32> {
        self.make_with(&[]).await?;
        loop {
            let path = self.shared.path(self.inode)?;
            let what = format!("read {path}");
            let read = self.shared.patience.insist(what, |_| self.shared.remote.read(&path, offset, length)).await;
            match read {
                Err(libc::ENOENT) if self.has_moved(&path) => {}
                read => return read,
            }
        }
    }

    /// Sends everything and waits for it; tells the handle what went wrong since it last asked.
    pub async fn flush(self: &Arc<Self>, seen: &Seen) -> Result<(), i32> {
        self.settle().await;
        self.state().tell(seen)
    }

    /// Returns when all that was written is on the server's disk.
    pub async fn sync(self: &Arc<Self>, seen: &Seen) -> Result<(), i32> {
        self.flush(seen).await?;
        let path = self.shared.path(self.inode)?;
        self.shared.patience.insist(format!("flush {path}"), |_| self.shared.remote.sync(&path)).await
    }

    pub async fn resize(self: &Arc<Self>, length: u64) -> Result<(), i32> {
        self.settle().await;
        let path = self.shared.path(self.inode)?;
        let what = format!("set the length of {path}");
        self.shared.patience.insist(what, |_| self.shared.remote.resize(&path, length)).await?;
        let mut state = self.state();
        state.chunks.clear();
        state.status.length = length;
        state.status.modified = SystemTime::now();
        state.status.etag.clear();
        Ok(())
    }

    /// Waits until the server has everything, or never will.
    pub async fn settle(self: &Arc<Self>) {
        loop {
            let mut arrived = std::pin::pin!(self.arrived.notified());
            arrived.as_mut().enable();
            let (pieces, clean) = {
                let mut state = self.state();
                let pieces = state.dirty.take_all();
                (pieces, state.dirty.is_clean())
            };
            if clean {
                return self.make().await;
            }
            let mut batches = batches(pieces);
            match batches.len() {
                0 => arrived.await,
                1 => {
                    // Who waits for it may as well send it.
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

    async fn send(self: &Arc<Self>, batches: Vec<Vec<Piece>>) {
        for batch in batches {
            let (permit, file) = (self.permit().await, self.clone());
            self.shared.runtime.spawn(async move { file.deliver(&batch, permit).await });
        }
    }

    async fn deliver(&self, batch: &[Piece], permit: OwnedSemaphorePermit) {
        let result = self.upload(batch).await;
        drop(permit);
        self.on_arrived(batch, result);
    }

    async fn upload(&self, batch: &[Piece]) -> Result<(), i32> {
        if self.make_with(batch).await? {
            return Ok(());
        }
        loop {
            let path = self.shared.path(self.inode)?;
            let what = format!("write {path}");
            match self.shared.patience.insist(what, |_| self.shared.remote.write(&path, batch)).await {
                Err(libc::ENOENT) if self.has_moved(&path) => {}
                result => return result,
            }
        }
    }

    fn on_arrived(&self, batch: &[Piece], result: Result<(), i32>) {
        let mut state = self.state();
        for piece in batch {
            state.dirty.done(piece.offset);
            // What was fetched meanwhile may be from before.
            state.forget_chunks(piece.offset, piece.offset + piece.content.len() as u64);
        }
        if let Err(errno) = result {
            state.fail(errno);
        }
        drop(state);
        self.arrived.notify_waiters();
    }

    fn has_moved(&self, path: &str) -> bool {
        self.shared.path(self.inode).is_ok_and(|now| now != path)
    }
}

impl State {
    fn forget_chunks(&mut self, start: u64, end: u64) {
        if !self.chunks.is_empty() {
            self.chunks.retain(|index, _| (index + 1) * CHUNK <= start || index * CHUNK >= end);
        }
    }

    /// What was written will never arrive.
    fn fail(&mut self, errno: i32) {
        self.n_errors += 1;
        self.last_error = errno;
        self.dirty.give_up();
    }

    /// An error that the handle has not been told of, which it stays.
    fn check(&self, seen: &Seen) -> Result<(), i32> {
        if self.n_errors > seen.0.load(Ordering::Relaxed) { Err(self.last_error) } else { Ok(()) }
    }

    fn tell(&self, seen: &Seen) -> Result<(), i32> {
        let told = seen.0.swap(self.n_errors, Ordering::Relaxed);
        if self.n_errors > told { Err(self.last_error) } else { Ok(()) }
    }
}
